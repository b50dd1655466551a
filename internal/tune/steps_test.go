package tune

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/distopt"
)

// Casts by the reducer on the computation's path are predicted as compression, and casts back as
// time after an exchange.
func TestMeasuredCasts(t *testing.T) {
	link := func() *channel {
		return &channel{short: 3 * time.Millisecond, long: 3 * time.Millisecond, perByte: 100, cast: 100 * time.Nanosecond}
	}
	out := small(link, Config{Exchange: distopt.Config{Strategy: distopt.FP16, Plan: "exact"}, Measure: true}).run(t, 30)
	if len(out.reports) != 2 {
		t.Fatalf("%+v", out.reports)
	}
	p := out.reports[0].Chosen
	if m := out.reports[1].Measured; !close1(m.Step, p.Step, 0.01) || !close1(p.Compress, 2e-3, 0.02) {
		t.Errorf("predicted %+v, measured %+v", p, m)
	}
	if c := out.profile.Codecs[0]; !close1(c.After.At(10000), 1e-3, 0.02) || out.profile.Update > 1e-4 {
		t.Errorf("casts are measured as %+v, the update as %v s", c, out.profile.Update)
	}
}

// A run that ends early reports its progress.
func TestEnd(t *testing.T) {
	for _, c := range []struct {
		steps    int
		reports  int
		measured int // steps
		why      string
	}{
		{5, 1, 0, "the run ended before its steps were measured: nothing was chosen"},
		{12, 1, 0, "dlgs is predicted to be "},
		{13, 2, 1, "the run ended early; no step selected by a threshold found before, and the figure is of the others alone"},
		{14, 2, 2, "the run ended early"},
		{18, 2, 3, "the run ended early"},
		{31, 2, 16, ""},
	} {
		j := small(slow, auto(0.01))
		j.ends, j.varied = true, true
		out := j.run(t, c.steps)
		if len(out.reports) != c.reports {
			t.Errorf("%d steps: %+v", c.steps, out.reports)
			continue
		}
		last := out.reports[len(out.reports)-1]
		if last.Reason != c.why && !(last.Measured == nil && strings.HasPrefix(last.Reason, c.why)) || (last.Measured != nil) != (c.measured > 0) || last.Measured != nil && last.Measured.Steps != c.measured {
			t.Errorf("%d steps: %q, %+v", c.steps, last.Reason, last.Measured)
		}
	}
}

// At least one exact step is measured, however rare.
func TestMeasuredRareExact(t *testing.T) {
	cfg := auto(0.01)
	cfg.Exchange.Every = 1000
	j := small(slow, cfg)
	j.varied = true
	out := j.run(t, 85)
	if len(out.reports) != 2 || out.reports[1].Measured.Exact <= 0 || out.reports[1].Measured.Reuse <= 0 || out.reports[1].Measured.Steps != watchSteps || out.reports[1].Reason != "" {
		t.Errorf("%+v", out.reports)
	}
}

// Costs through servers do not serve a job without servers, nor the reverse; with servers even one
// rank has measurements.
func TestServers(t *testing.T) {
	served := func() *channel { c := slow(); c.servers = 2; return c }
	cfg := Config{Exchange: distopt.Config{Plan: "exact"}, Measure: true}
	out := small(served, cfg).run(t, 30)
	if len(out.profile.Links) == 0 || out.profile.Links[0].Servers != 2 {
		t.Fatalf("%+v", out.profile)
	}
	alone := small(served, auto(0.01))
	alone.ranks = 1
	if out := alone.run(t, 40); out.opt.Strategy() != distopt.DLGS {
		t.Errorf("one rank with servers goes on with %s: %+v", out.opt.Strategy(), out.reports)
	}
	for _, plan := range []string{"exact", SavedPlan} {
		j := small(slow, Config{Exchange: distopt.Config{Plan: plan}, Profile: &out.profile})
		onRanks(t, 2, func(g *collective.Group) error {
			if err := j.rank(g, 0, new(outcome)); err == nil || !strings.Contains(err.Error(), "on 1 hosts without servers: it is of a job that has some") {
				return fmt.Errorf("plan %s by a profile of servers: %v", plan, err)
			}
			return nil
		})
	}
	cfg = Config{Exchange: distopt.Config{Plan: SavedPlan}, Profile: &out.profile}
	if again := small(served, cfg).run(t, 1); !reflect.DeepEqual(again.opt.Plan(), out.opt.Plan()) {
		t.Errorf("by the profile %v, measured %v", again.opt.Plan(), out.opt.Plan())
	}
}

// If tables' rows travel after the dense gradients, the dense update is no communication.
func TestStepTimes(t *testing.T) {
	var s stepTimes
	s.add(30*time.Millisecond, distopt.StepTimes{Compress: time.Millisecond, Exposed: 9 * time.Millisecond, Dense: 2 * time.Millisecond, Rows: 4 * time.Millisecond, Update: 5 * time.Millisecond})
	if got := []float64{s.compute[0], s.exposed[0], s.update[0], s.rows[0]}; !close1(got[0], 15e-3, 1e-9) || !close1(got[1], 9e-3, 1e-9) || !close1(got[2], 8e-3, 1e-9) || !close1(got[3], 4e-3, 1e-9) {
		t.Errorf("compute, exposed, update, rows: %v", got)
	}
	if s.reset(); len(s.rows)+len(s.total)+len(s.exactShare) != 0 {
		t.Errorf("after reset: %+v", s)
	}
}
