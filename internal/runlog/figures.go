package runlog

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Last returns the spread over runs of a field's last value.
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

// Steady returns the spread over runs of a field's mean over epochs. A run's first epoch is
// excluded if others follow, because of one-time work in that epoch.
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

// Total returns the spread over runs of a field's sum over epochs. Runs without the field are
// ignored.
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

// Part is a part of a step's time.
type Part struct {
	Name string
	MS   Spread
}

// Parts returns the sequential parts of a step's time: means over epochs except the first.
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

// Metrics returns the metrics that any run declares or, in older files, the metrics in the epochs'
// records; metrics that only records include are excluded. The loss is the last one.
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
	// Runs are compared by the first metric by default: the model's main metric, if the model has
	// any.
	return append(out, Metric{Name: "loss", Title: "loss", Lower: true})
}

// MetricNamed returns the metric of a name.
func MetricNamed(all []RunSet, name string) (Metric, error) {
	var known []string
	for _, m := range Metrics(all) {
		if m.Name == name {
			return m, nil
		}
		known = append(known, m.Name)
	}
	return Metric{}, fmt.Errorf("%s: the evaluations have %s", name, strings.Join(known, ", "))
}

// Text returns a value as text.
func (m Metric) Text(v float64) string {
	if m.Percent {
		return fmt.Sprintf("%.2f%%", 100*v)
	}
	return quantity.FloatDigits(v, 4)
}

// Better reports whether v is at least as good as than.
func (m Metric) Better(v, than float64) bool {
	if m.Lower {
		return v <= than
	}
	return v >= than
}

// Best returns the best value of a metric over a run's evaluations, or NaN without a value. The
// epoch is the first with that value.
func (r *Run) Best(m Metric) (value float64, epoch int) {
	// A run that once had a value has reached the value, regardless of later ones: a user who waits
	// for the value would have stopped there.
	return r.evaluation(m, func(v, best float64) bool { return !m.Better(best, v) })
}

// Latest is Best for the last value.
func (r *Run) Latest(m Metric) (value float64, epoch int) {
	return r.evaluation(m, func(_, _ float64) bool { return true })
}

// evaluation goes through the values in order, and returns the last one that replaces the value so
// far.
func (r *Run) evaluation(m Metric, replaces func(v, old float64) bool) (value float64, epoch int) {
	value = math.NaN()
	for i, v := range r.Epochs.Column("eval_" + m.Name) {
		if !math.IsNaN(v) && (math.IsNaN(value) || replaces(v, value)) {
			value, epoch = v, r.Epochs.Epoch[i]
		}
	}
	return value, epoch
}

// Common returns the best value that all runs reach; NaN if a run has no value. It is the default
// target of a report: a better target would not be reached by all runs.
func Common(all []RunSet, m Metric) float64 {
	out := math.NaN()
	for _, g := range all {
		for _, r := range g.Runs {
			best, _ := r.Best(m)
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

// Reached is the time at which a group's runs reach a target: the end of the first epoch with an
// evaluation at least as good.
type Reached struct {
	// Runs is the number of runs that reached the target, and Of the number of runs.
	Runs, Of int
	// WallS is the time in seconds until then, including evaluations and preparations. Epoch and
	// Done are the epoch and the number of steps.
	WallS, Epoch, Done Spread
}

// Reach returns the time at which the group's runs reach a target of a metric.
func (g RunSet) Reach(m Metric, target float64) Reached {
	out := Reached{Of: len(g.Runs)}
	var walls, epochs, done []float64
	for _, r := range g.Runs {
		if r.evaluated {
			out.Of--
			continue
		}
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
