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

// Steps of a measurement: how many settle caches and buffers first, over how many
// medians are, and after how many the times are compared with those before.
const (
	settleSteps  = 3
	measureSteps = 9
	watchSteps   = 64
)

// driftBound is the share of a step by which times must have moved for a new plan:
// below a tenth plans hardly change, and a busy machine moves them by as much.
const driftBound = 0.25

// Optimizer is what a Tuner times and changes: a *distopt.Optimizer, or what exchanges gradients for a loop of another kind. All
// methods are called between two steps, on every rank the same, but that the two that begin parts of one are called within.
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

// Tuner stands beside an Optimizer: it times its steps and chooses its plan and, under
// Auto, its strategy.
//
//	cfg := tune.Config{Exchange: distopt.Config{Strategy: tune.Auto}}
//	opt, err := distopt.New(group, sgd, layers, params, grads, nil, cfg.Base())
//	t, err := tune.New(group, opt, layers, grads, cfg)
//	for each batch {
//	    tape.Backward(loss, opt.GradReady)
//	    err = t.Step() // in the place of opt.Step
//	}
//
// Where it measures, the first steps go on as any others, but with all gradients in
// one group, so that nothing is exchanged while backward is timed, and with whole updates
// (Optimizer.SetSharding), so that these can be. Then codecs and
// links are timed between two steps, the choice is made, and the steps that follow are
// compared with what was predicted. From then on times are watched: where they have
// moved far from those that the choice was made by, and stay so, it is made again. Where
// something else happens between two steps, Begin says when the next one begins.
//
// It is used by one goroutine, and every rank calls its methods in the same order.
type Tuner struct {
	g      *collective.Group
	opt    Optimizer
	layers []bucket.Param
	values int       // of the layers
	grads  []float32 // nil: there is no arena of them
	cfg    Config
	auto   bool

	phase          phase
	stepsRemaining int  // steps of the phase
	waiting        bool // for Resumed
	chosen         bool
	applied        Choices          // so far, by the whole run
	replay         Choices          // those given that are still to be made
	profiler       *bucket.Profiler // of the phase; nil: it needs none
	begun          time.Time        // the step under way
	spent          time.Duration    // between steps
	steps          stepTimes
	planned        bucket.Profile // what the choice was made by
	choice         Prediction
	all            []Prediction
	usual          baseline // what times are compared with
	period         int      // steps between two looks
	driftSuspected bool     // times have moved at the last look
	replans        int      // how often it was chosen anew
	spars          float64  // when the phase began
	// candidate strategies with their chains, which do not change
	candidates []Candidate
}

type phase int

const (
	idle     phase = iota // nothing is measured
	settling              // caches and buffers, before profiling
	profiling
	settled // after the choice, before verifying
	verifying
	watching
)

// baseline is what steps took when the choice was new.
type baseline struct {
	step    bucket.Step // without costs
	exposed float64
	total   float64
}

// stepTimes are those of the steps of a phase, in seconds.
type stepTimes struct {
	total, compute, exposed, update, rows, density []float64
	exactShare                                     []float64 // share of the values that were selected anew
}

func (s *stepTimes) reset() {
	for _, x := range []*[]float64{&s.total, &s.compute, &s.exposed, &s.update, &s.rows, &s.density, &s.exactShare} {
		*x = (*x)[:0]
	}
}

// add counts a step that took so long.
func (s *stepTimes) add(whole time.Duration, t distopt.StepTimes) {
	s.total = append(s.total, whole.Seconds())
	s.compute = append(s.compute, (whole - t.Compress - t.Exposed - t.Update).Seconds())
	s.exposed = append(s.exposed, t.Exposed.Seconds())
	s.update = append(s.update, (t.Update + t.Exposed - t.Dense - t.Rows).Seconds()) // of what tables wait for, too
	s.rows = append(s.rows, t.Rows.Seconds())
	s.density = append(s.density, t.Density)
	s.exactShare = append(s.exactShare, t.ExactShare)
}

// New makes a tuner for opt, whose layers and arena of gradients these are; grads is nil where gradients are the caller's, and lie
// anywhere. Where
// nothing is to be measured it chooses at once, or in Resumed where that may bring a choice. It is a collective call. Errors: what
// Validate reports, or a profile that lacks what the choice needs.
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

// makeCandidates makes those of cfg, in which ranks that can share updates do.
func (t *Tuner) makeCandidates(cfg Config) (err error) {
	t.candidates, err = cfg.candidates()
	for i := range t.candidates {
		c := &t.candidates[i]
		c.Shared = c.Chain == nil && t.opt.CanShard()
	}
	return err
}

