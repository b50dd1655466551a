package tune

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// measure ends the computation's profile, times codecs and links, and chooses.
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
	if codec, ok := f.Codec(t.candidate(string(t.opt.Strategy())).codec(), 0); ok { // part of the update
		f.Update = max(0, f.Update-codec.After.At(t.values))
	}
	return t.choose(f, "")
}

// densities measures the density of a strategy without a configured density, such as a threshold,
// from the phase's steps.
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

// sent measures the sent entries of steps with reused thresholds, relative to the density. The rank
// with the most entries delays all ranks, and may differ from step to step.
func (t *Tuner) sent(f *bucket.Profile) error {
	c := t.candidate(string(t.opt.Strategy()))
	if !c.reuses() || c.Density == 0 || t.spars != t.opt.Spars() { // changed by a warm-up meanwhile
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

// computation is the profile of the phase's steps, without costs.
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
	// The rest is computation and the caller's time between steps, such as waits for data. The
	// slowest rank may differ from step to step.
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

// atEnd are the candidates at the final density, if different from the current density: a later run
// with the profile plans for the final density.
func (t *Tuner) atEnd() ([]Candidate, error) {
	if t.auto || t.cfg.Exchange.Density() == 0 || t.cfg.Exchange.Density() == t.candidates[0].Density {
		return nil, nil
	}
	return t.cfg.candidates()
}

// current sets the candidates to the current density, which a warm-up changes over a run.
func (t *Tuner) current() (err error) {
	cfg := t.cfg
	spars := t.opt.Spars()
	if t.auto || spars == 0 || cfg.Exchange.Density() == 0 || spars == t.candidates[0].Density {
		return nil
	}
	cfg.Exchange.Spars = spars
	return t.makeCandidates(cfg)
}

// costs measures the candidates' codecs and exchanges.
func (t *Tuner) costs(f *bucket.Profile) error {
	if err := t.current(); err != nil {
		return err
	}
	f.Codecs, f.Links = nil, nil
	type wire struct { // a class of exchanges with equal costs
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
			w.unit = 0 // random within a density
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

// verify compares the steps since the choice with the prediction.
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

// compare reports the phase's steps.
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

// End reports the steps of a run that ends ahead of verification, or the lack of a choice. End is a
// collective call after the last step.
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

// measured holds the slowest rank's times of the phase's steps.
func (t *Tuner) measured() (Measured, error) {
	exact, reuse := t.steps.split(t.candidate(t.choice.Strategy).reuses())
	all := []float64{medianOf(t.steps.total), medianOf(t.steps.exposed), medianOr0(exact), medianOr0(reuse)}
	if err := slowest(t.g, all); err != nil {
		return Measured{}, err
	}
	m := Measured{Step: all[0], Exposed: all[1], Exact: all[2], Reuse: all[3], Steps: len(t.steps.total)}
	if c := t.candidate(t.choice.Strategy); c.reuses() && m.Exact > 0 && m.Reuse > 0 {
		m.Step = m.Reuse + (m.Exact-m.Reuse)/float64(c.Every) // the prediction's mean
	}
	return m, nil
}

// split separates steps with almost all selections exact from steps with almost none or, if no such
// step exists, with some exact selections. Without reuses, all steps are in reuse.
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

// look compares the last steps with the steps after the choice. Drift confirmed some steps later
// leads to a new choice.
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
	t.period *= 2 // a restless machine is not measured all the time
	if f, err = t.alone(f); err != nil {
		return err
	}
	if err := t.densities(); err != nil {
		return err
	}
	f.Update = t.planned.Update // the measured update overlaps exchanges
	if err := t.costs(&f); err != nil {
		return err
	}
	if err := t.sent(&f); err != nil {
		return err
	}
	return t.choose(f, fmt.Sprintf("again: steps have moved by %s", quantity.Percent(drift)))
}

// alone corrects a computation that was measured during exchanges: it shortens each layer's
// backward by the share of time that exchanges cost backward in the prediction.
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
