package distopt

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/transport"
)

// alone is a step that fails on one rank and on no other.
type alone struct {
	what string
	cfg  Config
	bad  func(o *Optimizer, grads []float32, ready func())
	why  string
}

var aloneFaults = []alone{
	{"an unknown layer", Config{}, func(o *Optimizer, _ []float32, _ func()) {
		o.GradReady(0)
		o.GradReady(99)
	}, "layer 99 is ready"},
	{"no gradient", Config{Plan: PlanPerLayer}, func(o *Optimizer, _ []float32, _ func()) { o.GradReady(0) }, "before the gradient of layer 1 (layer1) was ready"},
	{"what cannot be coded", Config{Strategy: DLGS, Plan: PlanPerLayer}, func(_ *Optimizer, grads []float32, ready func()) {
		grads[toy()[2].Offset] = float32(math.NaN())
		ready()
	}, `the gradient of parameter "layer2" is NaN`},
	{"a gradient that is not finite", Config{Strategy: PartialUpdate}, func(o *Optimizer, grads []float32, ready func()) {
		grads[toy()[1].Offset+1] = float32(math.NaN())
		ready()
		o.RowsReady(0, nil, nil)
	}, "the gradient of layer layer1 is NaN"},
	{"what has no norm", Config{Strategy: PartialUpdate, ClipNorm: 1}, func(o *Optimizer, grads []float32, ready func()) {
		grads[0] = float32(math.Inf(1))
		ready()
		o.RowsReady(0, nil, nil)
	}, "the norm of the gradient is +Inf, first in layer layer0"},
	{"rows of another shape", Config{}, func(o *Optimizer, _ []float32, ready func()) {
		ready()
		o.RowsReady(0, []int32{1}, make([]float32, 3))
	}, "table rows: 3 values for 1 rows of 2"},
}

// A step that fails on one rank alone ends those of the others, before that rank says anything but what its Step has returned: they name it
// and say why. So it is where they share memory, and updates.
func TestFaultOfOneRank(t *testing.T) {
	for _, c := range aloneFaults {
		for size := 2; size <= 4; size++ {
			t.Run(fmt.Sprint(c.what, " of ", size), func(t *testing.T) {
				leakcheck.Check(t)
				for _, meshes := range [][]transport.Mesh{mem.New(size), mem.NewShared(size, 4<<20)} {
					var all, others sync.WaitGroup
					others.Add(size - 1)
					for rank, m := range meshes {
						all.Go(func() {
							err := onMesh(m, func(g *collective.Group) error {
								defer g.Close()
								err := c.train(g, transport.SharedMemoryOf(m))
								if rank == badRank {
									others.Wait()
								} else {
									others.Done()
								}
								return err
							})
							var by *transport.AbortError
							var at *Error
							if !errors.As(err, &at) || at.Step != 2 || rank != badRank && (!errors.As(err, &by) || by.Rank != badRank) || !strings.Contains(err.Error(), c.why) {
								t.Errorf("rank %d: %v, want step 2, rank %d and %q", rank, err, badRank, c.why)
							}
						})
					}
					all.Wait()
				}
			})
		}
	}
}

const badRank = 1

// train trains until a step fails: the third, on badRank.
func (c *alone) train(g *collective.Group, w *transport.SharedMemory) error {
	layers := toy()
	params, grads := make([]float32, total(layers)), make([]float32, total(layers))
	if w != nil {
		params, grads = inArena(w, params), inArena(w, grads)
	}
	o, err := New(g, &optim.SGD{LR: 0.1}, layers, params, grads, []Table{{Name: "rows", Rows: 9, Dim: 2, Data: make([]float32, 18)}}, c.cfg)
	if err != nil {
		return err
	}
	if share := w != nil && c.cfg.Strategy == ""; o.Sharded() != share {
		return fmt.Errorf("updates are shared: %t, want %t", o.Sharded(), share)
	}
	ready := func() {
		for l := range layers {
			o.GradReady(l)
		}
	}
	for step := 0; err == nil; step++ {
		if step == 2 && g.Rank() == badRank {
			c.bad(o, grads, ready)
		} else {
			ready()
			o.RowsReady(0, []int32{int32(g.Rank())}, []float32{1, 2})
		}
		err = o.Step()
	}
	return errors.Join(err, o.Close())
}

// What all ranks fail with alike breaks no group: they may go on together.
func TestFaultOfAllRanks(t *testing.T) {
	onRanks(t, 3, func(g *collective.Group) error {
		for range 2 {
			n := total(toy())
			grads := make([]float32, n)
			o, err := New(g, &optim.SGD{LR: 0.1}, toy(), make([]float32, n), grads, nil, Config{ClipNorm: 1})
			if err != nil {
				return err
			}
			grads[0] = float32(math.NaN())
			for l := range toy() {
				o.GradReady(l)
			}
			if err := o.Step(); err == nil || !strings.Contains(err.Error(), "the norm of the gradient is NaN") {
				return fmt.Errorf("got %v", err)
			}
			if err := o.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}
