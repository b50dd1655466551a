package evalmetrics

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/ringo-ml/ringo/internal/quantity"
)

const (
	maxRows   = 20 // classes of a table
	maxPairs  = 10 // confused pairs below a table
	nameWidth = 18
)

// Lines returns the tables as text of at most 80 columns.
func (r Report) Lines() (out []string) {
	switch {
	case r.Classes != nil:
		out = r.Classes.lines()
	case r.Numbers != nil:
		out = r.Numbers.lines()
	case r.Clicks != nil:
		out = r.Clicks.lines()
	}
	if r.Groups != nil {
		out = append(out, r.Groups.lines()...)
	}
	return append(out, r.judged()...)
}

// Brief returns the report in at most two lines of at most 80 columns, nil without one.
func (r Report) Brief() []string {
	switch {
	case r.Classes != nil:
		c, worst := r.Classes, r.Classes.Worst()
		return []string{
			fmt.Sprintf("majority class %s alone %s; macro F1 %s", short(c.Majority, nameWidth), percent(c.MajorityAccuracy), c.Macro.F1),
			fmt.Sprintf("worst class %s: precision %s, recall %s, F1 %s", short(worst.Name, nameWidth), worst.Precision, worst.Recall, worst.F1),
		}
	case r.Numbers != nil:
		n := r.Numbers
		return []string{fmt.Sprintf("RMSE %s%s, of the mean alone %s; MAE %s", number(n.RMSE), n.of(12), number(n.BaselineRMSE), number(n.MAE))}
	case r.Clicks != nil:
		c := r.Clicks
		return []string{fmt.Sprintf("calibration %s: predicted %s, observed %s of %s", c.Calibration, percent(c.Predicted), percent(c.Observed), quantity.Count(c.Samples, "sample"))}
	}
	return nil
}

// String returns the table.
func (r *ClassReport) String() string { return strings.Join(r.lines(), "\n") }

// String returns the table.
func (n *NumberReport) String() string { return strings.Join(n.lines(), "\n") }

// String returns the table.
func (c *ClickReport) String() string { return strings.Join(c.lines(), "\n") }

// String formats a share or an AUC; "-" means undefined.
func (v Value) String() string {
	if !v.Known {
		return "-"
	}
	return strconv.FormatFloat(v.Value, 'f', 4, 64)
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 2, 64) + "%" }

func number(x float64) string { return quantity.FloatDigits(x, 5) }

// short returns a name of at most width runes, without control characters.
func short(name string, width int) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, name))
	if len(runes) > width {
		runes = append(runes[:width-1], '…')
	}
	return string(runes)
}

func (r *ClassReport) lines() []string {
	out := []string{
		fmt.Sprintf("accuracy %s of %s", percent(r.Accuracy), quantity.Count(r.Samples, "sample")),
		fmt.Sprintf("accuracy of the majority class alone, %s: %s", short(r.Majority, nameWidth), percent(r.MajorityAccuracy)),
	}
	if r.Top5 != nil {
		out = append(out, fmt.Sprintf("top-5 accuracy %s", percent(*r.Top5)))
	}
	rows, rest := r.rows()
	row := func(name, precision, recall, f1, auc, support, predicted string) {
		out = append(out, fmt.Sprintf("%-*s %9s %9s %9s %9s %10s %10s", nameWidth, name, precision, recall, f1, auc, support, predicted))
	}
	row("class", "precision", "recall", "F1", "AUC", "samples", "predicted")
	for _, k := range rows {
		row(short(k.Name, nameWidth), k.Precision.String(), k.Recall.String(), k.F1.String(), k.AUC.String(), quantity.Group(k.Support), quantity.Group(k.Predicted))
	}
	if rest != "" {
		out = append(out, rest)
	}
	samples := quantity.Group(r.Samples)
	row("macro average", r.Macro.Precision.String(), r.Macro.Recall.String(), r.Macro.F1.String(), r.MacroAUC.String(), samples, samples)
	row("weighted average", r.Weighted.Precision.String(), r.Weighted.Recall.String(), r.Weighted.F1.String(), "", samples, samples)
	return append(append(out, r.undefined()...), r.confused()...)
}

// rows returns all classes in order or, of more than maxRows, the worst ones, and a line about the
// rest.
func (r *ClassReport) rows() (rows []Class, rest string) {
	if len(r.Classes) <= maxRows {
		return r.Classes, ""
	}
	rows = slices.Clone(r.Classes)
	slices.SortStableFunc(rows, worse)
	rest = fmt.Sprintf("and %s with an F1 of at least %s; all are in --json", quantity.Count(len(rows)-maxRows, "class"), rows[maxRows].F1)
	return rows[:maxRows], rest
}

