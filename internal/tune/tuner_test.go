package tune

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/transport"
)

// job is a training job with known times of computation and links.
type job struct {
	ranks    int
	values   []int // per layer
	backward []time.Duration
	forward  time.Duration
	link     func() *channel
	cfg      Config
	resumed  *State         // argument of Resumed; nil: no call
	setup    *distopt.Setup // restored at first, unless nil
	stay     bool           // after the measurement
	spars    func(step int) float64
	between  func(step int) time.Duration // an evaluation's time, ahead of the step
	ends     bool                         // whether to call End
	varied   bool                         // varied gradients with few large values: thresholds can be reused
	from     []saved                      // by rank, the state to resume from; nil: a new run
	unsaved  error                        // Save's error on rank 0
	// change is called ahead of each step, on every rank.
	change func(step int, backward []time.Duration, c *channel)
}

// outcome is a rank's results.
type outcome struct {
	reports []Report
	opt     *distopt.Optimizer
	profile bucket.Profile
	known   bool
	chosen  bool
	saved   []saved // by rank, at the end
}

type saved struct {
	setup  distopt.Setup
	tuned  State
	steps  int64
	params []float32
	state  [][]float32
}

// small has layers with 12 ms of backward and 80 kB of gradients.
func small(link func() *channel, cfg Config) job {
	return job{
		ranks: 2, values: []int{64, 4096, 15360, 480}, forward: 4 * time.Millisecond,
		backward: []time.Duration{time.Millisecond, 5 * time.Millisecond, 4 * time.Millisecond, 2 * time.Millisecond},
		link:     link, cfg: cfg,
	}
}

// run trains for a number of steps in a bubble, returns rank 0's outcome, and checks that all ranks
// have equal strategies and plans.
func (j job) run(t *testing.T, steps int) (out outcome) {
	t.Helper()
	outs := make([]outcome, j.ranks)
	for i := range outs {
		outs[i].saved = make([]saved, j.ranks)
	}
	synctest.Test(t, func(t *testing.T) {
		onRanks(t, j.ranks, func(g *collective.Group) error {
			return j.rank(g, steps, &outs[g.Rank()])
		})
	})
	for r, o := range outs {
		if o.opt.Strategy() != outs[0].opt.Strategy() || !reflect.DeepEqual(o.opt.Plan(), outs[0].opt.Plan()) || len(o.reports) != len(outs[0].reports) {
			t.Errorf("rank %d goes on with %s in %v after %d reports, rank 0 with %s in %v after %d", r, o.opt.Strategy(), o.opt.Plan(), len(o.reports),
				outs[0].opt.Strategy(), outs[0].opt.Plan(), len(outs[0].reports))
		}
	}
	for r, o := range outs {
		outs[0].saved[r] = o.saved[r]
	}
	return outs[0]
}

func (j job) rank(g *collective.Group, steps int, out *outcome) error {
	var layers []bucket.Param
	at := 0
	for i, n := range j.values {
		layers = append(layers, bucket.Param{Name: fmt.Sprint("layer", i), Offset: at, Len: n})
		at += n
	}
	params, grads := make([]float32, at), make([]float32, at)
	c := j.link()
	cfg := j.cfg
	cfg.Report = func(r Report) { out.reports = append(out.reports, r) }
	cfg.Save = func(f bucket.Profile) error {
		if out.profile, out.known = f, true; g.Rank() == 0 && j.unsaved != nil {
			return j.unsaved
		}
		return f.Validate()
	}
	cfg.Model, cfg.Batch = "job", 3
	base := cfg.Base()
	base.Reducer = c
	opt, err := distopt.New(g, &optim.SGD{LR: 0.1}, layers, params, grads, nil, base)
	if err != nil {
		return err
	}
	t, err := New(g, opt, layers, grads, cfg)
	if err != nil {
		return err
	}
	out.opt = opt
	if j.setup != nil {
		if err := opt.Restore(*j.setup); err != nil {
			return err
		}
	}
	if j.resumed != nil {
		if err := t.Resumed(*j.resumed); err != nil {
			return err
		}
	}
	if j.from != nil {
		if err := j.from[g.Rank()].restore(opt, t, params); err != nil {
			return err
		}
	}
	backward := append([]time.Duration(nil), j.backward...)
	for step := int(opt.Steps()); step < steps; step++ {
		if j.change != nil {
			j.change(step, backward, c)
		}
		if j.spars != nil {
			if err := opt.SetSpars(j.spars(step)); err != nil {
				return err
			}
		}
		if j.between != nil {
			if d := j.between(step); d > 0 {
				time.Sleep(d)
				t.Begin()
			}
		}
		time.Sleep(j.forward)
		opt.BeginBackward()
		for i, l := range layers {
			time.Sleep(backward[i])
			for k := range l.Len {
				grads[l.Offset+k] = float32((l.Offset+k)*7919%1000+1) * 1e-3
				if j.varied {
					h := ((l.Offset+k)*7919 + step*104729) % 1009
					grads[l.Offset+k] = float32(1-2*(h&1)) / float32(1+h)
				}
			}
			opt.GradReady(i)
		}
		if err := t.Step(); err != nil {
			return err
		}
		if j.stay && !t.Measuring() {
			if err := t.Stay(); err != nil {
				return err
			}
		}
	}
	if j.ends {
		if err := t.End(); err != nil {
			return err
		}
	} else if f, ok := t.Profile(); !j.stay && ok != out.known || ok && !reflect.DeepEqual(f, out.profile) {
		return fmt.Errorf("the profile is %+v, %+v was saved", f, out.profile)
	}
	out.chosen = t.State().Chosen
	if len(out.saved) > 0 {
		out.saved[g.Rank()] = save(opt, t, params)
	}
	return nil
}

