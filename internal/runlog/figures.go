package runlog

import (
	"math"
	"slices"
	"strings"
)

// Last is the field of the last record that has it, by run.
func (g RunSet) Last(table func(*Run) *Table, field string) Spread {
	var values []float64
	for _, r := range g.Runs {
		for _, v := range slices.Backward(table(r).Column(field)) {
			if !math.IsNaN(v) {
				values = append(values, v)
				break
			}
		}
	}
	return SpreadOf(values)
}

// Steady is the mean of a field over a run's epochs but the first, in which much happens once, where there are more, by run.
func (g RunSet) Steady(field string) Spread {
	var values []float64
	for _, r := range g.Runs {
		c := r.Epochs.Column(field)
		if len(c) > 1 {
			c = c[1:]
		}
		values = append(values, SpreadOf(c).Mean)
	}
	return SpreadOf(values)
}

// Total is the sum of a field over a run's epochs, by run; of a run without it there is none.
func (g RunSet) Total(field string) Spread {
	var values []float64
	for _, r := range g.Runs {
		sum, known := 0., false
		for _, v := range r.Epochs.Column(field) {
			if !math.IsNaN(v) {
				sum, known = sum+v, true
			}
		}
		if known {
			values = append(values, sum)
		}
	}
	return SpreadOf(values)
}

// Part is where some of a step's time goes.
type Part struct {
	Name string
	MS   Spread
}

// Parts are where a step's time goes, one after the other: a mean over epochs but the first.
func (g RunSet) Parts() []Part {
	data, pull := g.Steady("data_wait_ms"), g.Steady("pull_wait_ms")
	compute := g.Steady("compute_ms")
	for _, w := range []Spread{data, pull} {
		if w.N > 0 { // both waits are parts of compute_ms
			compute.Mean -= w.Mean
			compute.Low, compute.High = compute.Low-w.Mean, compute.High-w.Mean
		}
	}
	return []Part{
		{"forward and backward", compute}, {"waiting for data", data}, {"waiting for servers", pull}, {"codecs", g.Steady("compress_ms")},
		{"exposed exchange", g.Steady("exposed_comm_ms")}, {"update", g.Steady("update_ms")},
	}
}

// Metrics are those that all runs say of themselves or, of older files, what their epochs have; details are left out. A figure of the
// loss is the last one.
func Metrics(all []RunSet) (out []Metric) {
	add := func(m Metric) {
		if !m.Detail && !slices.ContainsFunc(out, func(o Metric) bool { return o.Name == m.Name }) {
			out = append(out, m)
		}
	}
	for _, g := range all {
		for _, r := range g.Runs {
			for _, m := range r.Info.Metrics {
				add(m)
			}
			for _, name := range r.Epochs.Names() {
				if short, is := strings.CutPrefix(name, "eval_"); is && short != "loss" && r.older() {
					add(Metric{Name: short, Title: short, Percent: short == "accuracy", Lower: short != "accuracy" && short != "auc"})
				}
			}
		}
	}
	// The first one is what runs are compared by unless another is asked for: the model's own, where it has any.
	return append(out, Metric{Name: "loss", Title: "loss", Lower: true})
}

// Better says whether a figure is at least as good as another.
func (m Metric) Better(v, than float64) bool {
	if m.Lower {
		return v <= than
	}
	return v >= than
}

// Best is the best figure of a run's evaluations, NaN without any.
func (r *Run) Best(m Metric) float64 {
	// A run that has had a figure once has reached it, whatever came later: who waits for it would have stopped there.
	best := math.NaN()
	for _, v := range r.Epochs.Column("eval_" + m.Name) {
		if !math.IsNaN(v) && (math.IsNaN(best) || m.Better(v, best)) {
			best = v
		}
	}
	return best
}

// Common is the best figure that all runs reach; NaN where one has none. It is the target of a report that was asked for none: any
// better one would leave a run without a time.
func Common(all []RunSet, m Metric) float64 {
	out := math.NaN()
	for _, g := range all {
		for _, r := range g.Runs {
			best := r.Best(m)
			if math.IsNaN(best) {
				return best
			}
			if math.IsNaN(out) || m.Better(out, best) {
				out = best
			}
		}
	}
	return out
}

// Reached is when runs of a group have reached a figure: at the end of the first epoch whose evaluation has it.
type Reached struct {
	// Runs is how many have, of how many.
	Runs, Of int
	// WallS are the seconds that those runs had taken, evaluations and preparations included; Epoch and Done what they had done.
	WallS, Epoch, Done Spread
}

// Reach finds when the group's runs have reached a figure of the evaluation.
func (g RunSet) Reach(m Metric, target float64) Reached {
	out := Reached{Of: len(g.Runs)}
	var walls, epochs, done []float64
	for _, r := range g.Runs {
		for i, v := range r.Epochs.Column("eval_" + m.Name) {
			if !math.IsNaN(v) && m.Better(v, target) {
				out.Runs++
				walls, epochs, done = append(walls, r.Epochs.WallS[i]), append(epochs, float64(r.Epochs.Epoch[i])), append(done, float64(r.Epochs.Done[i]))
				break
			}
		}
	}
	out.WallS, out.Epoch, out.Done = SpreadOf(walls), SpreadOf(epochs), SpreadOf(done)
	return out
}
