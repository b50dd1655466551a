package bindings

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/tune"
)

// Tuning configures the choice of a Strategy's buckets and, under "auto", of the strategy: by
// package tune, as in `ringo train`.
type Tuning struct {
	// Plan is the plan's name: one of tune.Plans; empty: "exact".
	Plan string
	// Order is a permutation of all parameters, in backward's order, and Ends the end of each layer
	// in Order. A layer's parameters always share a bucket.
	Order, Ends []int
	// Choices are the choices of an earlier run of Steps steps (see Report), made again after the
	// same steps, without measuring. Empty: none.
	Choices string
	Steps   int64
	// Profile is an earlier run's profile (Report, tune.Encode), instead of measuring; nil: none.
	Profile []byte
}

// tuned connects a Strategy to a Tuner. The strategy's mutex guards the fields, except the tuner,
// guarded by steps.
type tuned struct {
	s      *Strategy
	tuner  *tune.Tuner
	layers []bucket.Param
	order  []int
	ends   []int // number of parameters up to the layer's end, by layer

	plan     bucket.Plan
	planName string
	steps    int64
	changes  int         // number of changes of strategy or buckets
	report   tune.Report // the last choice's report
	measured *tune.Measured
	watch
}

// watch times the steps of a caller's loop.
type watch struct {
	profiler *bucket.Profiler // nil: no profile in progress
	begun    time.Time        // the step's start
	ready    time.Time        // last gradient final, or last bucket compressed
	ended    time.Time        // the last exchange's end
	compress time.Duration
	bytes    int64
	entries  int
	last     distopt.StepTimes
}

// Tune plans the buckets from now on and, under "auto", chooses the strategy: the first steps, with
// one bucket, are measured. Tune is a collective call between exchanges, with the same Tuning on
// every rank. Afterwards Buckets returns the buckets, and the caller calls Ready for each layer
// with final gradients, and Step after each step.
func (s *Strategy) Tune(t Tuning) error {
	s.steps.Lock()
	defer s.steps.Unlock()
	cfg, err := s.tuning(t)
	if err == nil {
		s.mu.Lock()
		err = s.landed()
		s.mu.Unlock()
	}
	// A rank with an error informs the other ranks, which would otherwise wait.
	if differ := s.agree(fmt.Sprintf("%v %v %v", t, cfg.Exchange, err)); err == nil {
		err = differ
	}
	if err != nil {
		return err
	}
	d, err := s.untuned(t)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.tuned = d
	s.mu.Unlock()
	cfg.Report = d.setReport
	if d.tuner, err = tune.New(s.group, d, d.layers, nil, cfg); err != nil {
		s.mu.Lock()
		s.tuned = nil
		s.mu.Unlock()
		return misused(err)
	}
	return nil
}

func (s *Strategy) tuning(t Tuning) (cfg tune.Config, err error) {
	cfg.Exchange = distopt.Config{Strategy: s.cfg.Strategy, Spars: s.density, Plan: t.Plan}
	if s.auto {
		cfg.Exchange.Strategy = tune.Auto
		cfg.Among = []distopt.Strategy{distopt.FP32, distopt.FP16, distopt.BF16, distopt.DLGS}
	}
	if t.Plan == "" {
		cfg.Exchange.Plan = "exact"
	}
	if err := cfg.Choices.UnmarshalText([]byte(t.Choices)); err != nil {
		return cfg, Misusef("choices: %v", err)
	}
	if len(t.Profile) > 0 {
		f, err := tune.Decode(t.Profile)
		if err != nil {
			return cfg, Misusef("%v", err)
		}
		if cfg.Profile = f.Planner; f.Planner == nil {
			return cfg, Misusef("the profile has nothing to plan by: it is of collectives alone")
		}
	}
	cfg.Measure = len(cfg.Choices) == 0 && cfg.Profile == nil
	if t.Steps < 0 {
		return cfg, Misusef("%d steps were done", t.Steps)
	}
	if err := cfg.Validate(); err != nil {
		return cfg, Misusef("%v", err)
	}
	return cfg, nil
}

