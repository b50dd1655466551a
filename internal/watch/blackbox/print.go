package blackbox

import (
	"bufio"
	"fmt"
	"io"
	"time"

	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// shown is the number of last operations that Print writes per process.
const shown = 12

// Print writes the box as text: the finding, and per process the events in progress and the last
// operations, with times relative to the file's time.
func (b *File) Print(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "black box of %s, written %s\n%s\n", quantity.Count(len(b.Processes), "process"), b.Written.Format(time.RFC3339), b.Why)
	if f := b.Find(); f != nil {
		fmt.Fprintf(out, "the first in which ranks differ, or that did not end: %v\n", f)
	} else {
		fmt.Fprintln(out, "no rank was in an operation, and all had done the same")
	}
	for i := range b.Processes {
		b.printProcess(out, &b.Processes[i])
	}
	return out.Flush()
}

func (b *File) printProcess(out io.Writer, p *Process) {
	fmt.Fprintf(out, "\n%s", p.Name)
	if p.ExitStatus != "" {
		fmt.Fprintf(out, ": %s", p.ExitStatus)
	}
	fmt.Fprintln(out)
	if p.Silent != "" {
		fmt.Fprintf(out, "  %s\n", p.Silent)
		return
	}
	if d := p.doing(); d.Doing != "" {
		fmt.Fprintf(out, "  in %s\n", d.Doing)
	}
	last := p.Ended[max(0, len(p.Ended)-shown):]
	if mixed(last) {
		fmt.Fprintln(out, "  the order of operations of several groups is not known where their times are not")
	}
	for _, e := range last {
		state := "ended"
		if e.Failed {
			state = "failed"
		}
		b.printEntry(out, p, e, state)
	}
	for _, e := range p.Open {
		b.printEntry(out, p, e, "under way")
	}
}

// mixed reports whether operations of unknown time occur among operations of another group: they
// follow their predecessors in their group.
func mixed(entries []Entry) bool {
	groups, unknown := map[uint32]bool{}, false
	for _, e := range entries {
		if e.Kind == record.Operation.String() {
			groups[e.Group], unknown = true, unknown || e.Begun == 0
		}
	}
	return unknown && len(groups) > 1
}

func (b *File) printEntry(out io.Writer, p *Process, e Entry, state string) {
	ago := "at no known time"
	if e.Begun != 0 {
		ago = quantity.Duration(b.Written.Sub(time.Unix(0, e.Begun))) + " ago"
	}
	if e.Kind == record.Fault.String() || e.Kind == record.Change.String() {
		fmt.Fprintf(out, "  %16s  %s: %s\n", ago, e.Kind, e.Name)
		return
	}
	fmt.Fprintf(out, "  %16s  %-9s %d %s", ago, e.Kind, e.Seq, e.what())
	if e.Rows > 0 {
		fmt.Fprintf(out, ", %s", quantity.Count(e.Rows, "row"))
	}
	if what := e.table(); e.Kind == record.Request.String() && what != "" {
		fmt.Fprintf(out, ", %s", what)
	} else if e.Label != "" {
		fmt.Fprintf(out, ", %s", e.Label)
	}
	if e.Kind == record.Request.String() && e.Step >= 0 {
		fmt.Fprintf(out, ", for step %d", e.Step)
	}
	if e.With >= 0 {
		fmt.Fprintf(out, ", with %d", e.With)
	}
	fmt.Fprintf(out, ", %s", state)
	if e.Done > 0 && e.Begun != 0 {
		fmt.Fprintf(out, " after %s", quantity.Duration(time.Duration(e.Done-e.Begun)))
	}
	if e.Peer >= 0 {
		whom := "rank"
		if e.Kind == record.Request.String() && !p.Serves {
			whom = "parameter server"
		}
		fmt.Fprintf(out, ", waiting for %s %d", whom, e.Peer)
	}
	fmt.Fprintln(out)
}
