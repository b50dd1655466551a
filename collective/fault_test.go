package collective

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// Every survivor names the rank that died, also those that have no part in its
// messages, and every later operation fails with the same cause.
func TestLostRankIsNamed(t *testing.T) {
	for _, size := range []int{2, 3, 5, 8} {
		for dead := range size {
			meshes := mem.New(size)
			errs := onMeshes(t, meshes, Config{Algorithm: Ring, SegmentBytes: 64}, func(g *Group) error {
				x := make([]float32, 1000)
				first := AllReduce(g, x, Sum)
				if g.Rank() == dead {
					die(meshes, dead)
					return nil
				}
				return survive(g, x, dead, first)
			})
			for r, err := range errs {
				if err != nil {
					t.Errorf("rank %d of %d: %v", r, size, err)
				}
			}
		}
	}
}

// die cuts all links of a rank without a goodbye.
func die(meshes []transport.Mesh, dead int) {
	for peer, m := range meshes {
		if peer == dead {
			continue
		}
		if m, ok := m.(*mem.Mesh); ok {
			m.Cut(dead) // the survivor's side first
		} else {
			meshes[dead].(transport.Cutter).Cut(peer)
		}
	}
}

// survive checks the errors of everything after the death. The operation before
// it may have failed too: its other ranks need not have ended when one has.
func survive(g *Group, x []float32, dead int, first error) error {
	queued := []*Work{StartAllReduce(g, x, Sum), StartBarrier(g), StartBroadcast(g, make([]float32, 5), 0)}
	later := AllReduce(g, make([]float32, 10), Sum)
	errs := []error{later, Barrier(g)}
	if first != nil {
		errs = append(errs, first)
	}
	for _, w := range queued {
		errs = append(errs, w.Wait())
	}
	for i, err := range errs {
		var op *OpError
		var lost *transport.LostError
		if !errors.As(err, &op) || !errors.As(err, &lost) || lost.Rank != dead || op.Peer != dead || op.Rank != g.Rank() {
			return fmt.Errorf("rank %d died: error %d is %w (%#v)", dead, i, err, op)
		}
	}
	return nil
}

// A rank that never comes is found after the timeout, not before; the others
// hear of it from whoever found it.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 30 * time.Second
		start := time.Now()
		errs := onMeshes(t, mem.New(4), Config{Algorithm: Ring, Timeout: timeout}, func(g *Group) error {
			if g.Rank() == 2 {
				time.Sleep(2 * timeout)
				return nil
			}
			err := AllReduce(g, make([]float32, 100), Sum)
			if took := time.Since(start); took != timeout {
				t.Errorf("rank %d: failed after %v", g.Rank(), took)
			}
			return err
		})
		for r, err := range errs {
			if r != 2 && !strings.Contains(fmt.Sprint(err), "timed out after 30s") {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		if first := asOpError(t, errs[3]); transport.TimedOut(first) && first.Peer != 2 {
			t.Errorf("rank 3 waited for rank 2 and blames %d: %v", first.Peer, first)
		}
	})
}

// Waiting names the peer and the time, once SlowAfter has passed.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		onRanks(t, 3, Config{Algorithm: Ring, SlowAfter: 2 * time.Second}, func(g *Group) error {
			time.Sleep(time.Second)
			if g.Rank() == 1 {
				time.Sleep(9 * time.Second)
				return Barrier(g)
			}
			if _, ok := g.Waiting(); ok {
				t.Error("waiting before anything was started")
			}
			w := StartBarrier(g)
			time.Sleep(time.Second)
			if _, ok := g.Waiting(); ok {
				t.Error("slow after one second already")
			}
			time.Sleep(2 * time.Second)
			long, ok := g.Waiting()
			if want := (Wait{"barrier", 0, 1, start.Add(time.Second)}); g.Rank() == 2 && (!ok || long != want) {
				t.Errorf("rank 2 waits in %+v (%v), want %+v", long, ok, want)
			}
			err := w.Wait()
			if _, ok := g.Waiting(); ok {
				t.Error("still waiting after the operation")
			}
			return err
		})
	})
}

// Closing a group with an operation in flight ends it on all ranks.
func TestCloseInFlight(t *testing.T) {
	meshes := mem.New(3)
	errs := onMeshes(t, meshes, Config{Algorithm: Ring}, func(g *Group) error {
		if g.Rank() > 0 {
			return AllReduce(g, make([]float32, 10), Sum)
		}
		w := StartAllReduce(g, make([]float32, 10), Sum)
		queued := StartBarrier(g)
		g.Close()
		return errors.Join(w.Wait(), queued.Wait(), Barrier(g))
	})
	if !errors.Is(errs[0], transport.ErrClosed) {
		t.Errorf("the closing rank: %v", errs[0])
	}
}

// Ranks that disagree on the length are told, and do not hang.
func TestLengthsDiffer(t *testing.T) {
	errs := onMeshes(t, mem.New(2), Config{Algorithm: Ring}, func(g *Group) error {
		return AllReduce(g, make([]float32, 100+8*g.Rank()), Sum)
	})
	for r, err := range errs {
		if !strings.Contains(fmt.Sprint(err), "of 100 float32") || !strings.Contains(err.Error(), "of 108 float32") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// A rank that starts another operation than the others is an error that says
// so, never a wrong result.
// It holds invariant[signed-operations].
func TestOperationsDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := onMeshes(t, mem.New(2), Config{Algorithm: Ring}, func(g *Group) error {
			if g.Rank() == 0 {
				return AllReduce(g, make([]float32, 100), Sum)
			}
			return AllGather(g, make([]float32, 100), make([]float32, 50))
		})
		for r, err := range errs {
			if !strings.Contains(fmt.Sprint(err), "allreduce (sum) of 100 float32") || !strings.Contains(err.Error(), "allgather of 100 float32") {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	})
}

// So are ranks of different algorithms, even where the lengths would match.
func TestAlgorithmsDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		for r, m := range mem.New(2) {
			wg.Go(func() {
				g, err := New(m, Config{Algorithm: []string{Ring, Naive}[r]})
				if err != nil {
					t.Error(err)
					return
				}
				if err := AllReduce(g, []float32{1}, Sum); err == nil {
					t.Errorf("rank %d saw nothing", r)
				}
				_ = g.Close()
				_ = m.Close()
			})
		}
		wg.Wait()
	})
}

// A rank that runs far ahead, with operations that need no answer, sends no
// more than its window while an older operation waits for a slower rank: its
// messages would fill the peer's buffers, and wedge the older operation's.
func TestRunAhead(t *testing.T) {
	const ahead, n, inFlight = 100, 250, 3
	synctest.Test(t, func(t *testing.T) {
		meshes := mem.NewLimited(2, 1<<13)
		errs := onMeshes(t, meshes, Config{Algorithm: Ring, SegmentBytes: 1024, InFlight: inFlight}, func(g *Group) error {
			x := make([]float32, 8)
			if g.Rank() == 1 {
				time.Sleep(time.Second)
				if sent := meshes[0].Traffic().PayloadSent; sent > inFlight*4*n {
					t.Errorf("rank 0 has run ahead by %d bytes", sent)
				}
				if err := AllReduce(g, x, Sum); err != nil {
					return err
				}
			}
			var works []*Work
			if g.Rank() == 0 {
				works = append(works, StartAllReduce(g, x, Sum))
			}
			for range ahead {
				works = append(works, StartBroadcast(g, make([]float32, n), 0))
			}
			var errs []error
			for _, w := range works {
				errs = append(errs, w.Wait())
			}
			return errors.Join(errs...)
		})
		for r, err := range errs {
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	})
}
