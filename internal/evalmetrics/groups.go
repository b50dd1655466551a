package evalmetrics

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Grouping divides the samples by their values of a column.
type Grouping struct {
	Column string
	Values []string
	// Member is, for each sample, its group's number in Values.
	Member []int32
}

// GroupReport has metrics of clicks, or of the second of two classes, by the values of a column.
type GroupReport struct {
	Column string `json:"column"`
	// Event is the class, "" of clicks.
	Event string `json:"event,omitempty"`
	// GAUC is the mean of the groups' AUC, weighted by their samples (Zhou et al. 2018). Ranked is
	// the number of groups with an AUC.
	GAUC   Value   `json:"gauc"`
	Ranked int     `json:"groups_with_auc"`
	Groups []Group `json:"per_group"`
}

// Group is the row of a value, without ClickReport.Reliability.
type Group struct {
	Value string `json:"value"` // "": missing
	ClickReport
}

// groupReport computes the metrics of each value from words of clickWord and numbers of samples.
func (p Plan) groupReport(outcomes, numbers []uint64) *GroupReport {
	lists := make([][]uint64, len(p.By.Values))
	for i, n := range numbers {
		k := p.By.Member[n]
		lists[k] = append(lists[k], outcomes[i])
	}
	r, weighted, weight := &GroupReport{Column: p.By.Column}, 0.0, 0.0
	if p.Kind == Classes {
		r.Event = p.name(1)
	}
	for k, list := range lists {
		if len(list) == 0 {
			continue
		}
		g := Group{p.By.Values[k], *clickReport(list)}
		if g.Reliability = nil; g.AUC.Known {
			r.Ranked++
			weighted, weight = weighted+g.AUC.Value*float64(g.Samples), weight+float64(g.Samples)
		}
		r.Groups = append(r.Groups, g)
	}
	if r.Ranked > 0 {
		r.GAUC = known(weighted / weight)
	}
	size := func(value string) float64 {
		if x, err := strconv.ParseFloat(value, 64); err == nil {
			return x
		}
		return math.Inf(1) // texts follow numbers
	}
	slices.SortFunc(r.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(size(a.Value), size(b.Value)), cmp.Compare(a.Value, b.Value))
	})
	return r
}

// lines returns the table: all values in order, or the maxRows values with the most samples.
func (r *GroupReport) lines() []string {
	rows, rest := r.Groups, []string(nil)
	if n := len(rows) - maxRows; n > 0 {
		rows = slices.Clone(rows)
		slices.SortStableFunc(rows, func(a, b Group) int { return cmp.Compare(b.Samples, a.Samples) })
		rest = []string{fmt.Sprintf("and %s of at most %s; all are in --json", quantity.Count(n, "group"), quantity.Count(rows[maxRows].Samples, "sample"))}
		rows = rows[:maxRows]
	}
	const row = "%-13s %9s %9s %9s %8s %11s %6s %8s"
	out := []string{fmt.Sprintf(row, short(r.Column, 13), "samples", "events", "predicted", "observed", "calibration", "AUC", "log-loss")}
	for _, g := range rows {
		out = append(out, fmt.Sprintf(row, short(cmp.Or(g.Value, "(missing)"), 13), quantity.Group(g.Samples), quantity.Group(g.Events), percent(g.Predicted), percent(g.Observed), g.Calibration, g.AUC, fmt.Sprintf("%.4f", g.LogLoss)))
	}
	out = append(out, rest...)
	if r.Event != "" {
		out = append(out, fmt.Sprintf("events are the samples of class %s", short(r.Event, nameWidth)))
	}
	if len(r.Groups) > r.Ranked {
		out = append(out, fmt.Sprintf("AUC is undefined (-) in %s with one label", quantity.Count(len(r.Groups)-r.Ranked, "group")))
	}
	return append(out, fmt.Sprintf("mean AUC of %s, weighted by samples (GAUC): %s", quantity.Count(r.Ranked, "group"), r.GAUC))
}
