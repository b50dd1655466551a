// Package tracecmd is `ringo trace`: analysis of trace files.
package tracecmd

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/steptrace"
)

// Command is `ringo trace`.
func Command() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "trace",
		Short: "Analyse a trace file",
		Long:  "Analyse a trace file, which `ringo train` writes with --trace.",
	}, summaryCommand())
}

func summaryCommand() *cobra.Command {
	json := ""
	cmd := &cobra.Command{
		Use:   "summary FILE [FILE]",
		Short: "Print time per phase, critical path and longest waits",
		Long: "Print each rank's time per phase, the share of the exchanges that computing hides, the critical path\n" +
			"over the ranks, and the longest waits with their reasons. Two files are compared.",
		Example: "  ringo trace summary trace.json\n  ringo trace summary before.json after.json --json -",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return cli.Usagef("`%s` takes a timeline, or two to compare, got %q", cmd.CommandPath(), args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var found []told
			for _, path := range args {
				s, err := summary(path)
				if err != nil {
					return err
				}
				found = append(found, told{"trace_summary", path, s})
			}
			return cli.WithOutput(cmd, json, func(out *cli.Output) error { return print(out, found) })
		},
	}
	cli.JSON(cmd, &json, "timeline, and one for what differs,")
	return cmd
}

// summary analyses a file. Errors name the file and the position.
func summary(path string) (steptrace.Summary, error) {
	f, err := pathname.Open(path)
	if err != nil {
		return steptrace.Summary{}, err
	}
	defer f.Close()
	line, err := steptrace.Read(f)
	if err != nil {
		return steptrace.Summary{}, fmt.Errorf("%s: %w", path, err)
	}
	return steptrace.Summarise(line), nil
}

// told is a summary as a JSON line.
type told struct {
	Event string `json:"event"` // "trace_summary"
	File  string `json:"file"`
	steptrace.Summary
}

// compared is the comparison of two files.
type compared struct {
	Event   string             `json:"event"` // "trace_comparison"
	A       string             `json:"a"`
	B       string             `json:"b"`
	Figures []steptrace.Change `json:"figures"`
}

// print prints each timeline, and the differences of two, as text and JSON.
func print(out *cli.Output, all []told) error {
	for i, t := range all {
		if i > 0 {
			out.Line("")
		}
		t.print(out)
		if err := out.Object(t); err != nil {
			return err
		}
	}
	if len(all) < 2 {
		return nil
	}
	c := compared{"trace_comparison", all[0].File, all[1].File, steptrace.Compare(all[0].Summary, all[1].Summary)}
	out.Line("")
	c.print(out)
	return out.Object(c)
}

func (t told) print(out *cli.Output) {
	note := ""
	if t.LeftOut {
		note = "; later ones were not recorded"
	}
	out.Line("%s: %s, %s in %s ms, %s ms a step%s", t.File, cli.Counted(len(t.Ranks), "rank"), cli.Counted(t.Steps, "step"),
		cli.Milliseconds(t.WallMS), cli.Milliseconds(t.StepMS), note)
	out.Line("\n%4s  %11s  %8s  %9s  %10s  %6s  %7s  %s", "rank", "computation", "exchange", "data wait", "evaluation", "idle", "overlap", "sent in a step")
	for _, r := range t.Ranks {
		row(out, strconv.Itoa(r.Rank), r)
	}
	if len(t.Ranks) > 1 {
		row(out, "mean", t.Mean)
	}
	t.printPath(out)
	if len(t.Waits) > 0 {
		out.Line("\nlongest waits:")
	}
	for _, w := range t.Waits {
		out.Line("  %8s ms  %s", cli.Milliseconds(w.WaitMS), waited(w))
	}
}

func row(out *cli.Output, name string, r steptrace.RankSummary) {
	out.Line("%4s  %11s  %8s  %9s  %10s  %6s  %7s  %s", name, quantity.Percent(r.Compute), quantity.Percent(r.Exchange), quantity.Percent(r.Data), quantity.Percent(r.Other), quantity.Percent(r.Idle),
		quantity.Percent(r.Overlap), cli.Bytes(r.StepBytesSent))
}

// parts is the maximum number of printed parts of the critical path; JSON has all.
const parts = 6

// printPath prints the critical path: the ranks' shares and the parts worth speeding up.
func (t told) printPath(out *cli.Output) {
	if len(t.Path.Parts) == 0 {
		return
	}
	var ranks []string
	for rank, share := range t.Path.Ranks {
		if share > 0 {
			ranks = append(ranks, fmt.Sprintf("rank %d %s", rank, quantity.Percent(share)))
		}
	}
	const most = 8
	if more := len(ranks) - most; more > 0 {
		ranks = append(ranks[:most], "and "+cli.Counted(more, "more rank"))
	}
	out.Line("\ncritical path: %s; it goes %s from one to another", strings.Join(ranks, ", "), times(t.Path.Changes))
	for _, p := range t.Path.Parts[:min(parts, len(t.Path.Parts))] {
		out.Line("  %6s  rank %d %s", quantity.Percent(p.Share), p.Rank, cmp.Or(p.Track, "idle"))
	}
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return cli.Grouped(n) + " times"
}

func waited(w steptrace.Wait) string {
	text := fmt.Sprintf("rank %d", w.Rank)
	if w.Step >= 0 {
		text += fmt.Sprintf(", step %d", w.Step)
	}
	if w.Cause == steptrace.NoData {
		return text + ": the next batch was not there"
	}
	text += ", " + plain(w.For)
	if w.LateRank >= 0 {
		text += fmt.Sprintf(": rank %d began it %s ms later, mostly in %s (%s ms)", w.LateRank, cli.Milliseconds(w.LateMS), plain(w.LateIn), cli.Milliseconds(w.LateInMS))
	}
	if w.Cause == steptrace.LateRank {
		return text
	}
	text += fmt.Sprintf(": exchanging took %s ms", cli.Milliseconds(w.WaitMS-w.LateMS))
	if w.BytesSent >= 0 {
		text += fmt.Sprintf(" (%s, %s sent)", plain(w.Algorithm), cli.Bytes(float64(w.BytesSent)))
	}
	return text
}

// plain makes a text of a file safe for a terminal: control characters are quoted as in Go.
func plain(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// print prints both values side by side, and B/A if A is above 0.
func (c compared) print(out *cli.Output) {
	out.Line("%-42s %11s %11s   %s", "of a step, mean over ranks", "A", "B", "B/A")
	for _, f := range c.Figures {
		ratio := "-"
		if f.A > 0 {
			ratio = fmt.Sprintf("%.2f", f.B/f.A)
		}
		out.Line("%-42s %11s %11s   %s", f.Name, figure(f.A, f.Unit), figure(f.B, f.Unit), ratio)
	}
}

func figure(v float64, unit string) string {
	switch unit {
	case "ms":
		return cli.Milliseconds(v) + " ms"
	case "B":
		return cli.Bytes(v)
	}
	return quantity.Percent(v)
}