func save(opt *distopt.Optimizer, t *Tuner, params []float32) saved {
	s := saved{setup: opt.Setup(), tuned: t.State(), steps: opt.Steps(), params: slices.Clone(params)}
	for _, st := range opt.State() {
		s.state = append(s.state, slices.Clone(st.Data))
	}
	return s
}

func (s saved) restore(opt *distopt.Optimizer, t *Tuner, params []float32) error {
	err := errors.Join(opt.Restore(s.setup), opt.SetSteps(s.steps))
	copy(params, s.params)
	for i, st := range opt.State() {
		copy(st.Data, s.state[i])
	}
	return errors.Join(err, t.Resumed(s.tuned))
}

func auto(spars float64) Config {
	return Config{Exchange: distopt.Config{Strategy: Auto, Spars: spars, Every: 4}}
}

// fast takes 10 us and 1 ns per byte, slow 1 ms and 1 us per byte.
func fast() *channel {
	return &channel{short: 10 * time.Microsecond, long: 10 * time.Microsecond, perByte: 1, perEntry: 6}
}
func slow() *channel {
	return &channel{short: time.Millisecond, long: time.Millisecond, perByte: time.Microsecond, perEntry: 6}
}

// Auto keeps uncompressed gradients on fast links, compresses on slow links, and steps then take
// the predicted time.
func TestAuto(t *testing.T) {
	for name, c := range map[string]struct {
		link func() *channel
		want distopt.Strategy
		why  string
	}{
		"fast": {fast, distopt.FP32, "compression does not pay here: fp32 is predicted to take "},
		"slow": {slow, distopt.DLGS, "dlgs is predicted to be "},
	} {
		out := small(c.link, auto(0.01)).run(t, 40)
		if len(out.reports) != 2 {
			t.Fatalf("%s: %d reports: %+v", name, len(out.reports), out.reports)
		}
		choice, after := out.reports[0], out.reports[1]
		if out.opt.Strategy() != c.want || choice.Chosen.Strategy != string(c.want) || len(choice.All) != 5 || !strings.HasPrefix(choice.Reason, c.why) {
			t.Errorf("%s: chose %s: %+v", name, out.opt.Strategy(), choice)
		}
		if choice.Measured != nil || after.Measured == nil || after.Measured.Steps < 9 || choice.SHA256 != out.opt.Plan().SHA256() || choice.Groups != len(out.opt.Plan()) {
			t.Errorf("%s: %+v, then %+v", name, choice, after)
		}
		if m := after.Measured; !close1(m.Step, choice.Chosen.Step, 0.03) {
			t.Errorf("%s: predicted %v s, measured %v", name, choice.Chosen.Step, m.Step)
		}
		for _, p := range choice.All {
			if p.Step < 0.016 || p.Strategy == "topk" && len(p.Plan) != 1 {
				t.Errorf("%s: %+v", name, p)
			}
		}
		if !out.chosen || !out.known || out.profile.Plan.Strategy != string(c.want) || out.profile.Ranks != 2 || out.profile.Batch != 3 || !close1(out.profile.Forward, 0.004, 0.01) || !close1(out.profile.Layers[1].Backward, 0.005, 0.01) {
			t.Errorf("%s: chosen %v, profile %+v", name, out.chosen, out.profile)
		}
	}
}

