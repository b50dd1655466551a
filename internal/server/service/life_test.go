package service

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/service/fake"
	"github.com/ringo-ml/ringo/transport"
)

// A session that connects again takes its place; a process that connects as a trainer
// takes all its places, and the one before stays out.
func TestReplacement(t *testing.T) {
	leakcheck.Check(t)
	w := start(t, 1, func(c *Config, _ *fake.Config) { c.Sessions = 2 })
	session := func(l int, process uint64) message.Hello {
		h := hello(0, 1)
		h.Session, h.Sessions, h.Incarnation = l, 2, process
		return h
	}
	gone := func(p *peer) {
		t.Helper()
		if _, _, _, err := p.Next(); err == nil || errors.Is(err, transport.ErrTimeout) {
			t.Errorf("the connection is still there: %v", err)
		}
	}
	a0, _ := w.join(session(0, 1))
	a1, _ := w.join(session(1, 1))
	again, _ := w.join(session(0, 1))
	gone(a0)
	a1.pulls(1, 1, 1)
	a1.row(1, 0, 0, 0)
	b1, _ := w.join(session(1, 2))
	gone(a1)
	gone(again)
	old := w.knock()
	typ, b := old.greets(session(0, 1))
	old.failed(typ, b, message.ReasonReplaced, "another process has connected as trainer 0")
	b1.pulls(1, 1, 1)
	b1.row(1, 0, 0, 0)
	if n := w.server.Stats().Replaced; n < 1 {
		t.Errorf("%d replaced", n)
	}
	if !w.reported("server 0: trainer 0 has connected again", "session 0") || w.reported("has connected from") {
		t.Error("that a session came back is no news, or that it came is")
	}
}

// A trainer that shows nothing is closed after Silence and lost after Rejoin; one that
// is slow but lives is not.
func TestSilenceAndLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, 2, func(_ *Config, e *fake.Config) { e.LostLeaves = false })
		dead, _ := w.join(hello(0, 2))
		slow, _ := w.join(hello(1, 2))
		go io.Copy(io.Discard, dead.raw) // it reads, and says nothing
		heard := make(chan error, 1)
		go func() {
			typ, b := slow.next() // heartbeats are not seen here
			f, err := message.ParseFailure(b)
			if typ != message.TypeFailure || err != nil || f.Reason != message.ReasonLost || f.Trainer != 0 {
				err = errors.New("not the failure of trainer 0")
			}
			heard <- errors.Join(err, f)
		}()
		beat := func(d time.Duration) {
			for range d / time.Second {
				time.Sleep(time.Second)
				_ = slow.WriteFrame(message.TypeHeartbeat, nil)
			}
		}
		beat(9 * time.Second)
		if h := w.server.Health(); h.Trainers[0].Connected != 1 {
			t.Errorf("%+v", h)
		}
		beat(2 * time.Second)
		if h := w.server.Health(); h.Trainers[0].Connected != 0 || !strings.Contains(h.Trainers[0].Disconnected, "the trainer was silent for 10s") || h.Trainers[1].Connected != 1 {
			t.Errorf("%+v", h)
		}
		beat(57 * time.Second)
		if len(w.engine.Losses()) != 0 {
			t.Errorf("%v", w.engine.Losses())
		}
		beat(4 * time.Second)
		says(t, w.end(), "ps: server 0: trainer 0 is lost: its session 0 has been away for 1m0s", "silent for 10s")
		says(t, <-heard, "trainer 0 is lost")
		if h := w.server.Health(); h.State != "failed" || !h.Trainers[0].Lost {
			t.Errorf("%+v", h)
		}
	})
}

