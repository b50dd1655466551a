package jobtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/optim"
)

// whyStep is what the step of a rank that is bad says.
const whyStep = "distopt: step 2: Step was called before the gradient of layer 0 (weight) was ready"

// trainUntil trains until a step fails: the third, on a rank that is bad and on no other. Then it calls failed.
func trainUntil(bad int, failed func(job *ringo.Job)) func(job *ringo.Job) error {
	return func(job *ringo.Job) error {
		params, grads := make([]float32, 64), make([]float32, 64)
		opt, err := distopt.New(job.Group(), &optim.SGD{LR: 1}, []bucket.Param{{Name: "weight", Len: 64}}, params, grads, nil, distopt.Config{Reducer: job.Reducer()})
		if err != nil {
			return err
		}
		for step := 0; err == nil; step++ {
			if step < 2 || job.Rank() != bad {
				opt.GradReady(0)
			}
			err = opt.Step()
		}
		failed(job)
		return errors.Join(err, opt.Close())
	}
}

// A step that fails on one rank alone is what a job of one process ends with, though others, servers that sum among them, hear of it before that
// rank has returned.
func TestLocalStepFails(t *testing.T) {
	leakcheck.Check(t)
	for i := range 50 {
		for n := 2; n <= 4; n++ {
			err := ringo.Local(t.Context(), n, ringo.Config{Servers: i % 2}, trainUntil(1, func(*ringo.Job) {}))
			if err == nil || err.Error() != "rank 1: "+whyStep {
				t.Fatalf("%d ranks and %d servers: %v", n, i%2, err)
			}
		}
	}
}

// Between processes, too, every rank names the one whose step has failed, and says why: where that returns its error, and where it says nothing
// and lingers.
func TestStepFails(t *testing.T) {
	for n := 2; n <= 4; n++ {
		for _, lingers := range []bool{false, true} {
			if lingers && n != 3 { // they wait a moment for its word
				continue
			}
			t.Run(fmt.Sprint(n, " ranks, lingers ", lingers), func(t *testing.T) {
				leakcheck.Check(t)
				const bad = 1
				var others sync.WaitGroup
				others.Add(n - 1)
				out := make(chan []error, 1)
				cfgs := byHand(t, n)
				go func() {
					errs := make([]error, n)
					var all sync.WaitGroup
					for rank, cfg := range cfgs {
						all.Go(func() {
							errs[rank] = ringo.Run(t.Context(), cfg, trainUntil(bad, func(*ringo.Job) {
								if lingers && rank == bad {
									others.Wait()
								}
							}))
							if rank != bad {
								others.Done()
							}
						})
					}
					all.Wait()
					out <- errs
				}()
				errs := await(t, out)
				if !strings.Contains(errs[bad].Error(), whyStep) {
					t.Errorf("rank %d itself: %v", bad, errs[bad])
				}
				checkLost(t, slices.Delete(errs, bad, bad+1), bad, whyStep)
			})
		}
	}
}