// Auto weighs dlgs under the requested rule, reports the rule, and keeps separate costs per rule.
func TestAutoUnderThePapersRule(t *testing.T) {
	for rule, codec := range map[compress.Rule]string{"": "dlgs", compress.RulePaper: "dlgs-paper"} {
		cfg := auto(0.01)
		cfg.Exchange.Rule = rule
		out := small(slow, cfg).run(t, 40)
		if rule == "" {
			rule = compress.RuleCorrected
		}
		if want := fmt.Sprintf("dlgs(0.01, every 4, %s) > fp32", rule); out.opt.Codec() != want {
			t.Errorf("%s: chose %s (%s), want %s", rule, out.opt.Strategy(), out.opt.Codec(), want)
		}
		for _, p := range out.reports[0].All {
			if (p.Rule == rule) != (p.Strategy == "dlgs") {
				t.Errorf("%s: %s is told with rule %q", rule, p.Strategy, p.Rule)
			}
		}
		if chosen := out.reports[0].Chosen; chosen.Rule != rule {
			t.Errorf("%s: the choice is told with rule %q", rule, chosen.Rule)
		}
		if _, ok := out.profile.Codec(codec, 0.01); !ok {
			t.Errorf("%s: no cost of %s among %+v", rule, codec, out.profile.Codecs)
		}
		other := Candidate{Name: "dlgs", Density: 0.01, Every: 4, Chain: chainOf(t, compress.DLGS{Ratio: 0.01, Rule: compress.RulePaper})}
		if rule == compress.RulePaper {
			other.Chain = chainOf(t, compress.DLGS{Ratio: 0.01})
		}
		if _, err := Predict(out.profile, other, 2, 1, 0); err == nil || !strings.Contains(err.Error(), "no cost of codec "+other.codec()+" at density") {
			t.Errorf("%s: the other rule by its costs: %v", rule, err)
		}
	}
	bad := auto(0.01)
	bad.Exchange.Rule = "printed"
	if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), `rule "printed" is not known`) {
		t.Errorf("a rule that is none: %v", err)
	}
}

// One rank measures nothing and makes no choice that more ranks could keep.
func TestAutoAlone(t *testing.T) {
	j := small(fast, auto(0.01))
	j.ranks = 1
	out := j.run(t, 30)
	if len(out.reports) != 1 || out.opt.Strategy() != distopt.FP32 || !strings.Contains(out.reports[0].Reason, "one rank: there is nothing to exchange") || out.chosen || out.known {
		t.Errorf("%s: %+v", out.opt.Strategy(), out.reports)
	}
}

// A measured plan is the planner's plan of the true times, predicts the steps, and is reproduced
// from the profile without measuring.
func TestMeasuredPlan(t *testing.T) {
	cfg := Config{Exchange: distopt.Config{Plan: "exact"}, Measure: true}
	link := func() *channel {
		return &channel{short: 3 * time.Millisecond, long: 3 * time.Millisecond, perByte: 100}
	}
	out := small(link, cfg).run(t, 30)
	step := bucket.Step{
		Layers: []bucket.Param{{Len: 64}, {Offset: 64, Len: 4096}, {Offset: 4160, Len: 15360}, {Offset: 19520, Len: 480}}, Forward: 4e-3, Backward: []float64{1e-3, 5e-3, 4e-3, 2e-3},
		Costs: bucket.Costs{Sends: []bucket.Send{{Payload: bucket.Payload{Unit: 4}, Fixed: 3e-3, PerByte: 1e-7}}},
	}
	want := bucket.Exact(step)
	if !reflect.DeepEqual(out.opt.Plan(), want) || len(want) == 1 || len(want) == 4 || out.opt.PlanName() != "exact" {
		t.Errorf("plan %s %v, want %v", out.opt.PlanName(), out.opt.Plan(), want)
	}
	if len(out.reports) != 2 || !close1(out.reports[1].Measured.Step, out.reports[0].Chosen.Step, 0.01) || out.reports[0].Reason != "" {
		t.Fatalf("%+v", out.reports)
	}
	again := small(link, Config{Exchange: distopt.Config{Plan: "exact"}, Profile: &out.profile}).run(t, 3)
	saved := small(link, Config{Exchange: distopt.Config{Plan: SavedPlan}, Profile: &out.profile}).run(t, 3)
	for _, o := range []outcome{again, saved} {
		if !reflect.DeepEqual(o.opt.Plan(), want) || len(o.reports) != 1 || o.known || !o.chosen || o.reports[0].Chosen.Step != out.reports[0].Chosen.Step {
			t.Errorf("by the profile: %v, %+v", o.opt.Plan(), o.reports)
		}
	}
}