// undefined returns lines about undefined metrics.
func (r *ClassReport) undefined() (out []string) {
	if r.Unpredicted > 0 {
		out = append(out, fmt.Sprintf("without predictions: %s; their precision is undefined (-), 0 in averages", quantity.Count(r.Unpredicted, "class")))
	}
	if r.Unlabelled > 0 {
		out = append(out, fmt.Sprintf("without samples: %s; their recall and AUC are undefined (-)", quantity.Count(r.Unlabelled, "class")))
	}
	if r.Classes[0].AUC.Known || r.MacroAUC.Known {
		return out
	}
	if r.Unlabelled >= len(r.Classes)-1 {
		return append(out, "AUC is undefined (-): all samples have the same class")
	}
	return append(out, "AUC is not computed (-): too many samples and classes")
}

// confused returns the confusion matrix of few classes, or the most frequent errors of many.
func (r *ClassReport) confused() (out []string) {
	const cell = 9
	if len(r.Classes) <= 6 {
		counts := map[[2]int64]int64{}
		for _, x := range r.Confusion {
			counts[[2]int64{x[0], x[1]}] = x[2]
		}
		line := fmt.Sprintf("%-*s", nameWidth, "class \\ prediction")
		for _, k := range r.Classes {
			line += fmt.Sprintf(" %*s", cell, short(k.Name, cell))
		}
		out = append(out, line)
		for i, k := range r.Classes {
			line := fmt.Sprintf("%-*s", nameWidth, short(k.Name, nameWidth))
			for j := range r.Classes {
				line += fmt.Sprintf(" %*d", cell, counts[[2]int64{int64(i), int64(j)}])
			}
			out = append(out, line)
		}
		return out
	}
	wrong := slices.DeleteFunc(slices.Clone(r.Confusion), func(x [3]int64) bool { return x[0] == x[1] })
	slices.SortStableFunc(wrong, func(a, b [3]int64) int { return int(b[2] - a[2]) })
	if len(wrong) == 0 {
		return []string{"no sample has a wrong prediction"}
	}
	out = append(out, "most frequent errors:")
	for _, x := range wrong[:min(len(wrong), maxPairs)] {
		out = append(out, fmt.Sprintf("%9s of %s predicted as %s", quantity.Group(x[2]), short(r.Classes[x[0]].Name, nameWidth), short(r.Classes[x[1]].Name, nameWidth)))
	}
	return out
}

// of names the column of the targets.
func (n *NumberReport) of(width int) string {
	if n.Unit == "" {
		return ""
	}
	return " of " + short(n.Unit, width)
}

func (n *NumberReport) lines() []string {
	q := n.ErrorQuantiles
	out := []string{
		fmt.Sprintf("%s%s; errors in its unit:", quantity.Count(n.Targets, "value"), n.of(40)),
		fmt.Sprintf("%-26s %12s", "RMSE", number(n.RMSE)),
		fmt.Sprintf("%-26s %12s", "RMSE of the mean alone", number(n.BaselineRMSE)),
		fmt.Sprintf("%-26s %12s", "mean absolute error", number(n.MAE)),
		fmt.Sprintf("%-26s %12s", "mean error", number(n.Bias)),
		fmt.Sprintf("%-26s %12s", "R²", n.R2),
	}
	for _, x := range []struct {
		share string
		value float64
	}{{"50", q.P50}, {"90", q.P90}, {"95", q.P95}, {"99", q.P99}} {
		out = append(out, fmt.Sprintf("%-26s %12s", x.share+" % of errors are up to", number(x.value)))
	}
	if !n.R2.Known {
		out = append(out, "R² is undefined (-): all values are equal")
	}
	return out
}

func (c *ClickReport) lines() []string {
	out := []string{
		fmt.Sprintf("%s, %s of them events", quantity.Count(c.Samples, "sample"), quantity.Group(c.Events)),
		fmt.Sprintf("AUC %s, log-loss %.4f", c.AUC, c.LogLoss),
		fmt.Sprintf("calibration %s: predicted %s, observed %s", c.Calibration, percent(c.Predicted), percent(c.Observed)),
		fmt.Sprintf("%-16s %11s %11s %11s %11s", "probability", "samples", "predicted", "observed", "calibration"),
	}
	for _, d := range c.Reliability {
		out = append(out, fmt.Sprintf("%-16s %11s %11s %11s %11s", "up to "+quantity.FloatDigits(d.Max, 4), quantity.Group(d.Samples), percent(d.Predicted), percent(d.Observed), d.Calibration))
	}
	if !c.AUC.Known {
		out = append(out, "AUC is undefined (-): all samples have the same label")
	}
	return out
}
