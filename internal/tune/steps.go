package tune

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// measure ends the profiling of the computation: it times codecs and links, and
// chooses.
func (t *Tuner) measure() error {
	if t.cfg.Measuring != nil {
		t.cfg.Measuring()
	}
	f, err := t.computation()
	if err != nil {
		return err
	}
	if err := t.densities(); err != nil {
		return err
	}
	if err := t.costs(&f); err != nil {
		return err
	}
	if err := t.sent(&f); err != nil {
		return err
	}
	if codec, ok := f.Codec(t.candidate(string(t.opt.Strategy())).codec(), 0); ok { // it was part of the update
		f.Update = max(0, f.Update-codec.After.At(t.values))
	}
	return t.choose(f, "")
}

// densities finds the density of a strategy that does not say it, such as that of a
// threshold, in the steps of this phase.
func (t *Tuner) densities() error {
	if t.auto || t.cfg.Exchange.Density() > 0 {
		return nil
	}
	seen := []float64{min(1, max(1e-9, medianOf(t.steps.density)))}
	if err := slowest(t.g, seen); err != nil {
		return err
	}
	for i, c := range t.candidates {
		if c.sparse() {
			t.candidates[i].Density = seen[0]
		}
	}
	return nil
}

// sent finds how much more than asked for steps send that reuse thresholds, where those of
// this phase do. The rank that sends most keeps the others waiting, and need not be that of
// the next step.
func (t *Tuner) sent(f *bucket.Profile) error {
	c := t.candidate(string(t.opt.Strategy()))
	if !c.reuses() || c.Density == 0 || t.spars != t.opt.Spars() { // a warm-up has changed it meanwhile
		return nil
	}
	n := len(t.steps.density)
	all := append(slices.Clone(t.steps.density), t.steps.exactShare...)
	if err := slowest(t.g, all); err != nil {
		return err
	}
	var reused []float64
	for i, d := range all[:n] {
		if all[n+i] <= 0.1 {
			reused = append(reused, d/c.Density)
		}
	}
	for i := range f.Codecs {
		if f.Codecs[i].Name == c.codec() && len(reused) > 0 {
			f.Codecs[i].Sent = medianOf(reused)
		}
	}
	return nil
}

// computation is the profile of the steps of this phase, without costs.
func (t *Tuner) computation() (bucket.Profile, error) {
	f := bucket.Profile{Model: t.cfg.Model, Ranks: t.g.Size(), Batch: t.cfg.Batch}
	forward, backward, err := t.profiler.Medians()
	if err != nil {
		return f, fmt.Errorf("tune: %w", err)
	}
	if f.Forward, f.Update, backward, err = computation(t.g, forward, medianOf(recent(t.steps.update)), backward); err != nil {
		return f, err
	}
	rows := []float64{medianOf(recent(t.steps.rows))}
	if err := slowest(t.g, rows); err != nil {
		return f, err
	}
	f.Rows = rows[0]
	// What is neither exchange nor update is computation, and what the caller does
	// between steps: waiting for data, for one. The slowest rank of a step need not
	// be that of the next.
	whole := slices.Clone(recent(t.steps.compute))
	if err := slowest(t.g, whole); err != nil {
		return f, err
	}
	all := f.Forward
	for _, b := range backward {
		all += b
	}
	if more := medianOf(whole) / all; more > 1 {
		f.Forward *= more
		for i := range backward {
			backward[i] *= more
		}
	}
	for i, l := range t.layers {
		f.Layers = append(f.Layers, bucket.LayerProfile{Name: l.Name, Values: l.Len, Backward: backward[i]})
	}
	return f, nil
}

// atEnd are the candidates of the share that is sent in the end, where that is another than
// now: who starts again by what is measured plans for it.
func (t *Tuner) atEnd() ([]Candidate, error) {
	if t.auto || t.cfg.Exchange.Density() == 0 || t.cfg.Exchange.Density() == t.candidates[0].Density {
		return nil, nil
	}
	return t.cfg.candidates()
}

// current makes the candidates those of the share that is sent now, which a warm-up
// changes over a run.
func (t *Tuner) current() (err error) {
	cfg := t.cfg
	spars := t.opt.Spars()
	if t.auto || spars == 0 || cfg.Exchange.Density() == 0 || spars == t.candidates[0].Density {
		return nil
	}
	cfg.Exchange.Spars = spars
	return t.makeCandidates(cfg)
}

// costs measures what the candidates' codecs and exchanges cost.
func (t *Tuner) costs(f *bucket.Profile) error {
	if err := t.current(); err != nil {
		return err
	}
	f.Codecs, f.Links = nil, nil
	type wire struct { // exchanges that cost the same
		sparse  bool
		density float64
		unit    float64
	}
	type cost struct {
		links []bucket.LinkProfile
		calls Calls
	}
	seen := map[wire]cost{}
	last, err := t.atEnd()
	if err != nil {
		return err
	}
	arena := t.grads
	if arena == nil {
		arena = make([]float32, t.values)
	}
	for _, c := range slices.Concat(t.candidates, last) {
		codec, unit, err := Codec(t.g, c, t.cfg.Exchange.Pool, t.values)
		if err != nil {
			return err
		}
		w := wire{c.sparse(), c.Density, c.payload(unit).Unit}
		if w.sparse {
			w.unit = 0 // its entries may differ by chance
		}
		known, ok := seen[w]
		if !ok {
			if known.links, known.calls, err = Exchange(t.g, t.opt.Reducer(), c, unit, arena); err != nil {
				return err
			}
			seen[w] = known
		}
		if c.Chain != nil {
			codec.Exact, codec.Reuse = codec.Exact.Plus(known.calls.Start), codec.Reuse.Plus(known.calls.Start)
			codec.After = known.calls.Wait
			f.Codecs = append(f.Codecs, codec)
		}
		if ok && w.sparse {
			continue // the same lines
		}
		for _, l := range known.links {
			l.Code = c.code()
			f.Links = append(f.Links, l)
		}
	}
	return nil
}

