package reportcmd

import (
	"fmt"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/plot"
	"github.com/ringo-ml/ringo/internal/runlog"
)

// shownPoints is the maximum number of points of a curve; longer curves are thinned, with their
// whole spread, so that the size of a page does not depend on the number of steps.
const shownPoints = 300

type axis struct {
	label string
	of    func(runlog.Point) float64
}

// Steps are different work if batches differ, and epochs different times if strategies differ: each
// curve uses the axis suited to the comparison.
var (
	bySteps  = axis{"step", func(p runlog.Point) float64 { return float64(p.Done) }}
	byEpochs = axis{"epoch", func(p runlog.Point) float64 { return float64(p.Epoch) }}
	byTime   = axis{"seconds", func(p runlog.Point) float64 { return p.WallS }}
)

// figure is a chart of the page, in report.js's form.
type figure struct {
	Name  string `json:"name"` // name of the saved file
	Title string `json:"title"`
	Kind  string `json:"kind"` // "lines", "points", "bars", "heat" or "cards"
	// FromZero makes the axis begin at 0, and Log makes the axis logarithmic. Names are the names
	// of bars, or of points at 0, 1 and so on.
	FromZero bool     `json:"from_zero,omitempty"`
	Log      bool     `json:"log,omitempty"`
	Names    []string `json:"names,omitempty"`
	plot.Lines
	Heat  *plot.Heat  `json:"heat,omitempty"`
	Cards []plot.Card `json:"cards,omitempty"`
}

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
	return append(out, q.evaluations()...)
}

// maxEvaluations limits the runs with a figure of the last evaluation.
const maxEvaluations = 4

// evaluations returns the figures of the first runs' last evaluations, and of the columns of the
// first run.
func (q question) evaluations() (out []figure) {
	for k, g := range q.groups[:min(len(q.groups), maxEvaluations)] {
		last := g.Runs[len(g.Runs)-1]
		of := ""
		if len(q.groups) > 1 {
			of = ", " + g.Label
		}
		if n := len(g.Runs); n > 1 {
			of += fmt.Sprintf(", last of %d runs", n)
		}
		heat, reliability := plot.Evaluation(last.Evaluation)
		if heat != nil {
			out = append(out, figure{Name: fmt.Sprintf("evaluation-%d", k), Title: fmt.Sprintf("Last evaluation: %s against %s%s", heat.ColumnsAre, heat.RowsAre, of), Kind: "heat", Heat: heat})
		}
		if reliability != nil {
			out = append(out, figure{Name: fmt.Sprintf("reliability-%d", k), Title: "Reliability of the last evaluation" + of, Kind: "lines", Lines: *reliability})
		}
		if cards := plot.Worst(last.Evaluation); len(cards) > 0 {
			out = append(out, figure{Name: fmt.Sprintf("worst-%d", k), Title: "Samples with the largest loss" + of, Kind: "cards", Cards: cards})
		}
	}
	if cards := plot.Cards(q.groups[0].Runs[0].Info.Columns); len(cards) > 0 {
		out = append(out, figure{Name: "columns", Title: "Columns of the table", Kind: "cards", Cards: cards})
	}
	return out
}

// curves returns the curves of a field for all groups, or nil if no group has the field. A group
// without points keeps its position, and so its colour.
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

// sparse reports whether any run sends less than all values.
func (q question) sparse() bool {
	for _, g := range q.groups {
		if d := g.Steady("density"); d.N > 0 && d.Low < 1 {
			return true
		}
	}
	return false
}

// bars returns the parts of each group's step, except parts that are zero in all groups.
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
