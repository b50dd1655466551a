package service

import (
	"bytes"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/service/fake"
)

// comes brings a text to a meeting.
func (p *peer) comes(request, meeting uint64, text string) {
	p.t.Helper()
	p.send(message.TypeGather, message.Head{Number: request, Step: meeting, Count: len(text)}, []byte(text))
}

// tells how a meeting ended.
func (p *peer) tells(meeting uint64, parts []byte) {
	p.t.Helper()
	p.send(message.TypeGathered, message.Head{Step: meeting, Count: len(parts)}, parts)
}

// met gets the end of a meeting, and wants these texts of trainers 0, 1, 2, …; "-" is of one
// that is not there.
func (p *peer) met(request uint64, texts ...string) {
	p.t.Helper()
	if got, want := p.gets(message.TypeGathered, request), partsOf(texts...); !bytes.Equal(got, want) {
		p.t.Errorf("got %q, want %q", got, want)
	}
}

func partsOf(texts ...string) (b []byte) {
	for i, s := range texts {
		if s != "-" {
			b = message.AppendPart(b, message.Part{Trainer: i, Blob: []byte(s)})
		}
	}
	return b
}

// trainers connects the first ones of three.
func trainers(w *world, some int) (out []*peer) {
	w.t.Helper()
	for i := range some {
		p, _ := w.join(hello(i, 3))
		p.limits.Trainers = 3
		out = append(out, p)
	}
	return out
}

// A meeting ends when all have come; one that missed its end gets it later.
func TestMeeting(t *testing.T) {
	leakcheck.Check(t)
	w := start(t, 3, nil)
	p := trainers(w, 3)
	p[0].comes(1, 1, "a")
	p[2].comes(9, 1, "")
	p[1].comes(4, 1, "bc")
	p[0].met(1, "a", "bc", "")
	p[1].met(4, "a", "bc", "")
	p[1].comes(5, 2, "x") // and is cut off
	again, _ := w.join(hello(1, 3))
	again.limits.Trainers = 3
	again.tells(1, partsOf("not", "news", "here"))
	again.comes(5, 2, "x")
	p[2].met(9, "a", "bc", "")
	p[2].comes(10, 1, "") // its connection was cut before it had the answer
	p[2].met(10, "a", "bc", "")
	p[0].comes(2, 2, "y")
	p[2].comes(11, 2, "z")
	p[0].met(2, "y", "x", "z")
	p[2].met(11, "y", "x", "z")
	again.met(5, "y", "x", "z")
	p[0].comes(3, 3, "")
	p[1] = again
	p[1].leaves(1)
	p[2].leaves(1)
	p[0].met(3, "")
}

// A server that was started again learns how the last meeting ended, whoever connects first.
func TestMeetingsAfterRestart(t *testing.T) {
	leakcheck.Check(t)
	w := start(t, 3, nil)
	p := trainers(w, 3)
	p[0].tells(4, partsOf("0", "1", "2")) // waits for the end of 5, which p[1] knows
	p[0].comes(1, 5, "a")
	p[1].tells(5, partsOf("a", "b", "c"))
	p[1].comes(1, 6, "d")
	p[0].met(1, "a", "b", "c")
	p[0].comes(2, 6, "e")
	p[2].comes(1, 5, "c")
	p[2].met(1, "a", "b", "c")
	p[2].comes(2, 6, "f")
	for i, request := range []uint64{2, 1, 2} {
		p[i].met(request, "e", "d", "f")
	}
}

// Trainers that cannot be part of a meeting hear why.
func TestMeetingRefused(t *testing.T) {
	leakcheck.Check(t)
	w := start(t, 3, nil)
	p := trainers(w, 3)
	p[0].tells(7, partsOf("0", "1", "2"))
	p[0].comes(1, 7, "0")
	p[0].met(1, "0", "1", "2")
	p[1].comes(1, 6, "")
	p[1].failure(message.ReasonFailed, "trainer 1 comes to meeting 6, the others are at 8")
	p[2].comes(1, 9, "")
	p[2].failure(message.ReasonProtocol, "trainer 2 comes to meeting 9, the others are at 8")
	w = start(t, 3, nil)
	p = trainers(w, 3)
	p[0].tells(1, []byte("garbage"))
	p[0].failure(message.ReasonProtocol, "malformed")
	p[1].comes(1, 1, "") // it waits at a meeting that the others have had without it
	p[1].pulls(2, 1, 1)
	p[1].row(2, 0, 0, 0)
	p[2].tells(3, partsOf("0", "-", "2"))
	if typ, _ := p[1].next(); typ != message.TypeGoodbye {
		t.Errorf("got %s", message.Name(typ))
	}
	p[1], _ = w.join(hello(1, 3))
	p[1].comes(1, 1, "")
	p[1].failure(message.ReasonFailed, "trainer 1 comes to meeting 1, the others are at 4")
}

// To a server that goes on with another one's work trainers come back as soon as after any
// other absence.
func TestRejoinAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, 2, func(c *Config, e *fake.Config) {
			c.Rejoin, e.Forgetful = 10*time.Second, true
		})
		h := hello(0, 2)
		h.From = 5
		begun := time.Now()
		p, _ := w.join(h)
		p.limits.Trainers = 2
		p.gets(message.TypeAck, 4)
		p.comes(1, 1, "a")
		var beating sync.WaitGroup
		defer beating.Wait()
		beating.Go(func() {
			for range 15 {
				time.Sleep(time.Second)
				_ = p.WriteFrame(message.TypeHeartbeat, nil)
			}
		})
		p.met(1, "a")
		if waited := time.Since(begun); waited < 10*time.Second || waited > 12*time.Second {
			t.Errorf("the meeting took %v", waited)
		}
		says(t, w.engine.Losses()[0], "trainer 1 is lost: its session 0 has been away for 10s: it has never connected")
		p.leaves(5)
		must(t, w.end())
	})
}

// Who is lost is not waited for, its own part is left out, and it hears that it comes too late.
func TestMeetingWithoutTheLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, 3, func(c *Config, _ *fake.Config) {
			c.Rejoin = 10 * time.Second
		})
		p := trainers(w, 2) // of three; the last one never comes
		p[0].comes(1, 1, "a")
		p[1].comes(1, 1, "b")
		p[1].Link().Close()
		var beating sync.WaitGroup
		defer beating.Wait()
		beating.Go(func() {
			for range 70 {
				time.Sleep(time.Second)
				_ = p[0].WriteFrame(message.TypeHeartbeat, nil)
			}
		})
		begun := time.Now()
		p[0].met(1, "a")
		if waited := time.Since(begun); waited < time.Minute || waited > time.Minute+2*time.Second {
			t.Errorf("the meeting took %v", waited)
		}
		if n := len(w.engine.Losses()); n != 2 {
			t.Errorf("%d are lost", n)
		}
		says(t, w.engine.Losses()[0], "trainer 1 is lost: its session 0 has been away for 10s")
		says(t, w.engine.Losses()[1], "trainer 2 is lost: its session 0 has been away for 1m0s: it has never connected")
		late, _ := w.join(hello(1, 3))
		late.comes(2, 1, "b")
		late.failure(message.ReasonLost, "trainer 1 comes to meeting 1, the others are at 2: they went on without it")
		p[0].leaves(1)
		must(t, w.end())
	})
}
