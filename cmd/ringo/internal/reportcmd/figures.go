package reportcmd

import (
	"github.com/ringo-ml/ringo/cmd/ringo/internal/plot"
	"github.com/ringo-ml/ringo/internal/runlog"
)

// shownPoints is how many of a curve's are drawn; more are brought together, with their whole
// spread. A page of a run of a million steps is no larger than one of a thousand.
const shownPoints = 300

// axis is what curves are drawn over.
type axis struct {
	label string
	of    func(runlog.Point) float64
}

// Steps are not the same work where batches differ, and epochs not the same time where strategies
// do: each curve is drawn over what it is compared by.
var (
	bySteps  = axis{"step", func(p runlog.Point) float64 { return float64(p.Done) }}
	byEpochs = axis{"epoch", func(p runlog.Point) float64 { return float64(p.Epoch) }}
	byTime   = axis{"seconds", func(p runlog.Point) float64 { return p.WallS }}
)

// figure is a chart of the page, as report.js reads it.
type figure struct {
	Name  string `json:"name"` // of the file that it is saved to
	Title string `json:"title"`
	Kind  string `json:"kind"` // "lines" or "bars"
	// FromZero has the axis begin at 0, and Names are those of bars.
	FromZero bool     `json:"from_zero,omitempty"`
	Names    []string `json:"names,omitempty"`
	plot.Lines
}

// figures are all charts there is something for.
func (q question) figures() (out []figure) {
	curves := func(name, title, unit string, percent bool, over axis, table func(*runlog.Run) *runlog.Table, field string) {
		if all := q.curves(table, field, over); all != nil {
			f := figure{Name: name, Title: title, Kind: "lines", FromZero: over.label != byEpochs.label, Lines: plot.Lines{XLabel: over.label, Unit: unit, Percent: percent}}
			f.Set(all, true)
			out = append(out, f)
		}
	}
	curves("step-loss", "Training loss of rank 0's batches, by step", "", false, bySteps, runlog.OfSteps, "loss")
	curves("train-loss", "Training loss, by epoch", "", false, byEpochs, runlog.OfEpochs, "train_loss")
	for _, m := range runlog.Metrics(q.groups) {
		curves("test-"+m.Name, "Test "+m.Title+", by epoch", "", m.Percent, byEpochs, runlog.OfEpochs, "eval_"+m.Name)
	}
	m := q.metric
	curves("time-"+m.Name, "Test "+m.Title+", by time", "", m.Percent, byTime, runlog.OfEpochs, "eval_"+m.Name)
	curves("rate", "Rate of all ranks, by epoch", q.unit()+"/s", false, byEpochs, runlog.OfEpochs, q.rate())
	if parts := q.bars(); len(parts.Labels) > 0 {
		out = append(out, parts)
	}
	if q.sparse() {
		curves("density", "Share of the gradient's values sent, by epoch", "", true, byEpochs, runlog.OfEpochs, "density")
	}
	return out
}

// curves are those of a field of all groups; nil where none has it. A group keeps its place, and so
// its colour, where it has no point.
func (q question) curves(table func(*runlog.Run) *runlog.Table, field string, over axis) (out []plot.Curve) {
	any := false
	for _, g := range q.groups {
		c := plot.Curve{Label: g.Label}
		for _, p := range runlog.Thin(g.Curve(table, field), shownPoints) {
			c.Points = append(c.Points, plot.Point{X: over.of(p), Y: p.Mean, Low: p.Low, High: p.High})
		}
		any = any || len(c.Points) > 0
		out = append(out, c)
	}
	if !any {
		return nil
	}
	return out
}

// sparse reports whether any run leaves something out.
func (q question) sparse() bool {
	for _, g := range q.groups {
		if d := g.Steady("density"); d.N > 0 && d.Low < 1 {
			return true
		}
	}
	return false
}

// bars are the parts of the step of each group, but for those that are nothing everywhere.
func (q question) bars() figure {
	f := figure{Name: "parts", Title: "Parts of the step", Kind: "bars", Lines: plot.Lines{Unit: "ms"}}
	for i, g := range q.groups {
		f.Names, f.X = append(f.Names, g.Label), append(f.X, float64(i))
	}
	for k, p := range q.groups[0].Parts() {
		row, any := []plot.Number{}, false
		for _, g := range q.groups {
			ms := g.Parts()[k].MS.Mean
			row, any = append(row, plot.Number(ms)), any || ms > 0
		}
		if any {
			f.Labels, f.Data = append(f.Labels, p.Name), append(f.Data, row)
		}
	}
	return f
}