// start begins to measure.
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

// canPlan tells whether a strategy may have any plan.
func canPlan(strategy distopt.Strategy) bool {
	i, err := distopt.Lookup(strategy)
	return err == nil && i.Plan == ""
}

// enter begins a phase of so many steps.
func (t *Tuner) enter(p phase, steps int) (err error) {
	t.phase, t.stepsRemaining, t.spars = p, steps, t.opt.Spars()
	t.steps.reset()
	t.opt.EndProfile()
	if err := t.opt.SetSharding(p != settling && p != profiling); err != nil { // within an exchange it could not be timed
		return err
	}
	if t.profiler = nil; p == profiling || p == verifying || p == watching {
		t.profiler, err = t.opt.Profile(measureSteps)
	}
	if err == nil && p == verifying && t.candidate(t.choice.Strategy).reuses() {
		err = t.make(Choice{Reselect: true}) // one step of each kind at least is seen, however rare
	}
	return err
}

// Begin says that a step begins now: what happened since the last one, an evaluation or a
// checkpoint, is part of none. Without it a step begins when the one before ends.
func (t *Tuner) Begin() {
	t.begun = time.Now()
	t.opt.BeginForward()
}

// Step ends the step that backward began: see Optimizer.Step. It may then measure and
// choose, together with the other ranks. Where Config.Save fails it breaks the group: the others, which may save nothing, fail at once,
// and name this rank.
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

// next ends a phase.
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

// verifySteps is over how many steps a prediction is compared: the first selects
// exactly, where others need not, and three more of its kind follow if they come soon,
// so that one which something else disturbed does not decide.
func (t *Tuner) verifySteps() int {
	if c := t.candidate(t.choice.Strategy); c.reuses() {
		return max(measureSteps, min(4*c.Every, watchSteps))
	}
	return measureSteps
}

// choose predicts every candidate's step and goes on with the one to go on with.
func (t *Tuner) choose(f bucket.Profile, why string) error {
	t.all = nil // reports have the old ones
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
			_ = t.g.Fail(err) // which is this fault
			return err
		}
	}
	return t.enter(settled, settleSteps)
}

// adopt makes the optimizer's strategy and plan those of a prediction.
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

// fromProfile chooses by what was measured before.
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

// asSaved goes on with the plan that a profile holds, where it has no costs to predict a
// step by: it was made for another cluster, or one that was not there.
func (t *Tuner) asSaved(f bucket.Profile) error {
	if err := t.make(Choice{Plan: SavedPlan, Ends: f.SavedPlan().Ends()}); err != nil {
		return err
	}
	t.chosen = true
	t.report(Report{Reason: "as saved; the profile has no costs of this job to predict steps by"})
	return nil
}

// fits reports a profile of another model than the layers are of.
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

// State is what a checkpoint holds of a Tuner.
type State struct {
	// Chosen says that there is a choice to keep.
	Chosen bool `json:"chosen"`
	// Made is all that was done to the Optimizer so far, before a checkpoint that the run goes on from, too. As
	// Config.Choices it makes another run the same, without measuring.
	Made Choices `json:"made"`
}

// State is that of a checkpoint which is saved now.
func (t *Tuner) State() State { return State{t.chosen, slices.Clone(t.applied)} }

// Resumed says that the optimizer was restored from a checkpoint, and what that held, or with the zero State that there was
// none to restore from. A choice that the saved run had made is kept, unless this run was told to measure. It is a
// collective call before the first step.
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

// Measuring tells whether steps are still measured for a choice, or compared with it.
func (t *Tuner) Measuring() bool { return t.phase != idle && t.phase != watching }

// Spent is the time that measuring and choosing have taken so far, at the ends of Steps and
// part of none: seconds where codecs and links are measured.
func (t *Tuner) Spent() time.Duration { return t.spent }

// Stay keeps the choice for good: times are no longer watched. It is called between
// steps, on every rank the same.
func (t *Tuner) Stay() error {
	t.opt.EndProfile()
	t.phase, t.profiler = idle, nil
	return t.opt.SetSharding(true)
}

// Choice is what steps go on with by a prediction; ok is false where nothing was
// predicted.
func (t *Tuner) Choice() (p Prediction, ok bool) { return t.choice, t.choice.Strategy != "" }

// Profile is what was measured, with the plan that was made of it; ok is false while
// there is none.
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

// recent are the last ones, as many as a Profiler keeps.
func recent(x []float64) []float64 { return x[max(0, len(x)-measureSteps):] }

func medianOr0(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	return medianOf(x)
}
