package reportcmd

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/plot"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/search"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/runlog"
)

// shownCurves is the number of the best trials with curves: a chart with more is unreadable.
const shownCurves = 6

// logarithmic is the minimum ratio of an axis's ends for a logarithmic axis.
const logarithmic = 50

// WriteTrials writes the page of a search: a table of all trials, a chart of the metric by each
// setting, and the curves of the best trials.
func WriteTrials(to io.Writer, s search.Search) error {
	c := content{Title: "Search of " + cli.Counted(len(s.Results), "trial")}
	c.Results = table{Title: "Trials", Note: "From the best to the worst, by " + s.Metric.Title + " of the evaluation.", Head: s.Head()}
	for _, r := range s.Results {
		c.Results.Rows = append(c.Results.Rows, s.Cells(r))
		if r.Failed() {
			c.Notes = append(c.Notes, fmt.Sprintf("trial %d failed: %s", r.Number, r.Error))
		}
	}
	for _, a := range s.Space {
		c.Figures = append(c.Figures, bySetting(s, a))
	}
	if best := s.Logs(shownCurves); len(best) > 0 {
		q := question{groups: runlog.GroupsOf(best), metric: s.Metric, target: math.NaN()}
		f := figure{Name: "curves", Title: fmt.Sprintf("Test %s of the best trials, by epoch", s.Metric.Title), Kind: "lines", Lines: plot.Lines{XLabel: "epoch", Percent: s.Metric.Percent}}
		f.Set(q.curves(runlog.OfEpochs, "eval_"+s.Metric.Name, byEpochs), true)
		c.Figures = append(c.Figures, f)
		c.Facts = q.facts()
	}
	return c.write(to)
}

// bySetting returns the chart of the metric by the values of a setting: the mean over the trials of
// each value, with their range. Values that are words keep the order of the list.
func bySetting(s search.Search, a search.Axis) figure {
	f := figure{Name: "by-" + string(a.Path), Title: "Test " + s.Metric.Title + ", by " + string(a.Path), Kind: "points", Lines: plot.Lines{XLabel: string(a.Path), Percent: s.Metric.Percent}}
	position, names := positions(a)
	f.Names = names
	at := map[float64][]float64{}
	low, high := math.Inf(1), math.Inf(-1)
	for _, r := range s.Results {
		if x, ok := position(r.Settings[string(a.Path)]); ok && !r.Failed() {
			at[x] = append(at[x], r.Value)
			low, high = min(low, x), max(high, x)
		}
	}
	curve := plot.Curve{Label: s.Metric.Title}
	for x, values := range at {
		spread := runlog.SpreadOf(values)
		curve.Points = append(curve.Points, plot.Point{X: x, Y: spread.Mean, Low: spread.Low, High: spread.High})
	}
	slices.SortFunc(curve.Points, func(a, b plot.Point) int { return cmp.Compare(a.X, b.X) })
	if a.Values != nil && len(at) > 1 { // means over the trials of each value
		f.Kind = "lines"
	}
	f.Log = f.Names == nil && low > 0 && high >= logarithmic*low
	f.Set([]plot.Curve{curve}, f.Kind == "lines")
	return f
}

// positions returns the place of a value on the axis: a number's own, or a word's index in the
// list, with the words as names.
func positions(a search.Axis) (at func(text string) (float64, bool), names []string) {
	number := func(text string) (float64, bool) {
		v, err := strconv.ParseFloat(text, 64)
		return v, err == nil
	}
	for _, v := range a.Values {
		if _, ok := number(v); !ok {
			return func(text string) (float64, bool) {
				i := slices.Index(a.Values, text)
				return float64(i), i >= 0
			}, a.Values
		}
	}
	return number, nil
}
