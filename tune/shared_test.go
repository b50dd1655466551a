package tune

import (
	"errors"
	"fmt"
	"testing"
	"unsafe"

	"github.com/ringo-ml/ringo/bucket"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/transport"
	"github.com/ringo-ml/ringo/transport/mem"
)

// Where ranks share updates they make them whole while the computation is profiled, or the
// update's time would be lost in that of the exchange, and share them again afterwards.
func TestUpdatesAreWholeWhileProfiled(t *testing.T) {
	meshes := mem.NewShared(2, 4<<20)
	errs := make(chan error)
	for _, m := range meshes {
		go func() {
			g, err := collective.New(m, collective.Config{})
			if err == nil {
				err = errors.Join(sharedRank(g, transport.WindowsOf(m)), collective.Barrier(g), g.Close())
			}
			errs <- errors.Join(err, m.Close())
		}()
	}
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Fatal(err)
	}
}

func sharedRank(g *collective.Group, w *transport.Windows) error {
	const n = 40000
	alloc := func() []float32 {
		return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(w.Alloc(4*n)))), n)
	}
	layers := []bucket.Layer{{Name: "a", Len: n / 2}, {Name: "b", Offset: n / 2, Len: n / 2}}
	params, grads := alloc(), alloc()
	cfg := Config{Exchange: distopt.Config{Plan: "exact"}, Measure: true}
	opt, err := distopt.New(g, &optim.SGD{LR: 0.1, Momentum: 0.9}, layers, params, grads, nil, cfg.Base())
	if err != nil {
		return err
	}
	t, err := New(g, opt, layers, grads, cfg)
	if err != nil {
		return err
	}
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
