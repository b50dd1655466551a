package distopt

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/transport"
)

// frameBytes is what each rank tells all others before entries are exchanged.
const frameBytes = 24

// predicted is how many bytes all ranks together send in the step that w has done,
// by what each contributed: of dense strategies with two ranks, where a byte of a
// bucket crosses twice; of others, gathered by all, for any number.
func (w *rig) predicted(size int) (own int64) {
	for b, k := range w.o.Plan() {
		switch s := w.o.codec.entries(b); {
		case s != nil:
			payload, err := w.o.codec.local.Encode(nil, s)
			if err != nil {
				return -1
			}
			own += int64(size-1) * int64(frameBytes+len(payload))
		case w.o.codec.code != nil:
			own += int64(w.o.codec.code.Size(k.Len()))
		default:
			own += int64(4 * k.Len())
		}
	}
	if w.o.Strategy() == PartialUpdate {
		own = int64(4 * len(w.o.partial.X))
	}
	return own
}

// The bytes that leave the mesh are those that Times tells, and those that the
// strategy predicts.
func TestBytesOnTheWire(t *testing.T) {
	for _, s := range Strategies() {
		info, _ := Lookup(s)
		for _, size := range []int{1, 2, 3, 5} {
			cfg := Config{Strategy: s}
			if info.Selects() {
				cfg.SparseAlgorithm = exchange.AllGather
			} else if size > 2 {
				continue // the formulas are those of collective, and tested there
			}
			if info.Plan == "" {
				cfg.BucketBytes = 4000
			}
			var told, want, left atomic.Int64
			fn := func(m transport.Mesh) func(g *collective.Group) error {
				return func(g *collective.Group) error {
					layers := padded()
					w := &rig{layers: layers, params: make([]float32, total(layers)), grads: make([]float32, total(layers)), rank: g.Rank()}
					sgd := optim.SGD{LR: 0.1}
					var err error
					if w.o, err = New(g, &sgd, layers, w.params, w.grads, nil, cfg); err != nil {
						return err
					}
					for range 4 {
						before := m.Traffic().PayloadSent
						if err := w.train(1); err != nil {
							return err
						}
						left.Add(m.Traffic().PayloadSent - before)
						told.Add(w.o.Times().BytesSent)
						if size > 1 {
							want.Add(w.predicted(size))
						}
					}
					return w.o.Close()
				}
			}
			errs, done := make([]error, size), make(chan struct{})
			for _, m := range mem.New(size) {
				go func() {
					defer func() { done <- struct{}{} }()
					errs[m.Rank()] = onMesh(m, fn(m))
				}()
			}
			for range size {
				<-done
			}
			for rank, err := range errs {
				if err != nil {
					t.Errorf("%s, rank %d: %v", s, rank, err)
				}
			}
			if told.Load() != left.Load() || told.Load() != want.Load() {
				t.Errorf("%s, %d ranks: %d bytes left, Times tells %d, the strategy predicts %d", s, size, left.Load(), told.Load(), want.Load())
			}
		}
	}
}

// The parts of a step's time do not overlap and leave nothing of Step out, and a
// profile has the times of backward without those of the codec.
func TestTimes(t *testing.T) {
	onRanks(t, 2, func(g *collective.Group) error {
		w, err := newRig(g, padded(), Config{Strategy: DLGS, BucketBytes: 4000})
		if err != nil {
			return err
		}
		profiler, err := w.o.Profile(3)
		if err != nil {
			return err
		}
		for range 4 {
			w.o.BeginForward()
			w.fill()
			w.o.BeginBackward()
			w.ready()
			start := time.Now()
			if err := w.o.Step(); err != nil {
				return err
			}
			all, x := time.Since(start), w.o.Times()
			if x.Compress <= 0 || x.Exposed < 0 || x.Update < 0 || x.Exposed+x.Update > all || x.Exposed != w.o.Exposed() {
				return fmt.Errorf("%+v in a Step of %v", x, all)
			}
			compressed := time.Duration(0)
			for b, k := range w.o.Buckets(nil) {
				compressed += k.Compress
				if k.Values != w.o.Plan()[b].Len() || k.Ended.Before(k.Started) || k.Sent.Entries != w.o.codec.sparse[b].Count() || k.Exact != (w.step == 1) {
					return fmt.Errorf("step %d, bucket %d: %+v", w.step, b, k)
				}
			}
			if compressed != x.Compress {
				return fmt.Errorf("buckets took %v to compress, the step %v", compressed, x.Compress)
			}
		}
		forward, backward, err := profiler.Medians()
		if err != nil || forward <= 0 || len(backward) != len(w.layers) || profiler.Steps() != 3 {
			return fmt.Errorf("profile of %d steps: forward %v, backward %v, %v", profiler.Steps(), forward, backward, err)
		}
		w.o.EndProfile()
		if err := w.train(1); err != nil || len(w.o.Buckets(nil)) != 0 || profiler.Steps() != 3 {
			return fmt.Errorf("after the end: %d buckets, %d steps, %v", len(w.o.Buckets(nil)), profiler.Steps(), err)
		}
		return nil
	})
}

// The least magnitude of sparseThreshold is one of the mean over the backwards of a step, whose sum the gradient is.
func TestThresholdIsOfTheMean(t *testing.T) {
	onRanks(t, 1, func(g *collective.Group) error {
		layers := padded()
		w := &rig{layers: layers, params: make([]float32, total(layers)), grads: make([]float32, total(layers))}
		sgd := optim.SGD{LR: 1}
		var err error
		if w.o, err = New(g, &sgd, layers, w.params, w.grads, nil, Config{Strategy: SparseThreshold, Spars: 0.5, Accumulation: 2}); err != nil {
			return err
		}
		w.grads[0], w.grads[1] = 0.8, 1.25 // means of 0.4 and 0.625
		w.ready()
		if err := w.o.Step(); err != nil {
			return err
		}
		if w.params[0] != 0 || w.params[1] != -0.625 {
			return fmt.Errorf("parameters %v and %v, want 0 and -0.625", w.params[0], w.params[1])
		}
		return w.o.Close()
	})
}
