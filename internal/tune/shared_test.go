package tune

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/transport"
)

// Ranks with shared updates make whole updates during profiling, to separate the update's time from
// the exchange's, and share updates again afterwards.
func TestUpdatesAreWholeWhileProfiled(t *testing.T) {
	onShared(t, sharedRank)
}

func onShared(t *testing.T, body func(g *collective.Group, w *transport.SharedMemory) error) {
	t.Helper()
	meshes := mem.NewShared(2, 4<<20)
	errs := make(chan error)
	for _, m := range meshes {
		go func() {
			g, err := collective.New(m, collective.Config{})
			if err == nil {
				err = errors.Join(body(g, transport.SharedMemoryOf(m)), collective.Barrier(g), g.Close())
			}
			errs <- errors.Join(err, m.Close())
		}()
	}
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Fatal(err)
	}
}

// inShared makes a rank's tuner of two layers in shared memory.
func inShared(g *collective.Group, w *transport.SharedMemory, cfg Config) (t *Tuner, params []float32, err error) {
	const n = 40000
	alloc := func() []float32 {
		return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(w.Alloc(4*n)))), n)
	}
	layers := []bucket.Param{{Name: "a", Len: n / 2}, {Name: "b", Offset: n / 2, Len: n / 2}}
	params, grads := alloc(), alloc()
	opt, err := distopt.New(g, &optim.SGD{LR: 0.1, Momentum: 0.9}, layers, params, grads, nil, cfg.Base())
	if err != nil {
		return nil, nil, err
	}
	t, err = New(g, opt, layers, grads, cfg)
	return t, params, err
}

// Ranks that measure make whole updates at first; ranks with given choices share updates from the
// beginning, with the same bits.
func TestChoicesReplayInSharedMemory(t *testing.T) {
	for _, cfg := range []Config{
		{Exchange: distopt.Config{Plan: "exact"}, Measure: true},
		{Exchange: distopt.Config{Plan: "exact", ClipNorm: 2}, Measure: true},
	} {
		var made [2]Choices
		train := func(cfg Config, params *[2][]float32) {
			onShared(t, func(g *collective.Group, w *transport.SharedMemory) error {
				t, x, err := inShared(g, w, cfg)
				if err != nil {
					return err
				}
				for step := range 30 {
					opt := t.opt.(*distopt.Optimizer)
					for i := range t.grads {
						t.grads[i] = float32((i*7919+step*104729+g.Rank())%1009-500) / 1009
					}
					for l := range t.layers {
						opt.GradReady(l)
					}
					if err := t.Step(); err != nil {
						return err
					}
				}
				params[g.Rank()], made[g.Rank()] = slices.Clone(x), t.State().Made
				return errors.Join(t.Stay(), t.opt.(*distopt.Optimizer).Close())
			})
		}
		var first, again [2][]float32
		train(cfg, &first)
		cfg.Measure, cfg.Choices = false, made[0]
		if train(cfg, &again); len(made[0]) == 0 || !slices.Equal(again[0], first[0]) || !slices.Equal(again[1], first[0]) {
			t.Errorf("%+v: other bits by %s", cfg.Exchange, made[0])
		}
	}
}

func sharedRank(g *collective.Group, w *transport.SharedMemory) error {
	t, _, err := inShared(g, w, Config{Exchange: distopt.Config{Plan: "exact"}, Measure: true})
	if err != nil {
		return err
	}
	opt, layers := t.opt.(*distopt.Optimizer), t.layers
	if len(t.candidates) != 1 || !t.candidates[0].Shared {
		return fmt.Errorf("candidates %+v: want fp32 with shared updates", t.candidates)
	}
	for step := range settleSteps + measureSteps + settleSteps + measureSteps + 1 {
		if want := step >= settleSteps+measureSteps; opt.Sharded() != want {
			return fmt.Errorf("step %d, phase %d: sharded is %v", step, t.phase, opt.Sharded())
		}
		for l := range layers {
			opt.GradReady(l)
		}
		if err := t.Step(); err != nil {
			return err
		}
	}
	if t.Measuring() {
		return errors.New("it still measures")
	}
	return errors.Join(t.Stay(), opt.Close())
}

// A shared update takes a rank its part of the time.
func TestPredictShared(t *testing.T) {
	f := *testProfile(t).Planner
	one, err := bucket.LookupPlanner("one")
	if err != nil {
		t.Fatal(err)
	}
	c := Candidate{Name: "fp32", Planner: one}
	whole, err := Predict(f, c, 2, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	c.Shared = true
	if part, err := Predict(f, c, 2, 1, 0); err != nil || !close1(whole.Step-part.Step, f.Update/2, 1e-9) {
		t.Errorf("%v and %v of an update of %v, %v", whole.Step, part.Step, f.Update, err)
	}
}
