package collective

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// A rank that dies at any moment is named by all others, whatever they wait for,
// and the groups refuse further work.
func TestDirectLostRank(t *testing.T) {
	for trial := range faultTrials() {
		rng := rand.New(rand.NewPCG(trial, 7))
		size := 2 + rng.IntN(4)
		dead, n, after := rng.IntN(size), 1+rng.IntN(30000)*rng.IntN(2), time.Duration(rng.IntN(3000))*time.Microsecond
		meshes := mem.NewShared(size, testArena)
		errs := onMeshes(t, meshes, Config{}, func(g *Group) error {
			if g.Rank() == dead {
				defer die(meshes, dead)
				for start := time.Now(); time.Since(start) < after; {
					if err := directRound(g, n); err != nil {
						return err
					}
				}
				return nil
			}
			for {
				if err := directRound(g, n); err != nil {
					return named(g, err, dead)
				}
			}
		})
		for r, err := range errs {
			if err != nil {
				t.Errorf("trial %d, %d values: rank %d of %d: %v", trial, n, r, size, err)
			}
		}
	}
}

func faultTrials() uint64 {
	if raceDetector {
		return 8
	}
	return 25
}

// directRound has two operations in flight and one beside them.
func directRound(g *Group, n int) error {
	a := StartAllReduce(g, make([]float32, n), Sum)
	b := StartAllReduce(g, put(g, "arena", make([]float32, n)), Sum)
	err := AllReduce(g, make([]float32, 1), Sum)
	return errors.Join(err, a.Wait(), b.Wait(), AllReduce(g, make([]float32, 1), Sum))
}

// named reports an error that does not name the lost rank, or a group that goes
// on after it.
func named(g *Group, err error, dead int) error {
	var op *OpError
	var lost *transport.LostError
	if !errors.As(err, &op) || !errors.As(err, &lost) || lost.Rank != dead || op.Peer != dead || op.Rank != g.Rank() {
		return fmt.Errorf("rank %d died, the error is %w", dead, err)
	}
	if later := AllReduce(g, make([]float32, 1), Sum); !errors.As(later, &lost) || lost.Rank != dead {
		return fmt.Errorf("after the loss of rank %d: %v", dead, later)
	}
	return nil
}

// An abort ends every wait with its cause.
func TestDirectAbort(t *testing.T) {
	for trial := range faultTrials() {
		rng := rand.New(rand.NewPCG(trial, 8))
		size := 2 + rng.IntN(3)
		after, n := time.Duration(rng.IntN(2000))*time.Microsecond, 1+rng.IntN(30000)*rng.IntN(2)
		meshes := mem.NewShared(size, testArena)
		time.AfterFunc(after, func() { meshes[size-1].Abort(errors.New("out of paper")) })
		for r, err := range onMeshes(t, meshes, Config{}, func(g *Group) error {
			for {
				if err := directRound(g, n); err != nil {
					return err
				}
			}
		}) {
			if !errors.Is(err, transport.ErrAborted) || !strings.Contains(err.Error(), "out of paper") {
				t.Errorf("trial %d: rank %d: %v", trial, r, err)
			}
		}
	}
}

// A rank that does not come is found after the timeout and named; meanwhile
// Waiting says who waits for it, and in what.
func TestDirectTimeout(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 100, 50000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			directTimeout(t, n)
		})
	}
}

func directTimeout(t *testing.T, n int) {
	errs := onMeshes(t, mem.NewShared(3, testArena), Config{Timeout: 5 * time.Second}, func(g *Group) error {
		if err := AllReduce(g, make([]float32, 1), Sum); err != nil {
			return err
		}
		if g.Rank() == 1 {
			return nil
		}
		w := StartAllReduce(g, make([]float32, n), Sum)
		ended := make(chan struct{})
		var err error
		go func() { err = w.Wait(); close(ended) }()
		var seen Wait
		for looking := true; looking; {
			select {
			case <-ended:
				looking = false
			case <-time.After(time.Millisecond):
				if wait, ok := g.Waiting(); ok {
					seen, looking = wait, false
				}
			}
		}
		<-ended
		if seen.Op != "allreduce" || seen.Seq != 1 || seen.Peer != 1 {
			err = errors.Join(fmt.Errorf("%d values: Waiting says %+v", n, seen), err)
		}
		return err
	})
	for _, r := range []int{0, 2} {
		if err := errs[r]; err == nil || !strings.Contains(err.Error(), "timed out after 5s") || asOpError(t, err).Peer == r {
			t.Errorf("%d values: rank %d: %v", n, r, err)
		}
	}
	if errs[1] != nil {
		t.Error(errs[1])
	}
}

