package progress

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/remotepath"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/train"
)

const (
	lineWidth  = 80 // columns of the header and of the table of epochs
	labelWidth = 10 // columns of the labels of the header
	maxColumns = 24 // columns of a table that the header names
)

// Start prints the run's configuration.
func (r *Reporter) Start(i train.Info) {
	i.Resumed = remotepath.WithURLs(i.Resumed)
	r.begin(i)
	r.section("model", fmt.Sprintf("%s, %s parameters", i.Model, cli.Grouped(i.Params)))
	r.section("data", fmt.Sprintf("%s: %s samples for training, %s for evaluation", i.DataSet, cli.Grouped(i.TrainSamples), cli.Grouped(i.EvalSamples)))
	r.section("columns", columnLines(i.Columns)...)
	rate := i.Schedule
	if advice := i.UsualRate.Advice(i.GlobalBatch, i.Optimizer); advice != "" {
		rate += " (" + advice + ")"
	}
	each := "rank"
	if i.Workers > 0 {
		each = "virtual worker"
	}
	training := fmt.Sprintf("%s, learning rate %s; batch %d per %s, %s per epoch; seed %d", i.Optimizer, rate, i.Batch, each, cli.Counted(i.StepsPerEpoch, "step"), i.Seed)
	if i.Fold > 0 {
		training += fmt.Sprintf("; fold %d", i.Fold)
	}
	r.section("training", training)
	r.processes(i, fmt.Sprintf("strategy %s%s, plan %s (%s, sha256 %.8s)", i.Strategy, cli.After(" ", parenthesis(i.Codec)), i.Plan, merged(i), i.PlanSHA256), cli.After("entries of ", i.Exchange))
	if i.Resumed != "" {
		fmt.Fprintf(r.out.Lines, "resumed after %s from %s\n", cli.Counted(int(i.Steps), "step"), i.Resumed)
		if len(i.Changed) > 0 {
			fmt.Fprintf(r.out.Lines, "from here on with %s\n", strings.Join(i.Changed, ", "))
		}
	}
	r.notes(slices.Concat(i.Parameters, i.DataNotes), i)
	r.write(newInfo(i))
}

// processes prints the processes of the run and, if verbose, the exchange of their gradients and
// the machine.
func (r *Reporter) processes(i train.Info, exchange ...string) {
	text := fmt.Sprintf("%s, %s each", cli.Counted(i.NP, "rank"), cli.Counted(i.Threads, "thread"))
	if i.Workers > 0 {
		text = fmt.Sprintf("%s on %s", cli.Counted(i.Workers, "virtual worker"), text)
	}
	if i.Servers > 0 {
		text += ", " + cli.Counted(i.Servers, "server")
	}
	if i.Codec != "" && !r.verbose {
		text += ", strategy " + i.Strategy
	}
	r.section("job", text)
	if r.verbose {
		r.section("exchange", slices.DeleteFunc(append(exchange, cli.After("over ", i.Transport)), func(s string) bool { return s == "" })...)
		r.section("machine", i.Kernels+" kernels"+cli.After(", ", i.Placement))
	}
}

// notes prints remarks about the parameters and the data, except for those that the header repeats.
func (r *Reporter) notes(notes []string, i train.Info) {
	for _, note := range notes {
		if r.verbose || len(i.Columns) > maxColumns || !slices.Contains(i.ColumnNotes, note) {
			fmt.Fprintln(r.out.Lines, note)
		}
	}
	r.tellLeft(i.LeftOut)
}

// section prints a label and lines of text to its right, each below the previous line.
func (r *Reporter) section(label string, lines ...string) {
	for _, line := range lines {
		for _, part := range wrapped(line, lineWidth-labelWidth) {
			fmt.Fprintf(r.out.Lines, "%-*s%s\n", labelWidth, label, part)
			label = ""
		}
	}
}

// wrapped splits text at spaces into lines of at most width runes, except for longer words. Spaces
// within a line remain.
func wrapped(text string, width int) (lines []string) {
	for utf8.RuneCountInString(text) > width {
		at, runes := -1, 0
		for k, c := range text {
			if c == ' ' && (runes <= width || at < 0) {
				at = k
			}
			runes++
		}
		if at < 0 {
			break
		}
		lines, text = append(lines, strings.TrimRight(text[:at], " ")), strings.TrimLeft(text[at:], " ")
	}
	return append(lines, text)
}

// columnLines describes the columns of a table, a line each: name, kind, values and missing ones.
func columnLines(all []table.Found) (lines []string) {
	width, kind := 0, len("category")
	shown := all[:min(len(all), maxColumns)]
	for _, c := range shown {
		width = max(width, min(20, utf8.RuneCountInString(c.Name)))
	}
	for _, c := range shown {
		name, missing := clipped(c.Name, width), int64(0)
		for _, n := range c.Missing {
			missing += n
		}
		parts := []string{cmp.Or(c.Reason, c.Detail)}
		if missing > 0 && c.Kind != table.Ignore {
			parts = append(parts, fmt.Sprintf("%s missing", cli.Grouped(int(missing))))
		}
		text := strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
		kindText := string(c.Kind)
		if c.Kind == table.Ignore {
			kindText = "left out"
		}
		line := printable(fmt.Sprintf("%-*s  %-*s  %s", width, name, kind, kindText, text))
		lines = append(lines, clipped(strings.TrimRight(line, " "), lineWidth-labelWidth))
	}
	if n := len(all) - len(shown); n > 0 {
		lines = append(lines, fmt.Sprintf("and %s more, listed below", cli.Counted(n, "column")))
	}
	return lines
}

// printable replaces control characters.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, text)
}

// clipped returns a text of at most width runes.
func clipped(text string, width int) string {
	if runes := []rune(text); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return text
}

func parenthesis(text string) string {
	if text == "" {
		return ""
	}
	return "(" + text + ")"
}

// merged describes the buckets. DLGS's paper merges layers by measured step times.
func merged(i train.Info) string {
	if i.Strategy == string(distopt.DLGS) && i.Plan == distopt.PlanFixed {
		return fmt.Sprintf("layers merged by size into %s, unless --plan says otherwise", cli.Counted(i.Buckets, "bucket"))
	}
	return cli.Counted(i.Buckets, "bucket")
}

// Evaluating is a Reporter that observes an evaluation without training.
type Evaluating struct{ *Reporter }

// Start prints the configuration of an evaluation.
func (r Evaluating) Start(i train.Info) {
	r.begin(i)
	r.section("model", fmt.Sprintf("%s, %s parameters", i.Model, cli.Grouped(i.Params)))
	r.section("data", fmt.Sprintf("%s: %s", i.DataSet, cli.Counted(i.EvalSamples, "sample")))
	r.section("columns", columnLines(i.Columns)...)
	r.processes(i)
	r.notes(i.DataNotes, i)
}
