package tune

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/exchange"
)

// Steps to settle caches and buffers, steps per median, and steps between two checks of times.
const (
	settleSteps  = 3
	measureSteps = 9
	watchSteps   = 64
)

// driftBound is the share of a step by which times must drift for a new plan: plans hardly change
// below 10 %, and busy machines drift as much.
const driftBound = 0.25

// Optimizer is the part that a Tuner times and tunes: a *distopt.Optimizer, or the exchange of
// another training loop. All methods are called between two steps, in the same order on every rank,
// except the Begin methods, called within steps.
type Optimizer interface {
	Step() error
	Steps() int64
	Times() distopt.StepTimes
	Reducer() exchange.Reducer

	Strategy() distopt.Strategy
	SetStrategy(distopt.Strategy) error
	Prepare(spars float64, every int, rule compress.Rule) error
	Spars() float64
	Reselect() error
	Plan() bucket.Plan
	PlanName() string
	SetPlan(name string, p bucket.Plan) error
	CanShard() bool
	SetSharding(on bool) error

	Profile(steps int) (*bucket.Profiler, error)
	EndProfile()
	BeginForward()
}

// Tuner times an Optimizer's steps and chooses the plan and, under Auto, the strategy.
//
//	cfg := tune.Config{Exchange: distopt.Config{Strategy: tune.Auto}}
//	opt, err := distopt.New(group, sgd, layers, params, grads, nil, cfg.Base())
//	t, err := tune.New(group, opt, layers, grads, cfg)
//	for each batch {
//	    tape.Backward(loss, opt.GradReady)
//	    err = t.Step() // in the place of opt.Step
//	}
//
// If the Tuner measures, the first steps use one bucket for all gradients, so that backward is
// timed without exchanges, and whole updates (Optimizer.SetSharding), so that updates can be timed.
// Codecs and links are then timed between two steps, the choice is made, and later steps are
// compared with the prediction. From then on times are watched: lasting drift leads to a new
// choice. Begin excludes other work between two steps.
//
// A Tuner is for one goroutine, and all ranks call the methods in the same order.
type Tuner struct {
	g      *collective.Group
	opt    Optimizer
	layers []bucket.Param
	values int       // sum over all layers
	grads  []float32 // nil: no arena of gradients
	cfg    Config
	auto   bool

	phase          phase
	stepsRemaining int  // steps left of the phase
	waiting        bool // until Resumed
	chosen         bool
	applied        Choices          // since step 0 of the run
	replay         Choices          // the given choices still to be made
	profiler       *bucket.Profiler // the phase's; nil if unneeded
	begun          time.Time        // start of the current step
	spent          time.Duration    // between steps
	steps          stepTimes
	planned        bucket.Profile // the choice's source
	choice         Prediction
	all            []Prediction
	usual          baseline // reference for drift
	period         int      // steps between two checks
	driftSuspected bool     // drift at the last check
	replans        int      // number of new choices
	spars          float64  // value at the phase's start
	// candidates are strategies with constant chains
	candidates []Candidate
}

type phase int

const (
	idle     phase = iota // no measurement
	settling              // caches and buffers, ahead of profiling
	profiling
	settled // after the choice, ahead of verifying
	verifying
	watching
)

type baseline struct {
	step    bucket.Step // without costs
	exposed float64
	total   float64
}

// stepTimes are the times of a phase's steps, in seconds.
type stepTimes struct {
	total, compute, exposed, update, rows, density []float64
	exactShare                                     []float64 // share of the values with exact selection
}

func (s *stepTimes) reset() {
	for _, x := range []*[]float64{&s.total, &s.compute, &s.exposed, &s.update, &s.rows, &s.density, &s.exactShare} {
		*x = (*x)[:0]
	}
}

