package distopt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/watch/trace"
)

// Every bucket's stages are on the timeline, by name, in every step.
func TestTimelineOfSteps(t *testing.T) {
	layers := toy()
	n := total(layers)
	const steps = 3
	for _, c := range []struct {
		cfg                         Config
		compress, exchange, updates int // in a step
	}{
		{Config{Plan: PlanPerLayer}, 0, 7, 7},
		{Config{Plan: PlanPerLayer, ClipNorm: 1}, 0, 7, 1},
		{Config{Strategy: FP16, Plan: PlanPerLayer}, 7, 7, 7},
		{Config{Strategy: DLGS, Plan: PlanPerLayer}, 7, 7, 7},
		{Config{Strategy: TopK}, 1, 1, 1},
		{Config{Strategy: PartialUpdate}, 0, 1, 1},
	} {
		var out bytes.Buffer
		errs := ranks(t, 2, func(g *collective.Group) error {
			rec := g.Recorder()
			line, err := trace.New(rec, trace.Config{Spans: 1000})
			if err != nil {
				return err
			}
			defer line.Close()
			cfg := c.cfg
			grads, sgd := make([]float32, n), testSGD
			o, err := New(g, &sgd, layers, make([]float32, n), grads, nil, cfg)
			if err != nil {
				return err
			}
			defer o.Close()
			for step := range steps {
				rec.BeginStep(int64(step))
				backward(o, grads, step, g.Rank(), 1, []int{0, 1, 2, 3, 4, 5, 6})
				if err := o.Step(); err != nil {
					return err
				}
			}
			return line.Write(g, &out)
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		var file struct {
			Events []struct {
				Ph, Cat, Name string
				Pid           int
				Args          struct{ Algorithm string }
			} `json:"traceEvents"`
		}
		if err := json.Unmarshal(out.Bytes(), &file); err != nil {
			t.Fatal(err)
		}
		counts := map[string]int{}
		for _, e := range file.Events {
			if e.Ph != "X" {
				continue
			}
			counts[fmt.Sprint(e.Cat, " ", e.Pid)]++
			if c.cfg.Strategy != PartialUpdate && e.Cat != "update" && !strings.HasPrefix(e.Name, "bucket ") {
				t.Errorf("%s: a box of %s is called %q", c.cfg.Strategy, e.Cat, e.Name)
			}
			if e.Cat == "exchange" && e.Args.Algorithm == "" {
				t.Errorf("%s: %s does not say how it was exchanged", c.cfg.Strategy, e.Name)
			}
		}
		for pid := 1; pid <= 2; pid++ {
			for cat, want := range map[string]int{"compress": c.compress, "exchange": c.exchange, "update": c.updates} {
				if got := counts[fmt.Sprint(cat, " ", pid)]; got != steps*want {
					t.Errorf("%s %s, process %d: %d boxes of %s in %d steps, want %d in each", c.cfg.Strategy, c.cfg.Plan, pid, got, cat, steps, want)
				}
			}
		}
	}
}

// Anew is what the buckets say, and the first step of reused thresholds has none
// to reuse.
func TestAnew(t *testing.T) {
	layers := toy()
	n := total(layers)
	for _, c := range []struct {
		strategy Strategy
		reuses   bool
	}{{FP32, false}, {LAGS, false}, {DGC, false}, {DLGS, true}} {
		errs := ranks(t, 2, func(g *collective.Group) error {
			cfg := Config{Strategy: c.strategy}
			if c.reuses {
				cfg.Every, cfg.Plan, cfg.Spars = 3, PlanPerLayer, 0.2
			}
			grads, sgd := make([]float32, n), testSGD
			o, err := New(g, &sgd, layers, make([]float32, n), grads, nil, cfg)
			if err != nil {
				return err
			}
			defer o.Close()
			if _, err := o.Profile(1); err != nil {
				return err
			}
			reused := 0
			for step := range 6 {
				backward(o, grads, step, g.Rank(), 1, []int{0, 1, 2, 3, 4, 5, 6})
				if err := o.Step(); err != nil {
					return err
				}
				anew := 0
				for _, b := range o.Buckets(nil) {
					if c.reuses && b.Exact {
						anew += b.Values
					}
				}
				got := o.Times()
				if want := float64(anew) / float64(n); got.Reuses != c.reuses || got.ExactShare != want || c.reuses && step == 0 && want != 1 {
					return fmt.Errorf("%s, step %d: reuses %v, share %v selected anew, the buckets say %v", c.strategy, step, got.Reuses, got.ExactShare, want)
				}
				var sum time.Duration
				for _, b := range o.Buckets(nil) {
					sum += b.Ended.Sub(b.Started)
				}
				if got.Exchange <= 0 || got.Exchange > sum+time.Microsecond {
					return fmt.Errorf("%s, step %d: exchanges were under way for %v, those of buckets for %v, one by one", c.strategy, step, got.Exchange, sum)
				}
				if c.reuses && got.ExactShare < 1 {
					reused++
				}
			}
			if c.reuses && reused == 0 {
				return fmt.Errorf("no threshold was ever reused")
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	}
}
