package progress

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/train"
)

// epochTable is the table of a run's epochs.
type epochTable struct {
	columns []column
	head    bool // printed
	monitor model.Metric
	best    train.BestEpoch
}

// column is a column of the table, right-aligned.
type column struct {
	title string
	width int // of values
	text  func(e train.Epoch) string
	extra int // order of omission from tables that are too wide, from 2; 0: never
}

const (
	epochWord = "epoch "
	bestMark  = " *" // after an epoch better than all before
)

// Escape sequences of terminals.
const (
	bold  = "\x1b[1m"
	green = "\x1b[32m"
	plain = "\x1b[0m"
)

// newTable returns the table of a run's epochs, without the columns that exceed the line.
func newTable(i train.Info, shown []model.Metric, verbose bool) (t epochTable) {
	t.best = i.Best
	t.monitor = model.Metric{Name: "loss", Lower: true, Digits: 4}
	switch k := slices.IndexFunc(i.Metrics, func(m model.Metric) bool { return m.Name == i.Best.Metric }); {
	case k >= 0:
		t.monitor = i.Metrics[k]
	case i.Best.Metric != "" && i.Best.Metric != "loss":
		t.monitor = model.Metric{Name: i.Best.Metric, Lower: i.Best.Metric != "progressive_auc", Digits: 4}
	case i.Best.Metric == "" && len(shown) > 0:
		t.monitor = shown[0]
	}
	t.columns = []column{{title: "train loss", width: 7, text: func(e train.Epoch) string { return fmt.Sprintf("%.4f", e.TrainLoss) }}}
	for k, m := range shown {
		width := 3 + m.Digits // such as -0.1234
		if m.Percent {
			width = len("100.%") + m.Digits
		}
		if m.Training() {
			t.columns = append(t.columns, column{"train " + m.Label(), width, func(e train.Epoch) string { return text(m, e.Train) }, 2})
		}
		extra := min(k, 1)
		if m.Name == t.monitor.Name {
			extra = 0
		}
		t.columns = append(t.columns, column{"test " + m.Label(), width, func(e train.Epoch) string { return text(m, e.Eval) }, extra})
	}
	if len(shown) == 0 || t.monitor.Name == "loss" {
		t.columns = append(t.columns, column{title: "test loss", width: 7, text: func(e train.Epoch) string { return fmt.Sprintf("%.4f", e.EvalLoss) }})
	}
	if slices.ContainsFunc(i.Metrics, func(m model.Metric) bool { return m.Score != nil }) {
		t.columns = append(t.columns, column{"progressive AUC", 7, progressiveAUC, 1})
	}
	if name := t.monitor.Name; name != "loss" && !slices.ContainsFunc(shown, func(m model.Metric) bool { return m.Name == name }) {
		t.columns = append(t.columns, column{bestOf(t.monitor.Label()), max(7, 3+t.monitor.Digits), t.monitored, 0})
	}
	t.columns = append(t.columns,
		column{title: i.Unit + "/s", width: 9, text: func(e train.Epoch) string { return cli.Rated(cmp.Or(e.TokensPerS.Value, e.SamplesPerS)) }},
		column{title: "ms/step", width: 7, text: func(e train.Epoch) string { return quantity.Milliseconds(e.StepMS) }})
	if verbose {
		t.columns = append(t.columns, column{"ms exposed", 7, func(e train.Epoch) string { return quantity.Milliseconds(e.ExposedCommMS) }, 2})
	}
	for order := 2; order > 0; order-- {
		for k := len(t.columns) - 1; k >= 0 && t.wide(i.Epochs) > lineWidth; k-- {
			if t.columns[k].extra == order {
				t.columns = slices.Delete(t.columns, k, k+1)
			}
		}
	}
	return t
}

func progressiveAUC(e train.Epoch) string {
	if e.Progressive == nil || !e.AUC.Known {
		return "unknown"
	}
	return fmt.Sprintf("%.4f", e.AUC.Value)
}

// rowStart returns the text of the first column for an epoch out of n.
func rowStart(epoch, n int) string {
	return fmt.Sprintf("%s%*d/%d", epochWord, len(fmt.Sprint(n)), epoch, n)
}

// words returns the lines of a title, as wide as the values if possible, and the column's width.
func (c column) words() (lines []string, width int) {
	width = c.width
	for _, word := range strings.Fields(c.title) {
		width = max(width, utf8.RuneCountInString(word))
	}
	return wrapped(c.title, width), width
}

func (t *epochTable) wide(epochs int) int {
	sum := len(rowStart(epochs, epochs)) + len(bestMark)
	for _, c := range t.columns {
		_, width := c.words()
		sum += 2 + width
	}
	return sum
}

// titles returns the lines above the table.
func (t *epochTable) titles(epochs int) []string {
	height := 0
	for _, c := range t.columns {
		lines, _ := c.words()
		height = max(height, len(lines))
	}
	out := make([]string, height)
	for k := range out {
		out[k] = strings.Repeat(" ", len(rowStart(epochs, epochs)))
		for _, c := range t.columns {
			lines, width := c.words()
			word := ""
			if at := k - height + len(lines); at >= 0 {
				word = lines[at]
			}
			out[k] += fmt.Sprintf("  %*s", width, word)
		}
		out[k] = strings.TrimRight(out[k], " ")
	}
	return out
}

// row returns the line of an epoch.
func (t *epochTable) row(e train.Epoch, epochs int) string {
	out := rowStart(e.Epoch, epochs)
	for _, c := range t.columns {
		_, width := c.words()
		out += fmt.Sprintf("  %*s", width, c.text(e))
	}
	return out
}

// value returns the metric by which epochs are compared; false if unknown or not finite.
func (t *epochTable) value(e train.Epoch) (v float64, known bool) {
	v, known = e.Eval[t.monitor.Name]
	switch p := e.Progressive; {
	case t.monitor.Name == "loss":
		v, known = e.EvalLoss, true
	case p == nil:
	case t.monitor.Name == "progressive_auc":
		v, known = p.AUC.Value, p.AUC.Known
	case t.monitor.Name == "progressive_logloss":
		v, known = p.LogLoss, true
	}
	return v, known && !math.IsNaN(v) && !math.IsInf(v, 0)
}

// monitored returns the text of the value.
func (t *epochTable) monitored(e train.Epoch) string {
	if v, known := t.value(e); known {
		return t.monitor.Text(v)
	}
	return "unknown"
}

// better reports whether an epoch is better than all earlier ones, and then stores it as the best.
// A table without a known metric compares losses.
func (t *epochTable) better(e train.Epoch) bool {
	v, known := t.value(e)
	if !known || t.best.Epoch > 0 && !(t.monitor.Lower && v < t.best.Value || !t.monitor.Lower && v > t.best.Value) {
		return false
	}
	t.best = train.BestEpoch{Metric: t.monitor.Name, Value: v, Epoch: e.Epoch}
	return true
}

// Epoch prints the row of an epoch.
func (r *Reporter) Epoch(e train.Epoch) {
	r.endPhase()
	r.phase = ""
	r.follow()
	paint := func(colour, line string) {
		if r.colour && colour != "" {
			line = colour + line + plain
		}
		fmt.Fprintln(r.out.Lines, line)
	}
	if !r.table.head {
		r.table.head = true
		for _, line := range r.table.titles(r.info.Epochs) {
			paint(bold, line)
		}
	}
	line := r.table.row(e, r.info.Epochs)
	if r.table.better(e) {
		paint(green, line+bestMark)
	} else {
		paint("", line)
	}
	r.write(e)
	r.tellStep()
	r.tellEvaluation(e)
}