// With late messages, groups that gain less than a share of the lateness are left out.
func TestPlanIsWorthwhile(t *testing.T) {
	step := bucket.Step{
		Layers: []bucket.Param{{Len: 64}, {Offset: 64, Len: 4096}, {Offset: 4160, Len: 15360}, {Offset: 19520, Len: 480}}, Forward: 4e-3, Backward: []float64{1e-3, 5e-3, 4e-3, 2e-3},
		Costs: bucket.Costs{Sends: []bucket.Send{{Payload: bucket.Payload{Unit: 4}, PerByte: 1e-7}}},
	}
	exact, err := bucket.LookupPlanner("exact")
	if err != nil {
		t.Fatal(err)
	}
	groups := func(late float64) int {
		step.Costs.Contention.Late = late
		p := Plan(exact, step)
		if least, got := bucket.Predict(step, bucket.Exact(step)).Total, bucket.Predict(step, p).Total; got > least+unmeasured*late*float64(len(step.Layers)) {
			t.Errorf("late by %v s: a step of %v, the shortest takes %v", late, got, least)
		}
		return len(p)
	}
	if got := groups(0); got < 3 {
		t.Errorf("%d groups where messages cost nothing", got)
	}
	step.Costs.Contention.Late = 6e-3
	if got, most := groups(6e-3), len(bucket.Exact(step)); got >= most {
		t.Errorf("%d groups of %d where each is late by 6 ms and more", got, most)
	}
}

// Exact steps and steps with reused thresholds are told apart.
func TestMeasuredReuse(t *testing.T) {
	j := small(slow, Config{Exchange: distopt.Config{Strategy: distopt.DLGS, Spars: 0.01, Every: 4, Plan: "dlgs-scan"}, Measure: true})
	j.varied = true
	out := j.run(t, 40)
	if len(out.reports) != 2 || out.opt.PlanName() != "dlgs-scan" {
		t.Fatalf("%+v", out.reports)
	}
	// The thresholds of small groups let through a few more or fewer entries.
	if m := out.reports[1].Measured; m.Exact <= 0 || m.Reuse <= 0 || !close1(m.Step, out.reports[0].Chosen.Step, 0.05) {
		t.Errorf("predicted %+v, measured %+v", out.reports[0].Chosen, m)
	}
	codec, _ := out.profile.Codec("dlgs", 0.01)
	if codec.Sent < 0.5 || codec.Sent > 2 {
		t.Errorf("%v times as many entries as asked for", codec.Sent)
	}
}

// The measured density is the current density, even if the density changes during the run.
func TestMeasuredWarmup(t *testing.T) {
	j := small(slow, Config{Exchange: distopt.Config{Strategy: distopt.SparseTopK, Spars: 0.01, Plan: "exact"}, Measure: true})
	j.spars = func(step int) float64 {
		if step < 60 {
			return 0.5
		}
		return 0.01
	}
	out := j.run(t, 200)
	if len(out.reports) < 4 || out.profile.Plan.Density != 0.01 {
		t.Fatalf("%d reports, planned for density %v", len(out.reports), out.profile.Plan.Density)
	}
	for _, at := range []int{0, len(out.reports) - 2} {
		if r := out.reports[at+1]; !close1(r.Measured.Step, r.Chosen.Step, 0.03) {
			t.Errorf("predicted %v s, measured %v", r.Chosen.Step, r.Measured.Step)
		}
	}
	early := j.run(t, 40).profile // the profile of a warm-up serves the next run
	j.cfg.Measure, j.cfg.Profile, j.spars = false, &early, nil
	if out := j.run(t, 3); len(early.Codecs) != 2 || len(out.reports) != 1 || out.reports[0].Chosen.Step <= 0 {
		t.Errorf("by the profile of a warm-up: %+v", out.reports)
	}
}

// The density of a magnitude threshold is measured.
func TestMeasuredThreshold(t *testing.T) {
	cfg := Config{Exchange: distopt.Config{Strategy: distopt.SparseThreshold, Spars: 0.5, Plan: "exact"}, Measure: true}
	out := small(slow, cfg).run(t, 20)
	if len(out.profile.Codecs) != 1 || !(out.profile.Codecs[0].Density > 0.1) || out.profile.Plan.Density != out.profile.Codecs[0].Density {
		t.Fatalf("%+v", out.profile)
	}
	cfg.Measure, cfg.Profile = false, &out.profile
	if again := small(slow, cfg).run(t, 1); !reflect.DeepEqual(again.opt.Plan(), out.opt.Plan()) {
		t.Errorf("by the profile %v, measured %v", again.opt.Plan(), out.opt.Plan())
	}
}

