package client

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/service"
	"github.com/ringo-ml/ringo/transport"
)

// freezable is a connection whose other end may be frozen, as by a SIGSTOP: its host still takes
// connections, but nothing is read or said there.
type freezable struct {
	net.Conn
	frozen *atomic.Bool
	dead   net.Conn // nothing comes from it, nothing goes there
}

func (f *freezable) Read(p []byte) (int, error) {
	if f.frozen.Load() {
		return f.dead.Read(p)
	}
	return f.Conn.Read(p)
}

func (f *freezable) Write(p []byte) (int, error) {
	if f.frozen.Load() {
		return f.dead.Write(p)
	}
	return f.Conn.Write(p)
}

func (f *freezable) SetDeadline(t time.Time) error {
	return errors.Join(f.SetReadDeadline(t), f.SetWriteDeadline(t))
}

func (f *freezable) SetReadDeadline(t time.Time) error {
	return errors.Join(f.Conn.SetReadDeadline(t), f.dead.SetReadDeadline(t))
}

func (f *freezable) SetWriteDeadline(t time.Time) error {
	return errors.Join(f.Conn.SetWriteDeadline(t), f.dead.SetWriteDeadline(t))
}

func (f *freezable) Close() error { return errors.Join(f.Conn.Close(), f.dead.Close()) }

// freezes has connections to server 1 freeze while the result is true.
func freezes(j *job) *atomic.Bool {
	frozen := new(atomic.Bool)
	j.net.Wrap(func(to string, c net.Conn) net.Conn {
		if to != addr(1) {
			return c
		}
		dead, _ := net.Pipe()
		return &freezable{Conn: c, frozen: frozen, dead: dead}
	})
	return frozen
}

// A server that is frozen is named by every trainer within the limit that it was told itself, whatever waits for it.
func TestFrozenServer(t *testing.T) {
	leakcheck.Check(t)
	for _, what := range []string{"a pull", "a push", "a meeting elsewhere"} {
		synctest.Test(t, func(t *testing.T) {
			j := newJob(t, 2, 2, 1, nil, func(c *service.Config) { c.Times.DeadAfter = 3 * time.Second })
			frozen := freezes(j)
			clients := []*Client{j.dial(0, nil), j.dial(1, nil)}
			time.Sleep(5 * time.Minute)
			frozen.Store(true)
			start, errs := time.Now(), make(chan error, 2)
			for _, c := range clients {
				go func() { errs <- stuck(c, what) }()
			}
			for range clients {
				err := <-errs
				says(t, err, "parameter server 1 at host1:1 is lost: no sign of life for 3s")
				var lost *transport.ServerLostError
				if !errors.As(err, &lost) || lost.Process != "parameter server 1" || lost.Addr != addr(1) {
					t.Errorf("%s: got %v", what, err)
				}
			}
			if waited := time.Since(start); waited < 3*time.Second-time.Second || waited > 5*time.Second {
				t.Errorf("%s: after %v", what, waited)
			}
			for _, c := range clients {
				c.Close()
			}
		})
	}
}

// stuck waits for server 1.
func stuck(c *Client, what string) error {
	l := c.Session(0)
	switch what {
	case "a pull":
		p, err := l.PullRows(1, 1, []uint64{1, 2, 3, 4, 5, 6, 7, 8}, make([]float32, 8*16))
		return errors.Join(err, p.Wait())
	case "a push":
		for {
			if err := l.PushRows(0, 1, []uint64{1, 2, 3, 4, 5, 6, 7, 8}, make([]float32, 8*3)); err != nil {
				return err
			}
		}
	}
	if c.cfg.Trainer == 1 {
		_, err := c.AllGather(nil)
		return err
	}
	<-c.Done() // it does not come
	return c.Err()
}

// One that somebody else watches is waited for, as one that is away, until it is there again.
func TestFrozenServerIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, 1, 1, nil, func(c *service.Config) { c.Times.DeadAfter = 3 * time.Second })
		frozen := freezes(j)
		c := j.dial(0, func(cfg *Config) { cfg.Watched = true })
		frozen.Store(true)
		ended := make(chan error, 1)
		go func() { ended <- pushAll(c) }()
		time.Sleep(30 * time.Second)
		must(t, c.Err())
		frozen.Store(false)
		must(t, <-ended)
		if got := j.row(0, 1); len(got) == 0 || got[0] != 1 {
			t.Errorf("%v", got)
		}
		must(t, c.Leave(context.Background()))
	})
}

func pushAll(c *Client) error {
	keys, ones := []uint64{1, 2, 3, 4, 5, 6, 7, 8}, make([]float32, 8*3)
	for i := range ones {
		ones[i] = 1
	}
	return errors.Join(c.Session(0).PushRows(0, 1, keys, ones), c.Flush(context.Background()))
}

// What a trainer reproaches servers with is counted in time in which it ran itself: its clock stood
// still while the process did.
func TestSuspendedTrainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 1, 2, 1, nil, nil)
		c := j.dial(0, nil)
		at := c.clock.Now()
		time.Sleep(time.Minute)
		synctest.Wait()
		if passed := c.clock.Now().Sub(at); passed != time.Minute {
			t.Errorf("%v of a minute", passed)
		}
		k := c.Session(0).links[0]
		it := &outMessage{since: c.clock.Now().Add(-c.cfg.Timeout)}
		k.mu.Lock()
		k.queue = append(k.queue, it)
		k.mu.Unlock()
		k.checkAges(c.clock.Now())
		must(t, c.Err())
		k.checkAges(c.clock.Now().Add(time.Second))
		says(t, c.Err(), "within 15m0s")
	})
}