// untuned gives each layer a bucket, and resets "auto" to its first strategy.
func (s *Strategy) untuned(t Tuning) (*tuned, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tuned = nil
	if err := s.arrange(t.Order, t.Ends); err != nil {
		return nil, err
	}
	if s.auto {
		if err := s.become(distopt.FP32); err != nil {
			return nil, err
		}
	}
	d := &tuned{s: s, order: t.Order, ends: t.Ends, steps: t.Steps, planName: distopt.PlanPerLayer}
	first := 0
	for l, b := range s.buckets {
		d.layers = append(d.layers, bucket.Param{Name: s.params[t.Order[first]].Name, Offset: b.Lo, Len: b.Hi - b.Lo})
		first = t.Ends[l]
	}
	d.plan, d.begun = bucket.PerLayer(d.layers), time.Now()
	return d, nil
}

// Ready marks the gradients of a layer of Tuning as final now, in any order of layers, once per
// step.
func (s *Strategy) Ready(layer int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.tuned
	switch {
	case d == nil:
		return notTuned("ready")
	case layer < 0 || layer >= len(d.layers):
		return Misusef("layer %d is none of %d", layer, len(d.layers))
	}
	d.ready = time.Now()
	if d.profiler == nil {
		return nil
	}
	if err := d.profiler.Ready(layer, d.ready.Sub(d.begun)); err != nil {
		return Misusef("%v", err)
	}
	return nil
}

func notTuned(what string) error {
	return Misusef("%s: the buckets are the caller's own: tune comes first, and arrange ends it", what)
}

// Step ends a step after all its exchanges, and reports whether strategy or buckets change now.
// Step may measure and choose, together with the other ranks, which takes seconds.
func (s *Strategy) Step() (changed bool, err error) {
	s.steps.Lock()
	defer s.steps.Unlock()
	s.mu.Lock()
	d, err := s.tuned, s.landed()
	s.mu.Unlock()
	if err == nil && d == nil {
		err = notTuned("step")
	}
	if err != nil {
		return false, err
	}
	before := d.changes
	if err := d.tuner.Step(); err != nil {
		return false, err
	}
	return d.changes > before, nil
}

// Buckets are the ends of the buckets, in layers.
func (s *Strategy) Buckets() ([]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tuned == nil {
		return nil, notTuned("buckets")
	}
	out := s.tuned.plan.Ends()
	for i := range out {
		out[i]++
	}
	return out, nil
}

// agree reports ranks with different arguments.
func (s *Strategy) agree(what string) error {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(what)) // never fails
	all := make([]int64, s.group.Size())
	if err := collective.AllGather(s.group, all, []int64{int64(hash.Sum64())}); err != nil {
		return err
	}
	for rank, theirs := range all {
		if theirs != all[0] {
			return Misusef("rank %d of the group tunes something else than rank 0: want the same strategy, plan, order, layers, choices and profile on all ranks", rank)
		}
	}
	return nil
}

// misused turns a caller's error, such as a profile of another model, into a Misuse.
func misused(err error) error {
	if code, _ := Of(err); code == Failed {
		return Misusef("%v", err)
	}
	return err
}

// become changes the strategy. The old strategy's residual joins the next gradients, or stays if
// the new strategy keeps a residual, too. s.mu is held.
func (s *Strategy) become(name distopt.Strategy) error {
	if s.cfg.Strategy == name {
		return nil
	}
	cfg := distopt.Config{Strategy: name}
	if i, err := distopt.Lookup(name); err == nil && i.HasEffect(distopt.SettingSpars) {
		cfg.Spars = s.density
	}
	chain, code, err := chainOf(cfg)
	if err != nil {
		return err
	}
	local, kept := localOf(chain, code), s.owes || s.local.Chain().Feedback()
	if err := s.local.Change(local); err != nil {
		return err
	}
	s.cfg, s.chain, s.code, s.owes = cfg, chain, code, kept && !local.Feedback()
	return nil
}

// settle drops, after a step, the old strategy's sent residual.
func (s *Strategy) settle() error {
	if !s.owes || !s.local.Chain().Identity() {
		return nil
	}
	s.owes = false
	params := make([]compress.Param, len(s.tuned.order))
	for i, p := range s.tuned.order {
		params[i] = s.params[p]
	}
	local, err := s.bind(params, s.tuned.values())
	if err == nil {
		err = local.SetGroups(s.buckets)
	}
	if err == nil {
		s.local = local
	}
	return err
}

var _ tune.Optimizer = (*tuned)(nil)

func (d *tuned) values() int {
	l := d.layers[len(d.layers)-1]
	return l.Offset + l.Len
}

// compressed counts the start of a bucket's exchange. s.mu is held.
func (d *tuned) compressed(start time.Time) {
	d.ready = time.Now()
	took := d.ready.Sub(start)
	d.compress += took
	if d.profiler != nil {
		d.profiler.Exclude(took)
	}
}