// Drifted times lead to one new choice; steady times to no new choice.
func TestDriftIsPlannedAnew(t *testing.T) {
	j := small(slow, Config{Exchange: distopt.Config{Plan: "exact"}, Measure: true})
	if out := j.run(t, 240); len(out.reports) != 2 {
		t.Errorf("without drift: %+v", out.reports)
	}
	j.change = func(step int, backward []time.Duration, c *channel) {
		if step == 100 {
			backward[1] *= 20
		}
	}
	out := j.run(t, 420)
	if len(out.reports) != 4 || out.reports[2].Replans != 1 || !strings.HasPrefix(out.reports[2].Reason, "again: steps have moved by ") || !close1(out.reports[3].Measured.Step, out.reports[2].Chosen.Step, 0.01) {
		t.Errorf("backward is slower: %+v", out.reports)
	}
	j.stay = true
	if out := j.run(t, 420); len(out.reports) != 2 || !out.chosen {
		t.Errorf("nobody watches, but %+v", out.reports)
	}
	j.stay = false
	j.change = func(step int, backward []time.Duration, c *channel) { // at a single look
		backward[1] = 5 * time.Millisecond
		if step >= 140 && step < 155 {
			backward[1] *= 20
		}
	}
	if out := j.run(t, 300); len(out.reports) != 2 {
		t.Errorf("backward is slower for 15 steps: %+v", out.reports)
	}
	j.change = func(step int, backward []time.Duration, c *channel) {
		if step == 100 {
			c.perByte = 3 * time.Microsecond
		}
	}
	if out := j.run(t, 240); len(out.reports) != 4 || !close1(out.reports[3].Measured.Step, out.reports[2].Chosen.Step, 0.01) {
		t.Errorf("links are slower: %+v", out.reports)
	}
}

// Auto may change the strategy after links change, and choose again under a sparse strategy.
func TestAutoChoosesAnew(t *testing.T) {
	j := small(fast, auto(0.01))
	j.varied = true
	j.change = func(step int, backward []time.Duration, c *channel) {
		if step == 100 {
			c.perByte = 4 * time.Microsecond
		}
		if step == 500 {
			backward[1] *= 20
		}
	}
	out := j.run(t, 1000)
	var chosen []string
	for i, r := range out.reports {
		if r.Measured == nil {
			chosen = append(chosen, r.Chosen.Strategy)
		} else if !close1(r.Measured.Step, out.reports[i-1].Chosen.Step, 0.05) {
			t.Errorf("%s: predicted %v s, measured %v", r.Chosen.Strategy, r.Chosen.Step, r.Measured.Step)
		}
	}
	if got := strings.Join(chosen, " "); got != "fp32 dlgs dlgs" {
		t.Errorf("chose %s, want fp32, then dlgs twice", got)
	}
}

// Time between two steps is part of no step.
func TestBegin(t *testing.T) {
	j := small(slow, Config{Exchange: distopt.Config{Plan: "exact"}, Measure: true})
	j.between = func(int) time.Duration { return time.Second }
	out := j.run(t, 30)
	if len(out.reports) != 2 || !close1(out.reports[1].Measured.Step, out.reports[0].Chosen.Step, 0.01) || !close1(out.profile.Forward, 0.004, 0.01) {
		t.Errorf("%+v", out.reports)
	}
}

// A checkpoint's choice is kept; without a choice, or with Measure, the choice is made now, and a
// missing source is an error.
func TestResumed(t *testing.T) {
	yes, no := State{Chosen: true}, State{}
	j := small(slow, auto(0.01))
	j.cfg.MayKeep, j.resumed = true, &yes
	if out := j.run(t, 30); len(out.reports) != 1 || !strings.Contains(out.reports[0].Reason, "checkpoint") || out.opt.Strategy() != distopt.FP32 || !out.chosen {
		t.Errorf("kept: %+v", out.reports)
	}
	j.resumed = &no
	if out := j.run(t, 40); len(out.reports) != 2 || out.opt.Strategy() != distopt.DLGS {
		t.Errorf("nothing to keep: %+v", out.reports)
	}
	j.resumed, j.cfg.Measure = &yes, true
	if out := j.run(t, 40); len(out.reports) != 2 || out.opt.Strategy() != distopt.DLGS {
		t.Errorf("told to measure: %+v", out.reports)
	}
	j.cfg = Config{Exchange: distopt.Config{Plan: "exact"}, MayKeep: true}
	if out := j.run(t, 3); len(out.reports) != 1 || !strings.Contains(out.reports[0].Reason, "checkpoint") || !out.chosen {
		t.Errorf("kept plan: %+v", out.reports)
	}
	saved := auto(0.01)
	saved.Exchange.Plan, saved.MayKeep = SavedPlan, true
	for _, cfg := range []Config{j.cfg, saved} {
		for _, resumed := range []*State{&no, nil} {
			j.cfg, j.resumed = cfg, resumed
			synctest.Test(t, func(t *testing.T) {
				onRanks(t, 2, func(g *collective.Group) error {
					if err := j.rank(g, 1, new(outcome)); err == nil || !strings.Contains(err.Error(), "tuning.profile") {
						return fmt.Errorf("no source: %v", err)
					}
					return nil
				})
			})
		}
	}
}

