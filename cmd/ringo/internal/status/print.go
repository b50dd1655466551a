package status

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/dashboard"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// lastFaults is the number of last events printed; --json has all.
const lastFaults = 5

// Print writes a job's status as one screen of text. External text, such as host or layer names,
// cannot send control characters to the terminal.
func Print(to io.Writer, s dashboard.Status) {
	var b strings.Builder
	title(&b, s)
	if p := place(s); p != "" {
		fmt.Fprintf(&b, "  %s\n", p)
	}
	if len(s.Figures) > 0 {
		var all []string
		for _, f := range s.Figures {
			all = append(all, f.Name+" "+f.Text)
		}
		fmt.Fprintf(&b, "  %s\n", strings.Join(all, ", "))
	}
	if p := parts(s.Step); p != "" {
		fmt.Fprintf(&b, "  %s\n", p)
	}
	if s.Cause != nil {
		fmt.Fprintf(&b, "  ! %s of a step: %s\n", quantity.Percent(s.Cause.Share), s.Cause.Text)
	}
	for _, x := range s.Stragglers {
		if s.Cause == nil || x.Cause != s.Cause.Text {
			fmt.Fprintf(&b, "  ! %s\n", x.Cause)
		}
	}
	processes(&b, s.Processes)
	first := max(0, len(s.Faults)-lastFaults)
	if n := first + s.FaultsLeftOut; n > 0 {
		fmt.Fprintf(&b, "  (%s before)\n", cli.Counted(n, "line"))
	}
	for _, f := range s.Faults[first:] {
		at := ""
		if t, err := time.Parse(time.RFC3339, f.At); err == nil {
			at = t.Format(time.TimeOnly) + " UTC  "
		}
		fmt.Fprintf(&b, "  %s%s\n", at, strings.ReplaceAll(f.Text, "\n", "\n    "))
	}
	_, _ = io.WriteString(to, strings.Map(visible, b.String())) // writes to memory
}

func title(b *strings.Builder, s dashboard.Status) {
	fmt.Fprintf(b, "job %s: %s", s.Job, s.State)
	if s.Model != "" {
		fmt.Fprintf(b, " %s", s.Model)
	}
	if s.Ranks > 0 {
		fmt.Fprintf(b, ", %s", cli.Counted(s.Ranks, "rank"))
	}
	if s.Servers > 0 {
		fmt.Fprintf(b, ", %s", cli.Counted(s.Servers, "server"))
	}
	if v := float64(s.RunningS); v > 0 {
		fmt.Fprintf(b, ", for %s", quantity.Seconds(v))
	}
	b.WriteByte('\n')
	if s.Command != "" {
		fmt.Fprintf(b, "  %s\n", s.Command)
	}
}

func place(s dashboard.Status) string {
	if s.PhaseTotal == 0 {
		return ""
	}
	return fmt.Sprintf("epoch %d of %d, %s %s of %s, %s of the run", s.Epoch, s.Epochs, s.Phase, cli.Grouped(s.PhaseDone), cli.Grouped(s.PhaseTotal), quantity.Percent(s.Share))
}

// parts describes the parts of a step, except zero parts.
func parts(p dashboard.Parts) string {
	if !(p.StepMS > 0) {
		return ""
	}
	var all []string
	for _, part := range stepParts {
		if ms := part.of(p); ms > 0 {
			all = append(all, part.name+" "+cli.Milliseconds(ms))
		}
	}
	return fmt.Sprintf("a step of rank 0, %s ms: %s", cli.Milliseconds(float64(p.StepMS)), strings.Join(all, ", "))
}

func processes(b *strings.Builder, all []dashboard.ProcessStatus) {
	if len(all) == 0 {
		return
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  process\tstep\tms a step\tof its own\tdoes")
	for _, p := range all {
		step, at := "", "\t" // empty for servers
		if p.Steps >= 0 {
			step = cli.Grouped(int(p.Steps))
		}
		if p.Step > 0 {
			at = milliseconds(float64(p.StepMS)) + "\t" + milliseconds(float64(p.OwnMS))
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", strings.Map(visible, p.Name), step, at, strings.Map(visible, does(p)))
	}
	_ = w.Flush() // writes to memory
	for line := range strings.Lines(table.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

func milliseconds(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return cli.Milliseconds(v)
}

// quiet is the number of seconds without a step after which the silence is printed.
const quiet = 5

func does(p dashboard.ProcessStatus) string {
	text := p.Doing
	switch {
	case p.Ended == "well":
		return "has ended"
	case p.Ended != "":
		return p.Ended
	case p.WaitsFor != "":
		text += ", waits for " + p.WaitsFor
		if s := float64(p.WaitsS); s >= 0.1 {
			text += fmt.Sprintf(" for %s", quantity.Seconds(s))
		}
	}
	if s := float64(p.SilentS); s >= quiet {
		text += fmt.Sprintf(", no step for %s", quantity.Seconds(s))
	}
	if p.Restarts > 0 {
		text += fmt.Sprintf(", started again %s", cli.Counted(p.Restarts, "time"))
	}
	return strings.TrimPrefix(text, ", ")
}

// visible makes a rune safe for a terminal: no control characters except line ends, no changes of
// text direction and no invisible characters.
func visible(r rune) rune {
	if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
		return unicode.ReplacementChar
	}
	return r
}
