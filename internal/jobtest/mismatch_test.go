package jobtest

import (
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/leakcheck"
)

// Ranks that do not run the same operation are all told so, also where none of
// their messages would ever meet a receive of the other operation.
func TestMismatchOnAllRanks(t *testing.T) {
	f32 := func(n int, op collective.ReduceOp) func(*collective.Group) error {
		return func(g *collective.Group) error { return collective.AllReduce(g, make([]float32, n), op) }
	}
	same := f32(1000, collective.Sum)
	for _, c := range []struct {
		name string
		odd  func(*collective.Group) error
		want string
	}{
		{"length", f32(1001, collective.Sum), "of 1001 float32"},
		{"none", f32(0, collective.Sum), "of 0 float32"},
		{"reduction", f32(1000, collective.Max), "(max)"},
		{"type", func(g *collective.Group) error { return collective.AllReduce(g, make([]int32, 1000), collective.Sum) }, "of 1000 int32"},
		{"operation", collective.Barrier, "barrier"},
		{"root", func(g *collective.Group) error { return collective.Broadcast(g, make([]float32, 1000), 1) }, "broadcast"},
	} {
		for odd := range 3 {
			t.Run(c.name, func(t *testing.T) {
				leakcheck.Check(t)
				cfgs := byHand(t, 3)
				for i := range cfgs {
					cfgs[i].Times.Heartbeat = 100 * time.Millisecond
				}
				errs := runAll(t, cfgs, func(job *ringo.Job) error {
					if err := exchange(job); err != nil {
						return err
					}
					do := same
					if job.Rank() == odd {
						do = c.odd
					}
					if err := do(job.Group()); err != nil {
						return err
					}
					return collective.Barrier(job.Group()) // small messages may all have been sent
				})
				t.Log(errs[odd])
				for _, err := range errs {
					checkText(t, err, c.want, "allreduce (sum) of 1000 float32")
				}
			})
		}
	}
}
