package distopt

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bucket"
)

// With momentum correction what is sent and kept is velocity and old residual, bit for
// bit, also when the plan changes in mid-run.
func TestMomentumIsConserved(t *testing.T) {
	const factor = 0.5
	for _, s := range []Strategy{DGC, DLGS} {
		for _, size := range []int{3, 5} {
			onRanks(t, size, func(g *collective.Group) error {
				w, err := newRig(g, padded(), Config{Strategy: s, Spars: 0.07, Momentum: factor, BucketBytes: 4000})
				if err != nil {
					return err
				}
				u := make([]float32, len(w.grads))
				for step := range 6 {
					if step == 3 {
						if err := w.o.SetPlan("one", bucket.One(w.layers)); err != nil {
							return err
						}
					}
					old := w.residual()
					w.fill()
					for i, v := range w.grads {
						u[i] = float32(factor*u[i]) + v
					}
					w.ready()
					if err := w.o.Step(); err != nil {
						return err
					}
					if err := w.conserved(u, old); err != nil {
						return fmt.Errorf("%s, step %d: %w", s, step, err)
					}
					for b, k := range w.o.Plan() {
						for _, at := range w.o.codec.sparse[b].Index {
							u[k.Lo+int(at)] = 0
						}
					}
				}
				return nil
			})
		}
	}
}

// A step whose exchange fails loses nothing: what was to be sent is kept again. So it is
// of the buckets before one that cannot be compressed.
func TestFailedStepKeeps(t *testing.T) {
	halves, err := compress.NewChain(compress.TopK{Ratio: 0.1}, compress.BF16{})
	if err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]Config{"lags": {Strategy: LAGS, Spars: 0.1}, "dlgs": {Strategy: DLGS, BucketBytes: 4000}, "halves": {Chain: halves, BucketBytes: 4000}} {
		for _, fault := range []string{"exchange", "value"} {
			onRanks(t, 1, func(g *collective.Group) error {
				w, err := newRig(g, padded(), cfg)
				if err != nil {
					return err
				}
				if err := w.train(3); err != nil {
					return err
				}
				old := w.residual()
				w.fill()
				end := len(w.grads)
				if fault == "exchange" {
					w.r.err = errors.New("a peer is lost")
				} else {
					end = w.o.Plan()[1].Lo
					w.grads[end] = float32(math.NaN())
				}
				own := slices.Clone(w.grads)
				w.ready()
				if err := w.o.Step(); err == nil {
					return errors.New("the step did not fail")
				}
				for i, kept := range w.residual()[:end] {
					want := own[i] + old[i]
					if d := math.Abs(float64(kept - want)); d > 0 && (name != "halves" || d > 1e-6) {
						return fmt.Errorf("%s, %s: %v is kept at %d, want %v", name, fault, kept, i, want)
					}
				}
				return nil
			})
		}
	}
}

// countedPool is a Pool that counts what it runs.
type countedPool struct{ runs atomic.Int64 }

func (p *countedPool) Threads() int { return 3 }

func (p *countedPool) Run(parts int, part func(i int)) {
	p.runs.Add(1)
	var wg sync.WaitGroup
	for i := range parts {
		wg.Go(func() { part(i) })
	}
	wg.Wait()
}

// Selections use the pool, and have the same bits without one.
func TestPool(t *testing.T) {
	layers := []bucket.Param{{Name: "large", Len: 3 << 16}}
	var want []float32
	for _, pool := range []*countedPool{nil, {}} {
		cfg := Config{Strategy: DLGS}
		if pool != nil {
			cfg.Pool = pool
		}
		onRanks(t, 1, func(g *collective.Group) error {
			w, err := newRig(g, layers, cfg)
			if err == nil {
				err = w.train(3)
			}
			if err != nil {
				return err
			}
			if pool == nil {
				want = w.params
			} else if !slices.Equal(w.params, want) || pool.runs.Load() == 0 {
				return fmt.Errorf("the pool ran %d times; equal parameters: %v", pool.runs.Load(), slices.Equal(w.params, want))
			}
			return nil
		})
	}
}

// A plan that rank 0 cannot have is an error on all ranks, and none waits.
func TestBadPlanEndsAll(t *testing.T) {
	errs := ranks(t, 3, func(g *collective.Group) error {
		w, err := newRig(g, padded(), Config{})
		if err != nil {
			return err
		}
		if err := w.o.SetPlan("half", bucket.One(w.layers[:3])); err == nil || !strings.Contains(err.Error(), `"half"`) || g.Rank() > 0 && !strings.Contains(err.Error(), "rank 0") {
			return fmt.Errorf("rank %d: a plan of three layers: %w", g.Rank(), err)
		}
		return w.train(1)
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}