// Closing a group ends what is in flight, here and on the others.
func TestDirectClose(t *testing.T) {
	errs := onMeshes(t, mem.NewShared(3, testArena), Config{}, func(g *Group) error {
		if g.Rank() > 0 {
			return AllReduce(g, make([]float32, 5000), Sum)
		}
		w := StartAllReduce(g, make([]float32, 10000), Sum)
		g.Close()
		return w.Wait()
	})
	for r, err := range errs {
		if err == nil {
			t.Errorf("rank %d: no error", r)
		}
	}
}

// An abort ends a row of operations none of whose waits is long.
func TestDirectAbortOfQuick(t *testing.T) {
	meshes := mem.NewShared(2, testArena)
	for r, err := range onMeshes(t, meshes, Config{}, func(g *Group) error {
		if err := AllReduce(g, []float32{1}, Sum); err != nil {
			return err
		}
		if g.Rank() == 0 {
			meshes[0].Abort(errors.New("out of paper"))
		}
		for i := range 100 {
			err := AllReduce(g, []float32{1}, Sum)
			if g.Rank() == 0 && err == nil && i >= lookEvery {
				return fmt.Errorf("%d operations after an abort", i)
			} else if err != nil {
				return err
			}
		}
		return nil
	}) {
		if !errors.Is(err, transport.ErrAborted) || !strings.Contains(err.Error(), "out of paper") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// A group that would find an earlier one's counters is refused: its sums would be
// wrong.
func TestDirectRefusesOldID(t *testing.T) {
	meshes := mem.NewShared(2, testArena)
	use := func(id uint32) (errs []error) {
		for range meshes {
			errs = append(errs, nil)
		}
		onEach(t, meshesLeftOpen(meshes), func(m transport.Mesh) error {
			g, err := New(m, Config{ID: id})
			if err == nil {
				err = errors.Join(AllReduce(g, []float32{1}, Sum), g.Close())
			}
			errs[m.Rank()] = err
			return nil
		})
		return errs
	}
	for r, err := range append(use(3), use(4)...) {
		if err != nil {
			t.Errorf("rank %d: %v", r%2, err)
		}
	}
	for r, err := range use(3) {
		if err == nil || !strings.Contains(err.Error(), "id 3: another group over this mesh has used it") {
			t.Errorf("rank %d used an id again: %v", r, err)
		}
	}
}

// meshesLeftOpen are meshes whose Close does nothing.
func meshesLeftOpen(meshes []transport.Mesh) (out []transport.Mesh) {
	for _, m := range meshes {
		out = append(out, &leftOpen{m, transport.SharedMemoryOf(m)})
	}
	return out
}

type leftOpen struct {
	transport.Mesh
	windows *transport.SharedMemory
}

func (m *leftOpen) SharedMemory() *transport.SharedMemory { return m.windows }
func (m *leftOpen) Close() error                          { return nil }

// A part that nobody takes is an error where it should have been taken, also by a
// rank that expects nothing at all.
func TestDirectAllToAllVOfOneSide(t *testing.T) {
	errs := onMeshes(t, mem.NewShared(2, testArena), Config{}, func(g *Group) error {
		if g.Rank() == 0 {
			return AllToAllV(g, nil, []float32{1, 2, 3}, []int{0, 3}, []int{0, 0})
		}
		return AllToAllV[float32](g, nil, nil, []int{0, 0}, []int{0, 0})
	})
	if err := errs[1]; !errors.Is(err, transport.ErrLength) {
		t.Errorf("rank 1 was sent 12 bytes, expected none: %v", err)
	}
}