func (s *stepTimes) add(whole time.Duration, t distopt.StepTimes) {
	s.total = append(s.total, whole.Seconds())
	s.compute = append(s.compute, (whole - t.Compress - t.Exposed - t.Update).Seconds())
	s.exposed = append(s.exposed, t.Exposed.Seconds())
	s.update = append(s.update, (t.Update + t.Exposed - t.Dense - t.Rows).Seconds()) // tables' wait included
	s.rows = append(s.rows, t.Rows.Seconds())
	s.density = append(s.density, t.Density)
	s.exactShare = append(s.exactShare, t.ExactShare)
}

// New makes a tuner for opt with its layers and arena of gradients (nil if gradients are the
// caller's). Without measurements the choice is made here, or in Resumed if a choice may come from
// there. New is a collective call. Errors: those of Validate, or a profile without the needed
// costs.
func New(g *collective.Group, opt Optimizer, layers []bucket.Param, grads []float32, cfg Config) (*Tuner, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("tune: %w", err)
	}
	t := &Tuner{g: g, opt: opt, layers: layers, grads: grads, cfg: cfg, auto: cfg.Exchange.Strategy == Auto}
	for _, l := range layers {
		t.values += l.Len
	}
	if t.auto {
		if err := opt.Prepare(cfg.Exchange.Spars, cfg.Exchange.Every, cfg.Exchange.Rule); err != nil {
			return nil, err
		}
	}
	if !cfg.Chooses() {
		return t, nil
	}
	if err := t.makeCandidates(cfg); err != nil {
		return nil, err
	}
	if t.replay = cfg.Choices; len(t.replay) > 0 {
		t.chosen, t.waiting = true, cfg.MayKeep
		if err := t.replay.fit(layers); err != nil {
			return nil, err
		}
		return t, t.due()
	}
	switch {
	case t.auto && g.Size() == 1 && serversOf(opt.Reducer()) == 0: // no choice to keep
		t.report(Report{Reason: "one rank: there is nothing to exchange"})
		return t, nil
	case cfg.MayKeep && (cfg.Profile != nil || !cfg.canMeasure()):
		t.waiting = true
		return t, nil
	case cfg.Profile != nil:
		return t, t.fromProfile()
	}
	return t, t.start()
}

// makeCandidates makes cfg's candidates, with shared updates if possible.
func (t *Tuner) makeCandidates(cfg Config) (err error) {
	t.candidates, err = cfg.candidates()
	for i := range t.candidates {
		c := &t.candidates[i]
		c.Shared = c.Chain == nil && t.opt.CanShard()
	}
	return err
}

func (t *Tuner) start() error {
	t.begun = time.Now()
	t.period = watchSteps
	if canPlan(t.opt.Strategy()) {
		if err := t.make(Choice{Plan: distopt.PlanOne, Ends: bucket.One(t.layers).Ends()}); err != nil {
			return err
		}
	}
	return t.enter(settling, settleSteps)
}

func canPlan(strategy distopt.Strategy) bool {
	i, err := distopt.Lookup(strategy)
	return err == nil && i.Plan == ""
}

func (t *Tuner) enter(p phase, steps int) (err error) {
	t.phase, t.stepsRemaining, t.spars = p, steps, t.opt.Spars()
	t.steps.reset()
	t.opt.EndProfile()
	if err := t.opt.SetSharding(p != settling && p != profiling); err != nil { // sharded updates within exchanges cannot be timed
		return err
	}
	if t.profiler = nil; p == profiling || p == verifying || p == watching {
		t.profiler, err = t.opt.Profile(measureSteps)
	}
	if err == nil && p == verifying && t.candidate(t.choice.Strategy).reuses() {
		err = t.make(Choice{Reselect: true}) // one step or more of each kind, however rare
	}
	return err
}

// Begin starts a step now: work since the last step, such as an evaluation, is part of no step.
// Without Begin a step starts at the end of the last.
func (t *Tuner) Begin() {
	t.begun = time.Now()
	t.opt.BeginForward()
}