// Where trainers may be lost the others go on, and the server ends with the last one.
func TestLossIsALeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, 2, func(_ *Config, e *fake.Config) { e.Bounded = true })
		p, _ := w.join(hello(0, 2)) // the other one never comes
		p.send(message.TypeClock, message.Head{Number: 1, Step: 1}, nil)
		p.gets(message.TypeAck, 1)
		p.pulls(1, 2, 1)
		var beating sync.WaitGroup
		defer beating.Wait()
		beating.Go(func() {
			for range 70 {
				time.Sleep(time.Second)
				_ = p.WriteFrame(message.TypeHeartbeat, nil)
			}
		})
		start := time.Now()
		p.row(1, 0, 0, 0)
		if waited := time.Since(start); waited < time.Minute || waited > time.Minute+2*time.Second {
			t.Errorf("the pull waited %v", waited)
		}
		if losses := w.engine.Losses(); len(losses) != 1 || !strings.Contains(losses[0].Error(), "trainer 1 is lost: its session 0 has been away for 1m0s: it has never connected") {
			t.Errorf("%v", losses)
		}
		p.leaves(2)
		must(t, w.end())
	})
}

// Nobody comes at all: the server says so in the end.
func TestNobodyComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, 1, nil)
		says(t, w.end(), "trainer 0 is lost", "it has never connected")
	})
}

// A trainer that left and did not say goodbye may come back for what it missed.
func TestLeaveIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, 1, nil)
		p, _ := w.join(hello(0, 1))
		p.send(message.TypeLeave, message.Head{Number: 1}, nil)
		p.gets(message.TypeAck, 1)
		p.Link().Close() // as if it had not come
		time.Sleep(5 * time.Second)
		again, welcome := w.join(hello(0, 1))
		if welcome.Last != 1 {
			t.Errorf("%+v", welcome)
		}
		again.gets(message.TypeAck, 1)
		again.Link().Close()
		start := time.Now()
		must(t, w.end())
		if waited := time.Since(start); waited < 4*time.Second || waited > 12*time.Second {
			t.Errorf("it ended after %v", waited)
		}
	})
}

// A server that is told to end acknowledges what it has, says goodbye, and returns no
// error.
func TestEndsInGoodOrder(t *testing.T) {
	leakcheck.Check(t)
	w := start(t, 2, func(_ *Config, e *fake.Config) { e.Bounded = true })
	a, _ := w.join(hello(0, 2))
	b, _ := w.join(hello(1, 2))
	w.engine.Hold(true)
	a.pushes(1, 1, 3, 1, 1, 1)
	a.pulls(1, 1, 3)
	a.row(1, 1, 1, 1)
	b.pulls(1, 9, 3) // stays parked
	b.pulls(2, 1, 3)
	b.row(2, 1, 1, 1)
	w.cancel()
	w.engine.Hold(false)
	a.gets(message.TypeAck, 1)
	for _, p := range []*peer{a, b} {
		if typ, _ := p.next(); typ != message.TypeGoodbye {
			t.Errorf("got %s", message.Name(typ))
		}
	}
	must(t, w.end())
}

// An engine that fails ends the server, and all trainers are told why.
func TestEngineFails(t *testing.T) {
	leakcheck.Check(t)
	w := start(t, 2, nil)
	a, _ := w.join(hello(0, 2))
	b, _ := w.join(hello(1, 2))
	w.engine.Fail(errors.New("the log cannot be written"))
	for _, p := range []*peer{a, b} {
		p.failure(message.ReasonFailed, "server 0: the log cannot be written")
	}
	says(t, w.end(), "the log cannot be written")
}

// A trainer that does not read holds up nobody, and is closed in the end.
func TestUnreadAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, 2, func(c *Config, e *fake.Config) { c.Replies = 2 })
		deaf, _ := w.join(hello(0, 2))
		good, _ := w.join(hello(1, 2))
		go func() {
			for i := range uint64(20) {
				if deaf.Write(net.Buffers{frame(t, message.TypePullRows, message.Head{Number: i + 1, Count: 1}, make([]byte, 8))}) != nil {
					return
				}
			}
		}()
		good.pulls(1, 1, 1)
		good.row(1, 0, 0, 0)
		var beating sync.WaitGroup
		defer beating.Wait()
		beating.Go(func() {
			for range 20 {
				time.Sleep(time.Second)
				_ = good.WriteFrame(message.TypeHeartbeat, nil)
			}
		})
		go io.Copy(io.Discard, good.raw)
		time.Sleep(15 * time.Second)
		if h := w.server.Health(); h.Trainers[0].Connected != 0 || h.Trainers[1].Connected != 1 {
			t.Errorf("%+v", h)
		}
	})
}
