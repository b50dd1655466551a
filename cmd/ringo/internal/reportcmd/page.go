// Package reportcmd is `ringo report`: an HTML page that compares runs by their records.
package reportcmd

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/plot"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/runlog"
)

// source is the page's template; html/template escapes the texts by context.
//
//go:embed page.html
var source string

// reportScript draws the charts.
//
//go:embed report.js
var reportScript string

func script() string { return plot.Script() + reportScript }

// ScriptSource returns the hash of the report's script for a Content-Security-Policy.
func ScriptSource() string {
	sum := sha256.Sum256([]byte(script()))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// table is a table of the page. The first column names the rows.
type table struct {
	Title, Note string
	Head        []string
	Rows        [][]string
}

type content struct {
	Title   string
	Facts   []string
	Notes   []string
	Results table
	Figures []figure
	Tables  []table
	// Policy makes the browser request no resources.
	Policy string
	Style  template.CSS
	Script template.JS
}

func (c content) write(to io.Writer) error {
	c.Policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src " + ScriptSource()
	c.Style, c.Script = template.CSS(plot.Style()), template.JS(script())
	t, err := template.New("page").Parse(source)
	if err != nil {
		return err
	}
	return t.Execute(to, c)
}

// Write writes the report of a job's runs, with notes at the top.
func Write(to io.Writer, log *runlog.Log, notes []string) error {
	if len(log.Runs()) == 0 {
		return errors.New("no run has begun")
	}
	q := question{groups: runlog.GroupsOf(log.Runs()), notes: notes}
	q.metric = runlog.Metrics(q.groups)[0]
	q.target = runlog.Common(q.groups, q.metric)
	return q.answer().write(to)
}

type question struct {
	groups []runlog.RunSet
	metric runlog.Metric // metric for comparing runs
	target float64       // target value of the metric; NaN: none
	asked  bool          // target set by the user
	notes  []string
}

func (q question) answer() content {
	c := content{Title: q.title(), Notes: q.notes, Results: q.results(), Figures: q.figures()}
	c.Facts = q.facts()
	// A page with a hundred equal settings would hide the different one: the files have all.
	differ, machines := runlog.Differences(q.groups), runlog.Machines(q.groups)
	for _, t := range []table{q.parts(), q.bytes(), q.byGroup("Settings that differ", "", "setting", differ), q.byGroup("Machine", "Of rank 0.", "", machines)} {
		if len(t.Rows) > 0 {
			c.Tables = append(c.Tables, t)
		}
	}
	return c
}

func (q question) count() (n int) {
	for _, g := range q.groups {
		n += len(g.Runs)
	}
	return n
}

func (q question) title() string {
	var models []string
	for _, g := range q.groups {
		for _, r := range g.Runs {
			if m := r.Info.Model; m != "" && !slices.Contains(models, m) {
				models = append(models, m)
			}
		}
	}
	text := cli.Counted(q.count(), "run")
	if len(models) > 0 {
		text += " of " + strings.Join(models, ", ")
	}
	return text
}

func (q question) facts() (out []string) {
	r := q.groups[0].Runs[0]
	if i := r.Info; i.Event != "" {
		out = append(out, fmt.Sprintf("%s parameters; data %s, %s + %s samples", cli.Grouped(i.Params), i.DataSet, cli.Grouped(i.TrainSamples), cli.Grouped(i.EvalSamples)))
	}
	if n := q.count(); n > len(q.groups) {
		out = append(out, fmt.Sprintf("%s in %s: runs of a group differ in the seed alone; curves are means, and the ground behind them goes from the least to the greatest",
			cli.Counted(n, "run"), cli.Counted(len(q.groups), "group")))
	}
	if !math.IsNaN(q.target) {
		which := "which all runs reach"
		if q.asked {
			which = "as asked for"
		}
		out = append(out, fmt.Sprintf("target: test %s of %s, %s", q.metric.Title, q.metric.Text(q.target), which))
	}
	return out
}

// spread formats a value of several runs, with a deviation of two digits.
func spread(s runlog.Spread, text func(float64) string) string {
	switch {
	case s.N == 0:
		return "–"
	case s.N == 1 || s.Low == s.High:
		return text(s.Mean)
	}
	// More than two digits of a deviation over a few seeds have no meaning.
	deviation := s.SD
	if deviation > 0 {
		unit := math.Pow(10, math.Floor(math.Log10(deviation))-1)
		deviation = math.Round(deviation/unit) * unit
	}
	return text(s.Mean) + " ± " + text(deviation)
}

// number formats a value with four digits, and large ones as integers or with exponents.
func number(v float64) string {
	if v >= 1000 && v < 1e15 {
		return cli.Grouped(int(math.Round(v)))
	}
	return quantity.FloatDigits(v, 4)
}

// results returns the first table: quality, speed and time to the target.
func (q question) results() table {
	metrics := runlog.Metrics(q.groups)
	t := table{Title: "Results", Note: "Of several runs: mean ± standard deviation. Times are seconds since a run began, evaluations and preparations included.", Head: []string{"", "runs"}}
	for _, m := range metrics {
		t.Head = append(t.Head, "test "+m.Title)
	}
	t.Head = append(t.Head, "best "+q.metric.Title, q.unit()+"/s", "ms a step", "seconds")
	if !math.IsNaN(q.target) {
		t.Head = append(t.Head, "seconds to "+q.metric.Text(q.target), "epochs to it")
	}
	for _, g := range q.groups {
		row := []string{g.Label, fmt.Sprint(len(g.Runs))}
		for _, m := range metrics {
			row = append(row, spread(g.Last(runlog.OfEpochs, "eval_"+m.Name), m.Text))
		}
		var best, walls []float64
		for _, r := range g.Runs {
			b, _ := r.Best(q.metric)
			best = append(best, b)
			if n := r.Epochs.Len(); n > 0 {
				walls = append(walls, r.Epochs.WallS[n-1])
			}
		}
		row = append(row, spread(runlog.SpreadOf(best), q.metric.Text), spread(g.Steady(q.rate()), number),
			spread(g.Steady("step_ms"), number), spread(runlog.SpreadOf(walls), number))
		if !math.IsNaN(q.target) {
			row = append(row, q.reached(g)...)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// reached returns the time to the target, as a mean over the runs that have reached it, with their
// number if others have not: the mean over the best runs alone is too good.
func (q question) reached(g runlog.RunSet) []string {
	r := g.Reach(q.metric, q.target)
	if r.Runs == 0 {
		return []string{"not reached", "–"}
	}
	of := ""
	if r.Runs < r.Of {
		of = fmt.Sprintf(" (%d of %d runs)", r.Runs, r.Of)
	}
	return []string{spread(r.WallS, number) + of, spread(r.Epoch, number)}
}

// unit returns the unit of rates, and rate the field of rates.
func (q question) unit() string {
	if q.rate() == "tokens_per_s" {
		return "tokens"
	}
	return "samples"
}

// rate returns tokens if all groups count tokens, else samples: all rates are comparable.
func (q question) rate() string {
	for _, g := range q.groups {
		if g.Last(runlog.OfEpochs, "tokens_per_s").N == 0 {
			return "samples_per_s"
		}
	}
	return "tokens_per_s"
}

// byGroup returns a table with a column for each group. rowsAre heads the names of the rows; rows
// without values are left out.
func (q question) byGroup(title, note, rowsAre string, rows []runlog.Row) table {
	t := table{Title: title, Note: note, Head: []string{rowsAre}}
	for _, g := range q.groups {
		t.Head = append(t.Head, g.Label)
	}
	for _, r := range rows {
		if r.Values != nil {
			t.Rows = append(t.Rows, append([]string{r.Name}, r.Values...))
		}
	}
	return t
}

// spreads returns a row with the spread of each group, without values if shown is false for all.
func (q question) spreads(name string, of func(runlog.RunSet) runlog.Spread, text func(float64) string, shown func(runlog.Spread) bool) runlog.Row {
	row, any := runlog.Row{Name: name}, false
	for _, g := range q.groups {
		s := of(g)
		any = any || shown(s)
		row.Values = append(row.Values, spread(s, text))
	}
	if !any {
		row.Values = nil
	}
	return row
}

// parts returns the parts of a step as a table, except parts that are zero in all groups.
func (q question) parts() table {
	var rows []runlog.Row
	for k, p := range q.groups[0].Parts() {
		ms := func(g runlog.RunSet) runlog.Spread { return g.Parts()[k].MS }
		rows = append(rows, q.spreads(p.Name, ms, number, func(s runlog.Spread) bool { return s.Mean > 0 }))
	}
	return q.byGroup("Parts of the step", "Milliseconds, means over ranks and epochs but the first.", "", rows)
}

// bytes returns the bytes sent, with the share of values for comparing sparse strategies.
func (q question) bytes() table {
	const note = "Payload that is sent; ranks that share memory send none. On the wire headers, handshakes and control connections count, too."
	var rows []runlog.Row
	for _, f := range []struct {
		name, field string
		of          func(runlog.RunSet, string) runlog.Spread
		text        func(float64) string
	}{
		{"by a rank in a step", "step_bytes_sent", runlog.RunSet.Steady, quantity.Traffic},
		{"by all ranks in the run", "bytes_sent", runlog.RunSet.Total, quantity.Traffic},
		{"by all ranks on the wire", "wire_bytes", runlog.RunSet.Total, quantity.Traffic},
		{"share of the gradient's values sent", "density", runlog.RunSet.Steady, number},
	} {
		of := func(g runlog.RunSet) runlog.Spread { return f.of(g, f.field) }
		rows = append(rows, q.spreads(f.name, of, f.text, func(s runlog.Spread) bool { return s.N > 0 }))
	}
	return q.byGroup("Bytes", note, "", rows)
}
