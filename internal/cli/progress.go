package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
)

// PlainEvery is how often plain progress prints a line.
const PlainEvery = 10 * time.Second

// Styles are the ways to show progress: auto is bar where a person watches, plain elsewhere.
func Styles() []string { return []string{"auto", "bar", "plain", "none"} }

// StyleFor turns auto into a bar where a person watches and into plain lines elsewhere.
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

// Progress shows how far one thing after the other is, such as a file that is fetched.
type Progress struct {
	// Style is bar, plain or none.
	Style string
	// To is a terminal with Style bar.
	To io.Writer
	// Unit is what is counted, such as "bytes".
	Unit string
	// Columns is how wide the terminal is, 0 when not known.
	Columns int

	thing   string
	bar     *progressbar.ProgressBar
	printed time.Time
	done    int64
}

// ProgressFlag adds --progress to a command whose work is counted in a unit. What it returns makes, when the command
// runs, its progress on stderr, or a fault of the command line.
func ProgressFlag(cmd *cobra.Command, unit string) func() (*Progress, error) {
	style := "auto"
	Choice(cmd, &style, "progress", "progress `style`: auto, bar, plain or none", Styles()...)
	return func() (*Progress, error) {
		to := cmd.ErrOrStderr()
		style, err := StyleFor(style, to)
		return &Progress{Style: style, To: to, Unit: unit, Columns: Columns(to)}, Usage(err)
	}
}

// Update says that so much is done of a thing; total is below 0 when not known. Another thing than before ends that.
func (p *Progress) Update(thing string, done, total int64) {
	if thing != p.thing {
		p.Finish()
		p.thing, p.printed = thing, time.Now()
		if p.Style == "bar" {
			const numbers = 47 // "  34% || (9.9/9.9 MB, 12.3 MB/s) [12m0s:12m0s]"
			p.bar = NewBar(p.To, p.Columns, len(thing)+numbers, total,
				progressbar.OptionSetDescription(thing), progressbar.OptionShowCount(), progressbar.OptionShowBytes(p.Unit == "bytes"))
		}
	}
	p.done = done
	switch {
	case p.bar != nil:
		_ = p.bar.Set64(done) // a terminal that cannot be written to stops nothing
	case p.Style == "plain" && time.Since(p.printed) >= PlainEvery:
		p.printed = time.Now()
		of := ""
		if total >= 0 {
			of = " of " + Grouped(int(total))
		}
		fmt.Fprintf(p.To, "%s: %s%s %s\n", thing, Grouped(int(done)), of, p.Unit)
	}
}

// Finish ends the thing's progress with a line that stays.
func (p *Progress) Finish() {
	EndBar(p.bar)
	if p.Style != "none" && p.thing != "" {
		fmt.Fprintf(p.To, "%s: %s\n", p.thing, Counted(int(p.done), strings.TrimSuffix(p.Unit, "s")))
	}
	p.bar, p.thing = nil, ""
}