// Step ends the step that backward began (Optimizer.Step), and may then measure and choose together
// with all ranks. An error of Config.Save breaks the group: the other ranks fail immediately and
// name this rank.
func (t *Tuner) Step() error {
	if t.waiting {
		return fmt.Errorf("tune: a step before Resumed, without which there is no choice: %w", noSource(t.cfg.Exchange.Plan))
	}
	if err := t.opt.Step(); err != nil {
		return err
	}
	if t.phase == idle {
		return t.due()
	}
	now := time.Now()
	t.steps.add(now.Sub(t.begun), t.opt.Times())
	if t.stepsRemaining--; t.stepsRemaining == 0 {
		if err := t.next(); err != nil {
			return err
		}
		after := time.Now()
		t.spent += after.Sub(now)
		now = after
	}
	t.begun = now
	return nil
}

func (t *Tuner) next() error {
	switch t.phase {
	case settling:
		return t.enter(profiling, measureSteps)
	case profiling:
		return t.measure()
	case settled:
		return t.enter(verifying, t.verifySteps())
	case verifying:
		return t.verify()
	case watching:
		return t.look()
	}
	return nil
}

// verifySteps is the number of steps compared with a prediction: the first step is exact, and up to
// three more exact steps follow if frequent, so that a single disturbance does not decide.
func (t *Tuner) verifySteps() int {
	if c := t.candidate(t.choice.Strategy); c.reuses() {
		return max(measureSteps, min(4*c.Every, watchSteps))
	}
	return measureSteps
}

// choose predicts every candidate's step and adopts the prediction of Choose.
func (t *Tuner) choose(f bucket.Profile, why string) error {
	t.all = nil // reports hold the old slice
	for _, c := range t.candidates {
		p, err := Predict(f, c, t.g.Size(), t.g.Hosts(), serversOf(t.opt.Reducer()))
		if err != nil {
			return err
		}
		t.all = append(t.all, p)
	}
	t.planned, t.choice = f, t.all[Choose(t.all)]
	if err := t.adopt(t.choice); err != nil {
		return err
	}
	t.chosen = true
	if t.replans == 0 && why == "" && t.auto {
		why = reason(t.all, t.choice)
	}
	t.report(Report{Reason: why})
	if t.phase == idle {
		return nil
	}
	if f, ok := t.Profile(); ok && t.cfg.Save != nil {
		if err := t.cfg.Save(f); err != nil {
			_ = t.g.Fail(err) // returns this same error
			return err
		}
	}
	return t.enter(settled, settleSteps)
}

// adopt sets a prediction's strategy and plan.
func (t *Tuner) adopt(p Prediction) error {
	var c Choice
	strategy := distopt.Strategy(p.Strategy)
	if t.auto {
		c.Strategy = strategy
	}
	if canPlan(strategy) {
		c.Plan, c.Ends = p.PlanName, p.Plan.Ends()
	}
	return t.make(c)
}

func (t *Tuner) fromProfile() error {
	f := *t.cfg.Profile
	if err := fits(f, t.layers); err != nil {
		return err
	}
	if !t.auto && t.cfg.Exchange.Plan == SavedPlan {
		servers := serversOf(t.opt.Reducer())
		_, err := Predict(f, t.candidates[0], t.g.Size(), t.g.Hosts(), servers)
		if errors.Is(err, errCosts) && !otherKind(f, servers) {
			return t.asSaved(f)
		}
	} else if here := t.cfg.Batch; here != f.Batch && min(here, f.Batch) > 0 {
		return fmt.Errorf("tune: the profile was measured with batches of %d, this run has %d, and its backward takes other times: %w", f.Batch, here, measureThis())
	}
	return t.choose(f, "by the profile")
}

// asSaved adopts a profile's plan without a prediction, as the profile has no costs of this
// cluster.
func (t *Tuner) asSaved(f bucket.Profile) error {
	if err := t.make(Choice{Plan: SavedPlan, Ends: f.SavedPlan().Ends()}); err != nil {
		return err
	}
	t.chosen = true
	t.report(Report{Reason: "as saved; the profile has no costs of this job to predict steps by"})
	return nil
}

