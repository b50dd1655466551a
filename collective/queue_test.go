package collective

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// Works that are started in a row while one worker is idle are all under way, not
// one after the other on the worker that was woken.
func TestQueuedRunTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		onRanks(t, 2, Config{Algorithm: Ring}, func(g *Group) error {
			var x [4][100]float32
			if err := StartAllReduce(g, x[0][:], Sum).Wait(); err != nil {
				return err
			}
			time.Sleep(time.Second) // its worker is idle
			if g.Rank() == 1 {
				time.Sleep(time.Second)
			}
			var works []*Work
			for i := range x {
				works = append(works, StartAllReduce(g, x[i][:], Sum))
			}
			time.Sleep(100 * time.Millisecond)
			var err error
			if g.Rank() == 0 {
				g.mu.Lock()
				for i := range x {
					if s := g.window.at(1 + uint32(i)); s.work == nil {
						err = errors.Join(err, fmt.Errorf("operation %d has not begun", 1+i))
					}
				}
				g.mu.Unlock()
			}
			for _, w := range works {
				err = errors.Join(err, w.Wait())
			}
			return err
		})
	})
}

// Sequence numbers wrap around, however many operations may be in flight.
func TestSequenceWraps(t *testing.T) {
	for _, inFlight := range []int{1, 3, 4, 5} {
		onRanks(t, 2, Config{InFlight: inFlight, Timeout: 5 * time.Second}, func(g *Group) error {
			g.next, g.window.base = 1<<32-5, 1<<32-5
			var works []*Work
			var x [12][1]float32
			for i := range x {
				x[i][0] = float32(i)
				works = append(works, StartAllReduce(g, x[i][:], Sum))
			}
			var err error
			for i, w := range works {
				err = errors.Join(err, w.Wait(), same("sum", x[i][:], []float32{float32(2 * i)}))
			}
			return err
		})
	}
}

// A Receive that waits for long is seen from outside, as other operations are.
func TestWaitingReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		onRanks(t, 2, Config{}, func(g *Group) error {
			x := []float32{1}
			if g.Rank() == 1 {
				time.Sleep(2 * time.Second)
				return Send(g, x, 0)
			}
			w := StartReceive(g, x, 1)
			time.Sleep(time.Second)
			wait, ok := g.Waiting()
			if err := w.Wait(); err != nil {
				return err
			}
			if !ok || wait.Op != "receive" || wait.Peer != 1 || wait.Seq != 0 || time.Since(wait.Since) != 2*time.Second {
				return fmt.Errorf("Waiting says %v, %+v", ok, wait)
			}
			return nil
		})
	})
}

// What arrives to be added begins a cache line, whatever the scratch was made for before.
func TestScratchIsAligned(t *testing.T) {
	w := new(Work)
	for _, c := range [][2]int{{4, 512 << 10}, {3, 512 << 10}, {5, 200}, {32, 4}, {10, 4096}, {7, 1000}} {
		w.arrivalBuffers(c[0], c[1])
		end := uintptr(0)
		for slot := range c[0] {
			p := w.spaceOf(slot, c[0], c[1])
			at := uintptr(unsafe.Pointer(&p[0]))
			if at%cacheLine != 0 || at < end || len(p) != c[1] {
				t.Errorf("%v: place %d is %d bytes at %#x, after %#x", c, slot, len(p), at, end)
			}
			end = at + uintptr(len(p))
		}
	}
}

// Done tells when an operation has ended, at once or after a while, and leaves its end to Wait.
func TestDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		onRanks(t, 2, Config{Algorithm: Ring}, func(g *Group) error {
			if g.Rank() == 1 {
				time.Sleep(time.Second)
			}
			begun, x := time.Now(), []float32{1}
			w := StartAllReduce(g, x, Sum)
			if g.Rank() == 0 && (w.Done(0) || w.Done(-1) || w.Done(300*time.Millisecond) || time.Since(begun) != 300*time.Millisecond) {
				return fmt.Errorf("done after %v, before rank 1 has started it", time.Since(begun))
			}
			if !w.Done(time.Hour) || !w.Done(0) || time.Since(begun) > time.Second {
				return fmt.Errorf("not done after %v", time.Since(begun))
			}
			if err := errors.Join(w.Wait(), same("sum", x, []float32{2})); err != nil {
				return err
			}
			refused := StartAllReduce(g, x, ReduceOp(99))
			if !refused.Done(0) || refused.Wait() == nil {
				return errors.New("a reduction that is none goes on, or ends well")
			}
			return nil
		})
	})
}
