package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
)

// PlainEvery is the interval of plain progress lines.
const PlainEvery = 10 * time.Second

// Styles returns the styles of progress: auto is bar on a terminal, else plain.
func Styles() []string { return []string{"auto", "bar", "plain", "none"} }

// StyleFor resolves auto to bar on a terminal, and to plain elsewhere.
func StyleFor(style string, to io.Writer) (string, error) {
	var faults Faults
	faults.Known("progress", style, Styles()...)
	switch {
	case len(faults) > 0:
		return "", faults[0]
	case style != "auto":
		return style, nil
	case IsTerminal(to):
		return "bar", nil
	}
	return "plain", nil
}

// Progress displays the progress of sequential tasks, such as downloads.
type Progress struct {
	// Style is bar, plain or none.
	Style string
	// To is a terminal with Style bar.
	To io.Writer
	// Unit is the counted unit, such as "bytes".
	Unit string
	// Columns is the width of the terminal, 0 if unknown.
	Columns int

	thing   string
	bar     *progressbar.ProgressBar
	printed time.Time
	done    int64
}

// ProgressFlag adds --progress to a command that counts unit. The result creates, when the command
// runs, the progress on stderr, or returns a command-line error.
func ProgressFlag(cmd *cobra.Command, unit string) func() (*Progress, error) {
	style := "auto"
	Choice(cmd, &style, "progress", "progress `style`: auto, bar, plain or none", Styles()...)
	return func() (*Progress, error) {
		to := cmd.ErrOrStderr()
		style, err := StyleFor(style, to)
		return &Progress{Style: style, To: to, Unit: unit, Columns: Columns(to)}, Usage(err)
	}
}

// Update reports a task's progress, ending the previous task; total is negative if unknown.
func (p *Progress) Update(thing string, done, total int64) {
	if thing != p.thing {
		p.Finish()
		p.thing, p.printed = thing, time.Now()
		if p.Style == "bar" {
			const numbers = 47 // width of "  34% || (9.9/9.9 MB, 12.3 MB/s) [12m0s:12m0s]"
			p.bar = NewBar(p.To, p.Columns, len(thing)+numbers, total,
				progressbar.OptionSetDescription(thing), progressbar.OptionShowCount(), progressbar.OptionShowBytes(p.Unit == "bytes"))
		}
	}
	p.done = done
	switch {
	case p.bar != nil:
		_ = p.bar.Set64(done) // terminal write errors are ignored
	case p.Style == "plain" && time.Since(p.printed) >= PlainEvery:
		p.printed = time.Now()
		of := ""
		if total >= 0 {
			of = " of " + Grouped(int(total))
		}
		fmt.Fprintf(p.To, "%s: %s%s %s\n", thing, Grouped(int(done)), of, p.Unit)
	}
}

// Finish ends the task's progress with a permanent line.
func (p *Progress) Finish() {
	EndBar(p.bar)
	if p.Style != "none" && p.thing != "" {
		fmt.Fprintf(p.To, "%s: %s\n", p.thing, Counted(int(p.done), strings.TrimSuffix(p.Unit, "s")))
	}
	p.bar, p.thing = nil, ""
}
