package collective

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// A duplicate has a sequence of its own: ranks may interleave the two as
// they like. Both count what they send.
func TestDup(t *testing.T) {
	onRanks(t, 3, Config{Algorithm: Ring}, func(g *Group) error {
		b, err := g.Dup()
		if err != nil {
			return err
		}
		defer b.Close()
		x, y := []float32{1, 2, 3}, []float32{10, 20, 30}
		first, second := StartAllReduce(g, x, Sum), func() error { return AllReduce(b, y, Sum) }
		if g.Rank() == 1 { // the other way round
			_ = first.Wait()
			err = second()
		} else {
			err = errors.Join(second(), first.Wait())
		}
		if err := errors.Join(err, same("x", x, []float32{3, 6, 9}), same("y", y, []float32{30, 60, 90})); err != nil {
			return err
		}
		if g.Sent() != 16 || b.Sent() != 16 { // 2(N-1) chunks of a value
			return fmt.Errorf("rank %d: sent %d and %d bytes, want 16 each", g.Rank(), g.Sent(), b.Sent())
		}
		return nil
	})
}

func TestWaitingTellsOfDups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		onRanks(t, 2, Config{}, func(g *Group) error {
			b, err := g.Dup()
			if err != nil {
				return err
			}
			defer b.Close()
			if g.Rank() == 1 {
				time.Sleep(time.Second)
				w, waits := g.Waiting()
				if waits {
					return fmt.Errorf("rank 1 waits: %v", w)
				}
				return Barrier(b)
			}
			done := StartBarrier(b)
			time.Sleep(time.Second / 2)
			if w, waits := g.Waiting(); !waits || w.Op != "barrier" || w.Peer != 1 {
				return fmt.Errorf("waiting: %v %v, want a barrier with rank 1", w, waits)
			}
			return done.Wait()
		})
	})
}

// Fail ends what others wait for, with this rank's reason.
func TestFail(t *testing.T) {
	meshes := mem.New(3)
	errs := onMeshes(t, meshes, Config{}, func(g *Group) error {
		if g.Rank() == 1 {
			return g.Fail(errors.New("a bad disk"))
		}
		return Barrier(g)
	})
	for r, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "a bad disk") {
			t.Errorf("rank %d: %v", r, err)
		}
		if aborted := (*transport.AbortError)(nil); r != 1 && (!errors.As(err, &aborted) || aborted.Rank != 1) {
			t.Errorf("rank %d: %v does not name rank 1", r, err)
		}
	}
}