// A profile's choice holds after a run saved ahead of its choice; an existing choice is kept.
func TestResumedByProfile(t *testing.T) {
	yes, no := State{Chosen: true}, State{}
	first := small(slow, Config{Exchange: distopt.Config{Plan: "exact"}, Measure: true})
	setups := make([]distopt.Setup, 2)
	before := first.run(t, 3) // one group
	after := first.run(t, 30)
	setups[0], setups[1] = before.opt.Setup(), after.opt.Setup()
	if setups[0].SHA256 == setups[1].SHA256 {
		t.Fatal("the plan is that of the measurement: the test shows nothing")
	}
	j := small(slow, Config{Exchange: distopt.Config{Plan: "exact"}, Profile: &after.profile, MayKeep: true})
	j.setup, j.resumed = &setups[0], &no
	if out := j.run(t, 3); out.opt.Plan().SHA256() != setups[1].SHA256 || len(out.reports) != 1 || out.reports[0].SHA256 != setups[1].SHA256 || !out.chosen {
		t.Errorf("nothing had been chosen: %v, %+v", out.opt.Plan(), out.reports)
	}
	j.resumed = &yes
	if out := j.run(t, 3); out.opt.Plan().SHA256() != setups[0].SHA256 || len(out.reports) != 1 || !strings.Contains(out.reports[0].Reason, "checkpoint") {
		t.Errorf("a choice is kept: %v, %+v", out.opt.Plan(), out.reports)
	}
	j = small(slow, auto(0.01))
	f := j.run(t, 40).profile
	j.cfg.Profile, j.cfg.MayKeep = &f, true
	j.setup, j.resumed = &setups[0], &no
	if out := j.run(t, 3); out.opt.Strategy() != distopt.DLGS || len(out.reports) != 1 {
		t.Errorf("auto: %s, %+v", out.opt.Strategy(), out.reports)
	}
}

func TestFaults(t *testing.T) {
	j := small(fast, auto(0.01))
	j.change = func(step int, _ []time.Duration, c *channel) { c.fails = step >= 11 } // the last profiled step
	synctest.Test(t, func(t *testing.T) {
		onRanks(t, 2, func(g *collective.Group) error {
			if err := j.rank(g, 40, new(outcome)); err == nil || !strings.Contains(err.Error(), "a broken link") {
				return fmt.Errorf("a broken link gave %v", err)
			}
			return nil
		})
	})
	j = small(fast, auto(0.01))
	j.ranks, j.unsaved = 3, errors.New("the disk is full")
	synctest.Test(t, func(t *testing.T) {
		var others sync.WaitGroup
		others.Add(2)
		onRanks(t, 3, func(g *collective.Group) error {
			err := j.rank(g, 100, new(outcome))
			var by *transport.AbortError
			if g.Rank() == 0 {
				others.Wait() // after rank 0's report
			} else if others.Done(); !errors.As(err, &by) || by.Rank != 0 {
				return fmt.Errorf("a profile that rank 0 cannot save gave %v", err)
			}
			if err == nil || !strings.Contains(err.Error(), j.unsaved.Error()) {
				return fmt.Errorf("a full disk gave %v", err)
			}
			return nil
		})
	})
	other := bucket.Profile{Model: "other", Ranks: 2, Layers: []bucket.LayerProfile{{Name: "a", Values: 1}}}
	poor := bucket.Profile{Model: "job", Ranks: 2}
	for i, n := range small(nil, Config{}).values {
		poor.Layers = append(poor.Layers, bucket.LayerProfile{Name: fmt.Sprint(i), Values: n})
	}
	moved := poor
	moved.Layers = append([]bucket.LayerProfile{{Name: "x", Values: 63}}, poor.Layers[1:]...)
	for want, f := range map[string]bucket.Profile{
		`of model "other", has 1 layers, this model 4`:                other,
		"no cost of exchanging fp32 among 2 ranks on 1 hosts":         poor,
		`layer 0 of the profile, of model "job", is x with 63 values`: moved,
	} {
		j := small(fast, Config{Exchange: distopt.Config{Plan: "exact"}, Profile: &f})
		onRanks(t, 2, func(g *collective.Group) error {
			if err := j.rank(g, 0, new(outcome)); err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("got %v, want %q", err, want)
			}
			return nil
		})
	}
}

