package distopt

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/transport"
)

// workersParams are the parameters after some steps of virtual workers, and the state of each
// worker's codec.
func workersParams(g *collective.Group, w *transport.SharedMemory, cfg Config, count int) ([]float32, [][]float32, error) {
	layers := toy()
	n := total(layers)
	params, grads := make([]float32, n), make([]float32, n)
	lo, hi := g.Rank(), g.Rank()+1
	if count > 0 {
		cfg.Workers = &exchange.Workers{Count: count}
		lo, hi = exchange.WorkersOf(count, g.Size(), g.Rank())
	}
	if w != nil {
		cfg.Workers.Alloc = func(n int) []float32 { return bytesview.As[float32](w.Alloc(4 * n)) }
		grads = cfg.Workers.Alloc(n)
	}
	gradient(params, 99, 0, 0)
	o, err := New(g, &optim.SGD{LR: 0.1, Momentum: 0.9}, layers, params, grads, nil, cfg)
	if err != nil {
		return nil, nil, err
	}
	micro := make([]float32, n)
	for step := range 5 {
		if step == 3 && cfg.Strategy != FP32 {
			if err := o.SetSpars(0.3); err != nil {
				return nil, nil, err
			}
		}
		for worker := lo; worker < hi; worker++ {
			clear(grads)
			for k := range max(1, cfg.Accumulation) {
				gradient(micro, step, k, worker)
				for i, v := range micro {
					grads[i] += v
				}
			}
			for l := range layers {
				o.GradReady(l)
			}
		}
		if err := o.Step(); err != nil {
			return nil, nil, err
		}
	}
	states := make([][]float32, hi-lo)
	all := o.State()
	for i, s := range all {
		at := i * len(states) / len(all)
		states[at] = append(states[at], s.Data...)
	}
	return params, states, o.Close()
}

// Steps of virtual workers have the same bits for any number of ranks, in shared memory and by
// messages, and so have the residuals of each worker. For strategies that select, the twin is a job
// with a rank for each worker.
func TestWorkers(t *testing.T) {
	for _, cfg := range []Config{
		{Strategy: FP32}, {Strategy: FP32, ClipNorm: 0.5, Accumulation: 2, BucketBytes: 1 << 12}, {Strategy: TopK}, {Strategy: DGC, Momentum: 0.9, ClipValue: 2},
		{Strategy: DLGS, Every: 2, LayerThresholds: true}, {Strategy: LAGS, Accumulation: 3}, {Strategy: SparseThreshold, Spars: 1.5, ClipNorm: 1},
	} {
		const count = 6
		name := fmt.Sprintf("%s, clip norm %v", cfg.Strategy, cfg.ClipNorm)
		var want []float32
		var states [][]float32
		if cfg.Strategy != FP32 {
			twin := cfg
			twin.SparseAlgorithm, states = exchange.AllGather, make([][]float32, count)
			onRanks(t, count, func(g *collective.Group) error {
				params, own, err := workersParams(g, nil, twin, 0)
				if err == nil {
					states[g.Rank()] = own[0]
				}
				if g.Rank() == 0 {
					want = params
				}
				return err
			})
		}
		for _, size := range []int{1, 4, count} { // 4 ranks have 2, 1, 2 and 1 workers
			check := func(g *collective.Group, w *transport.SharedMemory) error {
				params, own, err := workersParams(g, w, cfg, count)
				if err != nil {
					return err
				}
				if size == 1 && want == nil {
					want = params
				}
				if !slices.Equal(params, want) {
					return fmt.Errorf("%s: the parameters differ on rank %d of %d", name, g.Rank(), size)
				}
				lo, _ := exchange.WorkersOf(count, size, g.Rank())
				for i, s := range own {
					if states != nil && !slices.Equal(s, states[lo+i]) {
						return fmt.Errorf("%s: the state of worker %d differs on rank %d of %d", name, lo+i, g.Rank(), size)
					}
				}
				return nil
			}
			onRanks(t, size, func(g *collective.Group) error { return check(g, nil) })
			if size > 1 {
				onShared(t, size, func(g *collective.Group, w *transport.SharedMemory) (struct{}, error) { return struct{}{}, check(g, w) })
			}
		}
	}
}

// Configurations whose sums would depend on the number of ranks are refused.
func TestWorkersRefused(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Workers: &exchange.Workers{Count: 1}}, "1 virtual workers for 2 ranks"},
		{Config{Workers: &exchange.Workers{Count: 4}, Strategy: Int8}, "strategy int8"},
		{Config{Workers: &exchange.Workers{Count: 4}, Strategy: PartialUpdate}, "strategy partialUpdate"},
		{Config{Workers: &exchange.Workers{Count: 4}, NonFinite: "skip"}, "skipped steps"},
		{Config{Workers: &exchange.Workers{Count: 4}, Strategy: TopK, LimitSum: true}, "a limited sum"},
	} {
		for _, err := range ranks(t, 2, func(g *collective.Group) error {
			_, _, err := workersParams(g, nil, c.cfg, 0)
			return err
		}) {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		}
	}
}
