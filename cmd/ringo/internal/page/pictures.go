package page

import (
	"github.com/ringo-ml/ringo/internal/chart"
	"github.com/ringo-ml/ringo/internal/runs"
)

// shownPoints is how many of a curve's are drawn; more are brought together, with their whole spread. A page of a run of a million
// steps is no larger than one of a thousand.
const shownPoints = 300

// axis is what curves are drawn over.
type axis struct {
	label string
	of    func(runs.Point) float64
}

// Steps are not the same work where batches differ, and epochs not the same time where strategies do: each curve is drawn over what
// it is compared by.
var (
	bySteps  = axis{"step", func(p runs.Point) float64 { return float64(p.Done) }}
	byEpochs = axis{"epoch", func(p runs.Point) float64 { return float64(p.Epoch) }}
	byTime   = axis{"seconds", func(p runs.Point) float64 { return p.WallS }}
)

// curves are those of a field of all groups; nil where none has it.
func (q question) curves(table func(*runs.Run) *runs.Table, field string, over axis) (out []chart.Series) {
	any := false
	for _, g := range q.groups {
		s := chart.Series{Label: g.Label}
		for _, p := range runs.Thin(g.Curve(table, field), shownPoints) {
			s.Points = append(s.Points, chart.Point{X: over.of(p), Y: p.Mean, Low: p.Low, High: p.High})
		}
		any = any || len(s.Points) > 0
		out = append(out, s)
	}
	if !any {
		return nil
	}
	return out
}

// pictures are all charts there is something for.
func (q question) pictures() (out []picture) {
	lines := func(name, title, label string, percent bool, over axis, series []chart.Series) {
		if series != nil {
			out = append(out, picture{name, chart.Lines{Title: title, XLabel: over.label, YLabel: label, Percent: percent, FromZero: over.label != byEpochs.label, Series: series}})
		}
	}
	lines("step-loss", "Training loss, by step", "loss of rank 0's batch", false, bySteps, q.curves(runs.OfSteps, "loss", bySteps))
	lines("train-loss", "Training loss, by epoch", "mean loss", false, byEpochs, q.curves(runs.OfEpochs, "train_loss", byEpochs))
	for _, m := range runs.Metrics(q.groups) {
		lines("test-"+m.Name, "Test "+m.Title+", by epoch", m.Title, m.Percent, byEpochs, q.curves(runs.OfEpochs, "eval_"+m.Name, byEpochs))
	}
	m := q.metric
	lines("time-"+m.Name, "Test "+m.Title+", by time", m.Title, m.Percent, byTime, q.curves(runs.OfEpochs, "eval_"+m.Name, byTime))
	lines("rate", "Rate, by epoch", q.unit()+" in a second, all ranks", false, byEpochs, q.curves(runs.OfEpochs, q.rate(), byEpochs))
	if bars := q.bars(); len(bars.Parts) > 0 {
		out = append(out, picture{"parts", bars})
	}
	lines("density", "Share of the gradient's values sent, by epoch", "share", true, byEpochs, q.sparse())
	return out
}

// sparse are the curves of what is sent, where any run leaves something out.
func (q question) sparse() []chart.Series {
	for _, g := range q.groups {
		if d := g.Steady("density"); d.N > 0 && d.Low < 1 {
			return q.curves(runs.OfEpochs, "density", byEpochs)
		}
	}
	return nil
}

// bars are the parts of the step of each group, but for those that are nothing everywhere.
func (q question) bars() chart.Bars {
	b := chart.Bars{Title: "Parts of the step", Unit: "ms", Rows: make([]chart.Bar, len(q.groups))}
	for k, p := range q.groups[0].Parts() {
		any := false
		for _, g := range q.groups {
			any = any || g.Parts()[k].MS.Mean > 0
		}
		if !any {
			continue
		}
		b.Parts = append(b.Parts, p.Name)
		for i, g := range q.groups {
			b.Rows[i].Label = g.Label
			b.Rows[i].Values = append(b.Rows[i].Values, g.Parts()[k].MS.Mean)
		}
	}
	return b
}
