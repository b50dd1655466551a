package client

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/service"
	"github.com/ringo-ml/ringo/internal/server/service/fake"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

// The connection is cut after any number of bytes, in either direction: everything is
// applied exactly once, in order.
func TestCutAtAnyByte(t *testing.T) {
	every := 1
	if testing.Short() {
		every = 13
	}
	for _, direction := range []string{"read", "write"} {
		t.Run(direction, func(t *testing.T) {
			for n, survived := 0, false; !survived; n += every {
				synctest.Test(t, func(t *testing.T) { survived = exchangeWithCut(t, direction, n) })
				if t.Failed() {
					t.Fatalf("cut after %d bytes", n)
				}
			}
		})
	}
}

// exchangeWithCut is a short training whose first connection is cut after n bytes. It
// tells whether the connection has survived.
func exchangeWithCut(t *testing.T, direction string, n int) (survived bool) {
	j := newJob(t, 1, 1, 1, nil, nil)
	made := 0
	j.net.Wrap(func(_ string, c net.Conn) net.Conn {
		made++
		if made > 1 {
			return c
		}
		if direction == "read" {
			return fake.NewCut(c, n, -1)
		}
		return fake.NewCut(c, -1, n)
	})
	j.engines[0].Keep = true
	c := j.dial(0, nil)
	l := c.Session(0)
	must(t, l.SetDense(1, []float32{1, 1, 1, 1, 1, 1, 1}))
	must(t, l.PushRows(0, 1, []uint64{4, 5}, []float32{1, 2, 3, 4, 5, 6}))
	if got := pull(t, l, 0, 1, []uint64{5, 6, 4}); !slices.Equal(got, []float32{4, 5, 6, 0, 0, 0, 1, 2, 3}) {
		t.Errorf("pulled %v", got)
	}
	must(t, l.PushDense(1, 1, 0, []float32{1, 2, 3, 4, 5, 6, 7}))
	must(t, l.Clock(1, 0.5))
	must(t, l.PushRows(0, 2, []uint64{4}, []float32{1, 1, 1}))
	_, err := l.PushCoded(1, 2, 1, compress.FP16{}, nil, &compress.Sparse{Len: 5, Index: []int32{1, 3}, Value: []float32{10, 20}})
	must(t, err)
	must(t, c.Leave(context.Background()))
	<-j.running[0].ended
	must(t, j.running[0].err)
	e := j.engines[0]
	if !slices.Equal(e.Row(0, 4), []float32{2, 3, 4}) || !slices.Equal(e.Row(0, 5), []float32{4, 5, 6}) {
		t.Errorf("rows %v %v", e.Row(0, 4), e.Row(0, 5))
	}
	if !slices.Equal(e.Array(1), []float32{2, 3, 14, 5, 26, 7, 8}) || !slices.Equal(e.Rates(), []float64{0.5}) || e.Last(0) != 7 || len(e.Pushes) != 2 {
		t.Errorf("array %v, rates %v, %d changes, pushes %v", e.Array(1), e.Rates(), e.Last(0), e.Pushes)
	}
	return made == 1
}

