package blackbox

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// An exchange can consist of operations of a group and of messages between two ranks, as sparse
// exchanges do. The number of a message is common to two ranks only: therefore operations show
// which ranks differ, and messages show what a rank did before its next operation.

// within returns a finding about messages, with the previous operation's bucket, if each rank that
// had not begun f's operation was in a message after the previous operation; otherwise nil. If f is
// nil, all operations had ended, and the finding has the ranks in a message.
func (b *File) within(f *Finding) *Finding {
	var out *Finding
	var ended []string
	for i := range b.Processes {
		p := &b.Processes[i]
		if p.Serves {
			continue
		}
		missing := f == nil || slices.ContainsFunc(f.Missing, func(d Activity) bool { return d.Rank == p.Name })
		before, m, in := p.message(f)
		switch {
		case missing && in && out == nil:
			out = &Finding{Group: m.Group, Seq: before.Seq, Operation: before.what() + ", then " + m.what(), Bucket: before.Label, Step: before.Step}
		case f != nil && missing && !in:
			return nil
		case !missing || !in:
			ended = append(ended, p.Name)
		}
		if missing && in {
			out.Waited = append(out.Waited, WaitingFor{Rank: p.Name, Peer: m.Peer, For: fmt.Sprintf("rank %d", m.Peer), ExitStatus: p.killed()})
		}
	}
	if out != nil {
		out.Ended = ended
	}
	return out
}

// message returns m, the first message that the process was in or failed in, and before, the last
// operation that m's group has ended. in is false without such a message, and if the operation of f
// does not follow before; f may be nil.
func (p *Process) message(f *Finding) (before, m Entry, in bool) {
	all := slices.Concat(p.Ended, p.Open)
	for _, e := range all {
		stuck := e.Kind == record.Message.String() && e.Peer >= 0 && (e.Failed || e.Done == 0)
		if stuck && (f == nil || e.Group == f.Group) && (!in || cmp.Less(e.Begun, m.Begun)) {
			m, in = e, true
		}
	}
	known := false
	for _, e := range all {
		if in && e.Kind == record.Operation.String() && e.Group == m.Group && (!known || e.Seq > before.Seq) {
			before, known = e, true
		}
	}
	return before, m, in && known && before.Done != 0 && !before.Failed && (f == nil || before.Seq+1 == f.Seq)
}