// verify compares the steps since the choice with what was predicted.
func (t *Tuner) verify() error {
	m, err := t.compare("")
	if err != nil {
		return err
	}
	f, err := t.computation()
	if err != nil {
		return err
	}
	t.usual = baseline{step: f.Step(), exposed: m.Exposed, total: m.Step}
	return t.enter(watching, t.period)
}

// compare tells how the steps of this phase went.
func (t *Tuner) compare(why string) (Measured, error) {
	m, err := t.measured()
	if err != nil {
		return m, err
	}
	if c := t.candidate(t.choice.Strategy); c.reuses() && (m.Exact == 0 || m.Reuse == 0) {
		which := "exactly"
		if m.Reuse == 0 {
			which = "by a threshold found before"
		}
		why = strings.TrimPrefix(why+"; no step selected "+which+", and the figure is of the others alone", "; ")
	}
	t.report(Report{Measured: &m, Reason: why})
	return m, nil
}

// End tells how steps went so far where the run ends before they were compared with the
// prediction, or that nothing was chosen. It is a collective call after the last step.
func (t *Tuner) End() error {
	switch t.phase {
	case settling, profiling:
		t.report(Report{Reason: "the run ended before its steps were measured: nothing was chosen"})
	case settled, verifying:
		if len(t.steps.total) > 0 {
			if _, err := t.compare("the run ended early"); err != nil {
				return err
			}
		}
	}
	return t.Stay()
}

// measured are the times of the phase's steps, of the slowest rank.
func (t *Tuner) measured() (Measured, error) {
	exact, reuse := t.steps.split(t.candidate(t.choice.Strategy).reuses())
	all := []float64{medianOf(t.steps.total), medianOf(t.steps.exposed), medianOr0(exact), medianOr0(reuse)}
	if err := slowest(t.g, all); err != nil {
		return Measured{}, err
	}
	m := Measured{Step: all[0], Exposed: all[1], Exact: all[2], Reuse: all[3], Steps: len(t.steps.total)}
	if c := t.candidate(t.choice.Strategy); c.reuses() && m.Exact > 0 && m.Reuse > 0 {
		m.Step = m.Reuse + (m.Exact-m.Reuse)/float64(c.Every) // as it is predicted
	}
	return m, nil
}

// split are the times of steps that selected nearly all anew and of those that selected
// hardly anything so or, where there is none, less than nearly all; without reuses all
// steps are alike.
func (s *stepTimes) split(reuses bool) (exact, reuse []float64) {
	var between []float64
	for i, t := range s.total {
		switch {
		case !reuses || s.exactShare[i] <= 0.1:
			reuse = append(reuse, t)
		case s.exactShare[i] >= 0.9:
			exact = append(exact, t)
		default:
			between = append(between, t)
		}
	}
	if len(reuse) == 0 {
		reuse = between
	}
	return exact, reuse
}

// look compares the last steps with those when the choice was new. Where they have moved
// too far, and have so some steps later, it chooses anew.
func (t *Tuner) look() error {
	f, err := t.computation()
	if err != nil {
		return err
	}
	exposed := []float64{medianOf(recent(t.steps.exposed))}
	if err := slowest(t.g, exposed); err != nil {
		return err
	}
	drift := max(bucket.Drift(t.usual.step, f.Step()), (exposed[0]-t.usual.exposed)/t.usual.total, (t.usual.exposed-exposed[0])/t.usual.total)
	doubted := t.driftSuspected
	if t.driftSuspected = drift >= driftBound && !doubted; t.driftSuspected {
		return t.enter(watching, measureSteps)
	}
	if drift < driftBound {
		return t.enter(watching, t.period)
	}
	t.replans++
	t.period *= 2 // a machine that never settles is not measured all the time
	if f, err = t.alone(f); err != nil {
		return err
	}
	if err := t.densities(); err != nil {
		return err
	}
	f.Update = t.planned.Update // some of this one's happened while groups travelled
	if err := t.costs(&f); err != nil {
		return err
	}
	if err := t.sent(&f); err != nil {
		return err
	}
	return t.choose(f, fmt.Sprintf("again: steps have moved by %s", quantity.Percent(drift)))
}

// alone takes off a computation that was measured beside exchanges what these took from
// it, by the last prediction: what the planned step lost, backward lost in proportion.
func (t *Tuner) alone(f bucket.Profile) (bucket.Profile, error) {
	c := t.candidate(t.choice.Strategy)
	step, err := stepOf(t.planned, c, t.g.Size(), t.g.Hosts(), serversOf(t.opt.Reducer()))
	if err != nil {
		return f, err
	}
	_, _, mean := step.Kinds(codecOf(t.planned, c), c.Every)
	backward := 0.0
	for _, b := range step.Backward {
		backward += b
	}
	if busy := bucket.Predict(mean, t.choice.Plan).Busy; backward > 0 {
		for i := range f.Layers {
			f.Layers[i].Backward *= backward / (backward + busy)
		}
	}
	return f, nil
}