// A saved plan needs no costs of this job: `ringo plan` saves plans for other clusters.
func TestSavedPlanWithoutCosts(t *testing.T) {
	f := bucket.Profile{Model: "job", Ranks: 2}
	for i, n := range small(nil, Config{}).values {
		f.Layers = append(f.Layers, bucket.LayerProfile{Name: fmt.Sprint(i), Values: n})
	}
	want := bucket.PerLayer(f.Step().Layers)
	if err := f.SavePlan("per-layer", want); err != nil {
		t.Fatal(err)
	}
	check := func(out outcome) {
		t.Helper()
		if len(out.reports) != 1 || out.reports[0].SHA256 != want.SHA256() || out.reports[0].Chosen.Step != 0 || out.opt.Plan().SHA256() != want.SHA256() || out.opt.PlanName() != SavedPlan {
			t.Errorf("%+v", out.reports)
		}
	}
	check(small(fast, Config{Exchange: distopt.Config{Plan: SavedPlan}, Profile: &f}).run(t, 5))
	measured := small(slow, Config{Exchange: distopt.Config{Plan: "exact"}, Measure: true}).run(t, 30).profile
	for i := range measured.Links {
		measured.Links[i].Ranks = 5
	}
	measured.Batch++
	if err := measured.SavePlan("per-layer", want); err != nil {
		t.Fatal(err)
	}
	check(small(slow, Config{Exchange: distopt.Config{Plan: SavedPlan}, Profile: &measured}).run(t, 5))
	onRanks(t, 2, func(g *collective.Group) error { // but not a source for a new plan
		err := small(slow, Config{Exchange: distopt.Config{Plan: "exact"}, Profile: &measured}).rank(g, 0, new(outcome))
		if err == nil || !strings.Contains(err.Error(), "measured with batches of 4, this run has 3") {
			return fmt.Errorf("another batch: %v", err)
		}
		return nil
	})
}

func TestConfigValidate(t *testing.T) {
	f := testProfile(t).Planner
	none := *f
	none.Plan = nil
	for _, c := range []struct {
		cfg  Config
		want []string // none: valid
	}{
		{Config{}, nil},
		{auto(0.1), nil},
		{Config{Exchange: distopt.Config{Strategy: Auto, Plan: "mgwfbp"}}, nil},
		{Config{Exchange: distopt.Config{Plan: "exact"}, Measure: true}, nil},
		{Config{Exchange: distopt.Config{Plan: "exact"}, Profile: f}, nil},
		{Config{Exchange: distopt.Config{Plan: SavedPlan}, Profile: f}, nil},
		{Config{Exchange: distopt.Config{Plan: "exact"}, MayKeep: true}, nil},
		{Config{Exchange: distopt.Config{Plan: SavedPlan}, MayKeep: true}, nil},
		{Config{Exchange: distopt.Config{Strategy: Auto, Plan: SavedPlan}, MayKeep: true}, nil},
		{Config{Exchange: distopt.Config{Strategy: Auto, Plan: SavedPlan}}, []string{`exchange.plan saved is the one that a profile holds`}},
		{Config{Exchange: distopt.Config{Plan: SavedPlan}, MayKeep: true, Measure: true}, []string{`exchange.plan saved is the one that a profile holds`}},
		{Config{Exchange: distopt.Config{Strategy: Auto, Plan: "fixed", BucketBytes: 64}}, nil},
		{Config{Exchange: distopt.Config{Strategy: Auto, BucketBytes: 64}}, []string{`exchange.bucket-bytes 64 has no effect on exchange.plan exact`}},
		{Config{Exchange: distopt.Config{Plan: "mgwfbp", BucketBytes: 64}, Measure: true}, []string{`exchange.bucket-bytes 64 has no effect on exchange.plan mgwfbp`}},
		{Config{Exchange: distopt.Config{Plan: "exact"}}, []string{`exchange.plan exact is made of measurements`, "tuning.profile", "tuning.tune"}},
		{Config{Exchange: distopt.Config{Plan: SavedPlan}}, []string{`exchange.plan saved is the one that a profile holds`}},
		{Config{Exchange: distopt.Config{Plan: SavedPlan}, Profile: &none}, []string{`exchange.plan saved is the one that a profile holds`}},
		{Config{Exchange: distopt.Config{Plan: "exact", Strategy: distopt.TopK}, Measure: true}, []string{`exchange.plan exact has no effect on exchange.strategy topk`}},
		{Config{Exchange: distopt.Config{Plan: "exact", Strategy: distopt.PartialUpdate}, Measure: true}, []string{`exchange.plan exact has no effect on exchange.strategy partialUpdate`}},
		{Config{Measure: true, Profile: f}, []string{"both set the exchange"}},
		{Config{Exchange: distopt.Config{Strategy: Auto, Momentum: 0.9}}, []string{"exchange.momentum-correction has no effect: it needs exchange.strategy"}},
		{Config{Exchange: distopt.Config{Strategy: Auto, Spars: 7}, Profile: &bucket.Profile{}}, []string{"exchange.spars 7", "0 layers"}},
		{Config{Exchange: distopt.Config{Strategy: "ato", Plan: "exct"}}, []string{`"ato" is not known`, `"exct" is not known`}},
	} {
		err := c.cfg.Validate()
		if len(c.want) == 0 && err != nil {
			t.Errorf("%+v: %v", c.cfg.Exchange, err)
		}
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %q", c.cfg.Exchange, err, want)
			}
		}
	}
}