// fits reports a profile of another model.
func fits(f bucket.Profile, layers []bucket.Param) error {
	if len(f.Layers) != len(layers) {
		return fmt.Errorf("tune: the profile, of model %q, has %d layers, this model %d: name one of this model", f.Model, len(f.Layers), len(layers))
	}
	for i, l := range f.Layers {
		if l.Values != layers[i].Len {
			return fmt.Errorf("tune: layer %d of the profile, of model %q, is %s with %d values, here %s with %d: name one of this model", i, f.Model, l.Name, l.Values, layers[i].Name, layers[i].Len)
		}
	}
	return nil
}

// State is a Tuner's part of a checkpoint.
type State struct {
	// Chosen reports whether there is a choice to keep.
	Chosen bool `json:"chosen"`
	// Made is the list of all changes to the Optimizer so far, the resumed run's included. As
	// Config.Choices, Made reproduces the run without measuring.
	Made Choices `json:"made"`
}

// State is the state for a checkpoint now.
func (t *Tuner) State() State { return State{t.chosen, slices.Clone(t.applied)} }

// Resumed passes the state of the checkpoint that the optimizer was restored from, or the zero
// State without a checkpoint. A saved choice is kept, unless Config.Measure is set. Resumed is a
// collective call ahead of the first step.
func (t *Tuner) Resumed(s State) error {
	if t.opt.Steps() > 0 {
		t.applied = slices.Clone(s.Made)
	}
	switch {
	case len(t.cfg.Choices) > 0:
		return t.goOn(s.Made)
	case s.Chosen && !t.cfg.Measure:
		t.waiting, t.chosen = false, true
		if err := t.Stay(); err != nil {
			return err
		}
		t.choice, t.all = Prediction{}, nil
		if t.cfg.Chooses() {
			t.report(Report{Reason: "kept from the checkpoint"})
		}
		return nil
	case t.waiting && (t.cfg.Profile == nil || t.cfg.lacksPlan()):
		return fmt.Errorf("tune: the checkpoint has no choice of strategy and plan to go on with: %w", noSource(t.cfg.Exchange.Plan))
	case t.waiting:
		t.waiting = false
		return t.fromProfile()
	case t.phase == idle:
		return nil
	}
	if t.auto {
		if err := t.make(Choice{Strategy: distopt.FP32}); err != nil {
			return err
		}
	}
	return t.start()
}

// Measuring reports whether steps are still measured for a choice, or compared with the prediction.
func (t *Tuner) Measuring() bool { return t.phase != idle && t.phase != watching }

// Spent is the time of measurements and choices until now, within Step but not part of a training
// step. Measuring codecs and links takes seconds.
func (t *Tuner) Spent() time.Duration { return t.spent }

// Stay keeps the choice for good and ends the watch. All ranks call Stay between the same steps.
func (t *Tuner) Stay() error {
	t.opt.EndProfile()
	t.phase, t.profiler = idle, nil
	return t.opt.SetSharding(true)
}

// Choice is the adopted prediction; ok is false without a prediction.
func (t *Tuner) Choice() (p Prediction, ok bool) { return t.choice, t.choice.Strategy != "" }

// Profile is the measured profile with the plan made from the profile; ok is false without a
// profile.
func (t *Tuner) Profile() (f bucket.Profile, ok bool) {
	if t.phase == idle || len(t.planned.Layers) == 0 {
		return f, false
	}
	f = t.planned
	c := t.candidate(t.choice.Strategy)
	if err := f.SavePlan(t.choice.PlanName, t.choice.Plan); err != nil {
		return f, false
	}
	f.Plan.Strategy, f.Plan.Density = c.Name, c.Density
	return f, true
}

// recent is the tail of x, of a Profiler's length.
func recent(x []float64) []float64 { return x[max(0, len(x)-measureSteps):] }

func medianOr0(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	return medianOf(x)
}