// A server that is replaced by another one with its state goes on where it was: what
// was not acknowledged is sent again, and nothing twice.
func TestServerRestarts(t *testing.T) {
	leakcheck.Check(t)
	for _, lost := range []string{"nothing", "what was not acknowledged"} {
		t.Run(lost, func(t *testing.T) {
			j := newJob(t, 2, 1, 1, nil, nil)
			var down atomic.Bool
			c := j.dial(0, func(cfg *Config) {
				cfg.Window = 100
				cfg.Dial = func(ctx context.Context, to string) (net.Conn, error) {
					if down.Load() && to == addr(1) {
						return nil, errNoDial
					}
					return j.net.Dial(ctx, to)
				}
			})
			l := c.Session(0)
			keys := []uint64{1, 2, 3, 4, 5, 6, 7, 8}
			ones := slices.Repeat([]float32{1}, 3*len(keys))
			push := func(n int) {
				for range n {
					must(t, l.PushRows(0, 1, keys, ones))
				}
			}
			push(3)
			must(t, c.Flush(context.Background()))
			older := j.engines[1].Restart()
			j.engines[1].Hold(true)
			push(4)
			pull(t, l, 0, 1, keys) // the pushes have arrived, too
			if lost == "nothing" {
				older = j.engines[1].Restart()
			}
			// The old process dies before it can acknowledge.
			b := newBreaker(&j.net)
			down.Store(true)
			old := j.running[1]
			l1 := c.Session(0).links[1]
			l1.mu.Lock()
			l1.conn.Link().Close()
			l1.mu.Unlock()
			old.cancel()
			j.engines[1].Hold(false)
			<-old.ended
			j.engines[1] = older
			j.serve(1, older)
			down.Store(false)
			push(2)
			b.cut()
			push(1)
			for _, v := range pull(t, l, 0, 1, keys) {
				if v != 10 {
					t.Errorf("a value is %v, want 10", v)
				}
			}
			must(t, c.Flush(context.Background()))
			for _, key := range keys {
				if row := j.row(0, key); !slices.Equal(row, []float32{10, 10, 10}) {
					t.Errorf("key %d is %v", key, row)
				}
			}
			if s := c.Stats(); s.Reconnects < 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A server that has forgotten what it acknowledged ends the client, which says so, or
// where it may forget goes on with what comes.
func TestServerForgets(t *testing.T) {
	leakcheck.Check(t)
	for _, forgetful := range []bool{false, true} {
		j := newJob(t, 1, 1, 1, func(e *fake.Config) { e.Forgetful = forgetful }, nil)
		c := j.dial(0, nil)
		l := c.Session(0)
		empty := j.engines[0].Restart()
		must(t, l.PushRows(0, 1, []uint64{1}, []float32{1, 1, 1}))
		must(t, l.Clock(1, 1))
		must(t, c.Flush(context.Background()))
		j.replace(0, empty)
		err := l.PushRows(0, 2, []uint64{1}, []float32{2, 2, 2})
		if err == nil {
			err = c.Flush(context.Background())
		}
		if !forgetful {
			says(t, err, "ps: trainer 0: connecting, server 0 (host0:1), session 0: server 0: trainer 0, session 0: session 0: changes 1 to 2 were acknowledged and are gone")
			if f := (*message.Failure)(nil); !errors.As(err, &f) || f.Reason != message.ReasonFailed {
				t.Errorf("%T", err)
			}
			<-c.Done()
			continue
		}
		must(t, err)
		if row := j.row(0, 1); !slices.Equal(row, []float32{2, 2, 2}) || j.engines[0].Last(0) != 3 {
			t.Errorf("%v, %d changes", row, j.engines[0].Last(0))
		}
	}
}

// A trainer that is started again goes on with the numbers of the one before.
func TestTrainerRestarts(t *testing.T) {
	leakcheck.Check(t)
	j := newJob(t, 2, 1, 1, nil, nil)
	keys := []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	ones := slices.Repeat([]float32{1}, 3*len(keys))
	for life := range 3 {
		c := j.dial(0, nil)
		for range life + 1 {
			must(t, c.Session(0).PushRows(0, 1, keys, ones))
		}
		must(t, c.Flush(context.Background()))
		must(t, c.Close())
	}
	for _, key := range keys {
		if row := j.row(0, key); !slices.Equal(row, []float32{6, 6, 6}) {
			t.Errorf("key %d is %v", key, row)
		}
	}
}

// Two processes of one rank: the later one has it, the earlier one is told.
func TestTwoOfARank(t *testing.T) {
	leakcheck.Check(t)
	j := newJob(t, 1, 1, 2, nil, nil)
	a := j.dial(0, nil)
	b := j.dial(0, nil)
	<-a.Done()
	says(t, a.Err(), "another process has connected as trainer 0")
	if f := (*message.Failure)(nil); !errors.As(a.Err(), &f) || f.Reason != message.ReasonReplaced {
		t.Errorf("%v", a.Err())
	}
	must(t, b.Session(1).PushRows(0, 1, []uint64{1}, []float32{1, 1, 1}))
	must(t, b.Flush(context.Background()))
}

// A trainer never has more than its window unacknowledged, and no more pulls under way
// than it may; what lets those begin overtakes the others.
func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 1, 1, 1, func(e *fake.Config) { e.Bounded = true }, func(s *service.Config) { s.Pulls = 2 })
		c := j.dial(0, func(cfg *Config) { cfg.Window = 3 })
		l := c.Session(0)
		j.engines[0].Hold(true)
		pushed := make(chan error, 10)
		go func() {
			for range 5 {
				pushed <- l.PushRows(0, 1, []uint64{1}, []float32{1, 1, 1})
			}
		}()
		time.Sleep(time.Minute)
		if len(pushed) != 3 || j.engines[0].Last(0) != 3 {
			t.Errorf("%d pushes were made and %d applied with a window of 3", len(pushed), j.engines[0].Last(0))
		}
		j.engines[0].Hold(false)
		synctest.Wait()
		if len(pushed) != 5 {
			t.Errorf("%d pushes were made", len(pushed))
		}
		if s := c.Stats(); s.PushWait != time.Minute {
			t.Errorf("%+v", s)
		}

		var pulls []*Pull
		rows := make([]float32, 3*5)
		for i := range 5 { // of a step that nobody may pull yet
			p, err := l.PullRows(0, 2, []uint64{1}, rows[3*i:][:3])
			must(t, err)
			pulls = append(pulls, p)
		}
		time.Sleep(time.Minute)
		if f := j.running[0].server.Stats(); f.Parked != 2 || f.Pulls != 0 {
			t.Errorf("%+v where 2 pulls may be under way", f)
		}
		must(t, l.Clock(1, -1))
		for _, p := range pulls {
			must(t, p.Wait())
		}
		if !slices.Equal(rows, slices.Repeat([]float32{5}, len(rows))) {
			t.Errorf("%v", rows)
		}
	})
}