// The fastest candidate is chosen, unless uncompressed gradients are about as fast.
func TestChoose(t *testing.T) {
	for _, c := range []struct {
		steps []float64
		want  int
	}{{[]float64{1}, 0}, {[]float64{1, 2}, 0}, {[]float64{1, 0.99, 0.985}, 0}, {[]float64{1, 0.99, 0.975}, 2}, {[]float64{1, 0.98, 0.9, 0.8}, 3}} {
		var all []Prediction
		for _, s := range c.steps {
			all = append(all, Prediction{Step: s})
		}
		if got := Choose(all); got != c.want {
			t.Errorf("of %v chose %d, want %d", c.steps, got, c.want)
		}
	}
}

// Steps with reused thresholds send a multiple of the density as in the profile, exact steps the
// density.
func TestPredictSent(t *testing.T) {
	f := *testProfile(t).Planner
	f.Links = []bucket.LinkProfile{{Algorithm: "allgather", Payload: bucket.SparsePayload, Unit: 8, Ranks: 2, Hosts: 1, PerByte: 1e-6}}
	c := Candidate{Name: "dlgs", Density: 0.01, Every: 4, Chain: chainOf(t, compress.DLGS{Ratio: 0.01}), Planner: bucket.Named{Plan: func(s bucket.Step) bucket.Plan { return bucket.One(s.Layers) }}}
	f.Codecs = slices.Clone(f.Codecs)
	for i := range f.Codecs {
		f.Codecs[i].Sent = 0
	}
	asked, err := Predict(f, c, 2, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.Codecs {
		f.Codecs[i].Sent = 1.5
	}
	more, err := Predict(f, c, 2, 1, 0)
	entries := 0.0
	for _, l := range f.Layers {
		entries += 0.01 * float64(l.Values)
	}
	if err != nil || !close1(more.Reuse-asked.Reuse, 0.5*entries*8e-6, 0.01) || !close1(more.Exact, asked.Exact, 1e-3) {
		t.Errorf("%+v, %v, where what was asked for takes %+v", more, err, asked)
	}
}

// Predict names all missing costs.
func TestPredictNames(t *testing.T) {
	f := *testProfile(t).Planner
	exact, err := bucket.LookupPlanner("exact")
	err = errors.Join(err, f.Validate())
	if err != nil {
		t.Fatal(err)
	}
	c := Candidate{Name: "fp16", Chain: nil, Planner: exact}
	if p, err := Predict(f, c, 2, 1, 0); err != nil || p.PlanName != "exact" || p.Step <= f.Forward || p.Exact != p.Step {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := Predict(f, c, 1, 1, 0); err != nil || !close1(p.Step, 0.004+1.6e-3+1e-4+2e-4, 1e-9) {
		t.Errorf("alone: %+v, %v", p, err)
	}
	_, err = Predict(f, Candidate{Name: "x", Density: 0.5, Chain: chainOf(t, compress.TopK{Ratio: 0.5}), Planner: exact}, 3, 1, 0)
	for _, want := range []string{"strategy x", "no cost of codec x at density 0.5", "no cost of exchanging fp32 at density 0.5 among 3 ranks on 1 hosts"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}
