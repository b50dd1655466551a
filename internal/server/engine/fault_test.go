package engine

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/wal"
)

// A log that takes no more stops the server. What was acknowledged is there when it
// is opened again, what was not may be sent again.
func TestLogFails(t *testing.T) {
	s := sparseOnly()
	c := Config{Trainers: 1, Mode: Async, Durability: WAL, Dir: t.TempDir()}
	e := open(t, c, s)
	cl := newClient(t, e, 0)
	cl.rows(0, []uint64{1}, []float32{1, 0})
	must(t, e.Durable(cl.last))
	must(t, e.log.Close()) // stands for a disk that fails
	push := func() error {
		_, err := e.PushRows(0, cl.seq+1, 0, 1, []uint64{1}, []float32{1, 0})
		return err
	}
	if err := push(); !errors.Is(err, wal.ErrClosed) {
		t.Fatalf("a push that cannot be logged: %v", err)
	}
	select {
	case <-e.Failed():
	default:
		t.Error("the server works on")
	}
	if err := e.PullRows(anyPull, 0, []uint64{1}, make([]float32, 2)); !errors.Is(err, wal.ErrClosed) {
		t.Errorf("a pull afterwards: %v", err)
	}
	if _, err := e.Save(context.Background(), false); err == nil {
		t.Error("what is not in the log was saved")
	}
	_ = e.Close() // the log is closed already
	e = open(t, c, s)
	if last, err := e.Join(0, cl.seq+1, 0); err != nil || last != cl.seq {
		t.Fatalf("after a restart: change %d %v", last, err)
	}
	must(t, push())
	got := make([]float32, 2)
	must(t, e.PullRows(anyPull, 0, []uint64{1}, got))
	if got[0] != -2 {
		t.Errorf("the row is %v", got)
	}
}

// Close may come at any time.
func TestCloseWhileBusy(t *testing.T) {
	leakcheck.Check(t)
	for _, mode := range []Mode{Async, BSP} {
		s := whole(4)
		e := open(t, Config{Trainers: 3, Mode: mode, Durability: WAL, Dir: t.TempDir(), Lost: ContinueJob}, s)
		newClient(t, e, 0).begin([][]float32{make([]float32, 40)})
		var all sync.WaitGroup
		busy := func(do func(i uint64) error) {
			all.Go(func() {
				for i := uint64(1); ; i++ {
					if err := do(i); err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Errorf("%s: %v", mode, err)
						}
						return
					}
				}
			})
		}
		keys, values := []uint64{1, 2, 3, 4}, make([]float32, 16)
		reached := make(chan struct{}, 1000)
		for n := range 3 {
			seq := e.Last(n)
			busy(func(i uint64) error {
				if err := e.Await(context.Background(), n, i); err != nil {
					return err
				}
				if _, err := e.PushRows(n, seq+1, 0, i, keys, values); err != nil {
					return err
				}
				t, err := e.Clock(n, seq+2, i, 1/float64(i))
				if err != nil {
					return err
				}
				seq += 2
				if i == 20 {
					reached <- struct{}{}
				}
				return e.Durable(t)
			})
		}
		busy(func(uint64) error { return e.PullRows(anyPull, 0, keys, make([]float32, 16)) })
		busy(func(uint64) error {
			_, err := e.Save(context.Background(), false)
			return err
		})
		busy(func(uint64) error {
			e.Stats()
			return e.Err()
		})
		for range 3 {
			<-reached
		}
		must(t, e.Close())
		all.Wait()
	}
}

// What an earlier checkpoint has is read as it is, or refused: never a panic.
func FuzzDenseFile(f *testing.F) {
	s := mixed()
	c := Config{Trainers: 2, Mode: Async, Durability: None}.filled()
	for _, x := range s.Dense {
		d, err := newDense(c, x)
		must(f, err)
		var b bytes.Buffer
		must(f, d.save(&b, ""))
		f.Add(b.Bytes(), true)
		f.Add(b.Bytes()[:b.Len()/2], false)
	}
	f.Fuzz(func(t *testing.T, b []byte, own bool) {
		for _, x := range s.Dense {
			d, err := newDense(c, x)
			must(t, err)
			if d.load(context.Background(), bytes.NewReader(b), "", own) == nil && (d.set < 0 || d.set > d.hi-d.lo) {
				t.Fatalf("%d values of %d are set", d.set, d.hi-d.lo)
			}
		}
	})
}