// A server that is not there: the error names it when the time is over, and not
// before.
func TestUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 1, 1, 1, nil, nil)
		cfg := j.trainer(0)
		cfg.Servers[0] = "elsewhere:7"
		start := time.Now()
		_, err := Dial(context.Background(), cfg)
		says(t, err, "ps: trainer 0: connecting, session 0: parameter server 0 at elsewhere:7 is lost: it could not be reached for 2m0s", "connection refused", "it was never reached")
		if waited := time.Since(start); waited != 2*time.Minute {
			t.Errorf("after %v", waited)
		}
		cfg.Dial = func(context.Context, string) (net.Conn, error) { return nil, errNoDial }
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err = Dial(ctx, cfg)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		says(t, err, "server 0 (elsewhere:7)")

		j = newJob(t, 1, 1, 1, nil, nil) // the other one has given the trainer up
		c := j.dial(0, nil)
		start = time.Now()
		j.running[0].cancel()
		<-j.running[0].ended
		time.Sleep(time.Minute)
		must(t, c.Err())
		p, err := c.Session(0).PullRows(1, 8, []uint64{1}, make([]float32, 16))
		must(t, err)
		err = p.Wait()
		says(t, err, `pull of rows of table "even" of step 8, session 0: parameter server 0 at host0:1 is lost: it could not be reached for 2m0s`, "connection refused", "after: the server has ended: context canceled")
		if waited := time.Since(start); waited < 2*time.Minute || waited > 2*time.Minute+2*time.Second {
			t.Errorf("after %v", waited)
		}
		if err2 := c.Session(0).PushRows(1, 8, nil, nil); err2 != nil {
			t.Errorf("nothing to push: %v", err2)
		}
		if err2 := c.Session(0).Clock(8, 1); err2 == nil || err2.Error() != err.Error() {
			t.Errorf("got %v, want the first cause", err2)
		}
	})
}