// exchanged counts the end of an exchange. s.mu is held.
func (d *tuned) exchanged(sent exchange.Result) {
	d.ended = time.Now()
	d.bytes += sent.Bytes
	d.entries += sent.Entries
}

// Step ends a step's times.
func (d *tuned) Step() error {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	now := time.Now()
	exposed := max(0, d.ended.Sub(d.ready))
	if d.ended.Before(d.begun) { // no exchange
		exposed = 0
	}
	agreed := d.ready
	if d.ended.After(agreed) {
		agreed = d.ended
	}
	anew, reuses := d.s.anew()
	d.last = distopt.StepTimes{
		Compress: d.compress, Exposed: exposed, Dense: exposed, Update: min(now.Sub(d.begun), now.Sub(agreed)), BytesSent: d.bytes,
		Density: min(1, float64(d.entries)/float64(d.values())), Reuses: reuses, ExactShare: float64(anew) / float64(d.values()),
	}
	d.begun, d.compress, d.bytes, d.entries = now, 0, 0, 0
	if d.profiler != nil {
		if err := d.profiler.End(); err != nil {
			return Misusef("%v: say of each layer when it is ready", err)
		}
	}
	d.steps++
	return d.s.settle()
}

// anew is the number of values in buckets with an exact last selection, for reused thresholds.
func (s *Strategy) anew() (values int, reuses bool) {
	if !s.chain.Reuses() {
		return 0, false
	}
	for b, g := range s.buckets {
		if s.local.Last(b, 0).Exact {
			values += g.Hi - g.Lo
		}
	}
	return values, true
}

func (d *tuned) Steps() int64               { return d.steps }
func (d *tuned) Times() distopt.StepTimes   { return d.last }
func (d *tuned) Reducer() exchange.Reducer  { return d.s.reducer }
func (d *tuned) Strategy() distopt.Strategy { return d.s.cfg.Strategy }
func (d *tuned) Plan() bucket.Plan          { return d.plan }
func (d *tuned) PlanName() string           { return d.planName }
func (d *tuned) CanShard() bool             { return false } // the caller updates
func (d *tuned) SetSharding(bool) error     { return nil }

// Prepare has no effect: NewStrategy has the density, the only setting.
func (d *tuned) Prepare(float64, int, compress.Rule) error { return nil }

// Spars is the share or the threshold of the strategy's selections.
func (d *tuned) Spars() float64 { return d.s.cfg.Resolved().Spars }

func (d *tuned) SetStrategy(name distopt.Strategy) error {
	if err := d.s.agree(string(name)); err != nil {
		return err
	}
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if name != d.s.cfg.Strategy {
		d.changes++
	}
	return d.s.become(name)
}

// SetPlan adopts rank 0's plan.
func (d *tuned) SetPlan(name string, p bucket.Plan) error {
	ends := make([]int32, len(d.layers)+1) // number of ends, then the ends
	ends[0] = int32(len(p))
	for i, b := range p {
		ends[i+1] = int32(b.Last)
	}
	if err := collective.Broadcast(d.s.group, ends, 0); err != nil {
		return err
	}
	last := make([]int, min(max(0, int(ends[0])), len(d.layers)))
	for i := range last {
		last[i] = int(ends[i+1])
	}
	p, err := bucket.Cut(d.layers, last)
	if err != nil {
		return fmt.Errorf("rank 0's plan: %w", err)
	}
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.planName = name
	if slices.Equal(p, d.plan) {
		return nil
	}
	groups := make([]compress.Bucket, len(p))
	for i, b := range p {
		groups[i] = compress.Bucket{Lo: b.Lo, Hi: b.Hi}
	}
	d.s.use(groups)
	d.plan = p
	d.changes++
	return d.s.reselect()
}

// reselect makes the next selections of all buckets exact. s.mu is held.
func (s *Strategy) reselect() error {
	if err := s.local.SetGroups(nil); err != nil {
		return err
	}
	return s.local.SetGroups(s.buckets)
}

func (d *tuned) Reselect() error {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	return d.s.reselect()
}

func (d *tuned) Profile(steps int) (*bucket.Profiler, error) {
	p, err := bucket.NewProfiler(len(d.layers), steps)
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.profiler, d.begun = p, time.Now()
	return p, err
}

func (d *tuned) EndProfile() {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.profiler = nil
}

func (d *tuned) BeginForward() {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.begun = time.Now()
}