// A server that is there and opens its tables is not away, though it is killed now and then and begins anew; but it is not
// waited for for ever.
func TestOpeningIsNotAway(t *testing.T) {
	for name, c := range map[string]struct {
		killed int // times
		want   string
	}{
		"in the end it is open": {20, ""},
		"it never is":           {1 << 20, "parameter server 0 at host0:1 is lost: it has not opened its tables in 15m"},
	} {
		synctest.Test(t, func(t *testing.T) {
			j := newJob(t, 1, 1, 1, nil, nil)
			cfg := j.trainer(0)
			opening := 0
			cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				if opening++; opening == c.killed+1 {
					<-j.running[0].ended // it has waited for its trainer long enough
					j.serve(0, j.engines[0])
				}
				if opening > c.killed {
					return j.net.Dial(ctx, addr)
				}
				near, far := net.Pipe()
				go func() { // it lets the trainer in, and is killed before it has opened its tables
					_, _, _ = transport.ServerHandshake(context.Background(), far, j.ticket, transport.Hello{Version: "1", Purpose: transport.Service}, nil)
					time.Sleep(8 * time.Second)
					far.Close()
				}()
				return near, nil
			}
			start := time.Now()
			cl, err := Dial(context.Background(), cfg)
			waited := time.Since(start)
			if c.want == "" {
				must(t, err)
				cl.Close()
			} else {
				says(t, err, c.want, "of which it was away for")
			}
			if waited < 2*time.Minute || waited > 15*time.Minute+10*time.Second { // the last try ends by itself
				t.Errorf("%s: after %v", name, waited)
			}
			time.Sleep(10 * time.Second) // until the last one is killed
		})
	}
}

// Answers and acknowledgements that do not come end the client with an error that
// says what was waited for.
func TestAnswersHaveADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 1, 2, 1, func(e *fake.Config) { e.Bounded = true }, nil)
		c := j.dial(0, nil)
		d := j.dial(1, nil)
		start := time.Now()
		p, err := c.Session(0).PullRows(1, 9, []uint64{1}, make([]float32, 16))
		must(t, err)
		says(t, p.Wait(), `ps: trainer 0: pull of rows of table "even" of step 9, server 0 (host0:1), session 0: no answer within 15m0s`)
		if waited := time.Since(start); waited < 15*time.Minute || waited > 15*time.Minute+2*time.Second {
			t.Errorf("after %v", waited)
		}
		j.engines[0].Hold(true)
		must(t, d.Session(0).Clock(1, 1))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := d.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		says(t, d.Flush(context.Background()), "ps: trainer 1: clock of step 1, server 0 (host0:1), session 0: no acknowledgement within 15m0s")
		j.engines[0].Hold(false)
	})
}

// A server that takes long to open its tables is waited for as long as it lives.
func TestSlowToOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 1, 1, 1, nil, func(s *service.Config) {
			open := s.Open
			s.Schema = nil
			s.Open = func(sc schema.Schema) (service.Engine, error) {
				time.Sleep(5 * time.Minute)
				return open(sc)
			}
		})
		start := time.Now()
		c := j.dial(0, nil)
		if waited := time.Since(start); waited != 5*time.Minute {
			t.Errorf("after %v", waited)
		}
		must(t, c.Leave(context.Background()))
	})
}

// A trainer that computes for an hour is not lost: its client shows that it lives.
func TestSlowTrainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 1, 1, 1, nil, nil)
		c := j.dial(0, nil)
		time.Sleep(time.Hour)
		pull(t, c.Session(0), 0, 1, []uint64{1})
		if s := c.Stats(); s.Reconnects != 0 || len(j.engines[0].Losses()) != 0 {
			t.Errorf("%+v, %v", s, j.engines[0].Losses())
		}
		must(t, c.Leave(context.Background()))
	})
}
