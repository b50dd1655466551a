package blackbox

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// asked is a request as both ends record it.
type asked struct {
	server, rank  int
	name, session string
	number        uint32
}

// wait is one process's for another because of a request: both are places in File.Processes.
type wait struct {
	waiter, holder int
	of             Entry
}

// tables says that the process is a server which keeps parameters.
func (p *Process) tables() bool { return p.Serves && p.Rank < 0 }

// place is that of a rank, or of the server with a number that keeps parameters; -1: it is not there.
func (b *File) place(tables bool, number int) int {
	return slices.IndexFunc(b.Processes, func(p Process) bool {
		return p.tables() == tables && (tables && strings.HasSuffix(p.Name, fmt.Sprintf(" %d", number)) || !tables && p.Rank == number)
	})
}

// waits are those for servers that keep parameters, and at them for other ranks. A rank whose request a server has answered does not wait,
// whatever it says itself: it was stopped before it read the answer.
func (b *File) waits() (out []wait) {
	answered := map[asked]bool{} // or the server says itself for whom it waits
	for i := range b.Processes {
		p := &b.Processes[i]
		if !p.tables() {
			continue
		}
		server := numberOf(p.Name)
		for key, e := range p.latest(func(e Entry) asked { return asked{server, e.With, e.Name, e.Algorithm, e.Seq} }) {
			who, whom := b.place(false, e.With), b.place(false, e.Peer)
			waits := !e.over() && e.Peer >= 0 && who >= 0 && whom >= 0 && !p.hasEnded()
			answered[key] = waits || e.over()
			if waits && who != whom { // a rank asks ahead, and waits for itself before it is as far
				out = append(out, wait{who, whom, e})
			}
		}
	}
	for i := range b.Processes {
		p := &b.Processes[i]
		if p.Serves {
			continue
		}
		for key, e := range p.latest(func(e Entry) asked { return asked{e.With, p.Rank, e.Name, e.Algorithm, e.Seq} }) {
			whom := b.place(true, e.With)
			if !e.over() && e.Peer >= 0 && whom >= 0 && !answered[key] {
				out = append(out, wait{i, whom, e})
			}
		}
	}
	slices.SortFunc(out, func(a, b wait) int {
		return cmp.Or(cmp.Compare(a.of.Step, b.of.Step), cmp.Compare(a.of.Begun, b.of.Begun), cmp.Compare(a.of.Seq, b.of.Seq), cmp.Compare(a.waiter, b.waiter))
	})
	return out
}

// latest are the requests of a process, each as it was last: one is made again where a connection has broken.
func (p *Process) latest(key func(Entry) asked) map[asked]Entry {
	out := map[asked]Entry{}
	for _, e := range slices.Concat(p.Ended, p.Open) {
		if e.Kind == record.Request.String() && e.Group != record.AggregationGroup {
			out[key(e)] = e
		}
	}
	return out
}

// over says that it has ended well.
func (e Entry) over() bool { return e.Done != 0 && !e.Failed }

// numberOf is the number at the end of a name.
func numberOf(name string) (n int) {
	_, _ = fmt.Sscanf(name[strings.LastIndexByte(name, ' ')+1:], "%d", &n) // 0 where there is none
	return n
}

// stuck is what shows where ranks meet at servers that keep parameters: who was waited for and waited for nobody, and by whom. nil: nobody was.
func (b *File) stuck() *Finding {
	waits := b.waits()
	if len(waits) == 0 {
		return nil
	}
	culprit := waits[0].holder
	if slices.ContainsFunc(b.Processes, func(p Process) bool { return p.hasEnded() }) {
		at := slices.IndexFunc(waits, func(w wait) bool { return b.Processes[w.holder].hasEnded() })
		if at < 0 { // it was not waited for: others wait for a moment always
			return nil
		}
		culprit = waits[at].holder
	} else {
		culprit = follow(waits, culprit)
	}
	f := &Finding{Request: true, Missing: []Activity{b.Processes[culprit].doing()}}
	for _, w := range waits {
		if w.holder != culprit {
			continue
		}
		p := &b.Processes[w.waiter]
		if f.Operation == "" {
			f.Group, f.Seq, f.Operation, f.Bucket, f.Step = w.of.Group, w.of.Seq, w.of.what(), w.of.table(), w.of.Step
		}
		if !slices.ContainsFunc(f.Waited, func(o WaitingFor) bool { return o.Rank == p.Name }) {
			f.Waited = append(f.Waited, WaitingFor{Rank: p.Name, Peer: numberOf(b.Processes[culprit].Name), For: b.Processes[culprit].Name, ExitStatus: p.killed()})
		}
	}
	return f
}

// follow goes from one that is waited for to one who waits for nobody: who waits himself holds nobody up by himself. In a ring it stops
// anywhere.
func follow(waits []wait, from int) int {
	for range waits {
		next := slices.IndexFunc(waits, func(w wait) bool { return w.waiter == from })
		if next < 0 {
			break
		}
		from = waits[next].holder
	}
	return from
}

// summed says that a server which sums has answered an exchange.
func (p *Process) summed(group, seq uint32) bool {
	return slices.ContainsFunc(p.Ended, func(e Entry) bool {
		return e.Kind == record.Request.String() && e.Group == group && e.Seq == seq && e.over()
	})
}

// last is what a process that was killed did last, where nobody waited for it; nil: none was, or nothing is known of it.
func (b *File) last() *Finding {
	for i := range b.Processes {
		p := &b.Processes[i]
		if !p.hasEnded() || p.killed() == "" && !strings.HasPrefix(p.ExitStatus, "no sign") || p.Silent != "" {
			continue
		}
		f := &Finding{Request: true, Step: -1, Within: []Activity{p.doing()}}
		requests := slices.DeleteFunc(slices.Concat(p.Ended, p.Open), func(e Entry) bool { return e.Kind != record.Request.String() })
		if len(requests) > 0 {
			e := slices.MaxFunc(requests, func(a, b Entry) int { return cmp.Compare(a.Begun, b.Begun) })
			f.Group, f.Seq, f.Operation, f.Bucket, f.Step = e.Group, e.Seq, e.what(), e.table(), e.Step
		}
		return f
	}
	return nil
}

// table is what a request is about.
func (e Entry) table() string {
	if e.Label == "" || e.Group == record.AggregationGroup {
		return e.Label
	}
	return "table " + e.Label
}

// request is String of what requests show.
func (f *Finding) request() string {
	text := ""
	if f.Operation != "" {
		text = fmt.Sprintf("request %d (%s)", f.Seq, f.Operation)
	}
	if f.Bucket != "" {
		text += ", " + f.Bucket
	}
	if f.Operation != "" && f.Step >= 0 {
		text += fmt.Sprintf(", for step %d", f.Step)
	}
	var parts []string
	for _, m := range f.Missing {
		did := " had not come so far"
		if m.Serves {
			did = " had not answered it"
		}
		parts = append(parts, m.Rank+did+m.besides())
	}
	for _, w := range f.Waited {
		parts = append(parts, fmt.Sprintf("%s waited for %s", w.Rank, w.For)+Activity{ExitStatus: w.ExitStatus}.besides())
	}
	for _, d := range f.Within {
		did := d.Rank + " had begun nothing for which others wait"
		if f.Operation != "" {
			did = "it was the last of " + d.Rank
		}
		parts = append(parts, did+d.besides())
	}
	return strings.TrimPrefix(text+": "+strings.Join(parts, "; "), ": ")
}

// recognise says of exchanges through servers that sum what ranks say of the same: servers do not know buckets and steps.
func (b *File) recognise(p *Process) {
	known := map[uint32]Entry{}
	for i := range b.Processes {
		if other := &b.Processes[i]; !other.Serves {
			for _, e := range slices.Concat(other.Ended, other.Open) {
				if e.Group == record.AggregationGroup && e.Kind == record.Operation.String() {
					known[e.Seq] = e
				}
			}
		}
	}
	for _, list := range [][]Entry{p.Ended, p.Open} {
		for i := range list {
			if e, ok := known[list[i].Seq]; ok && list[i].Group == record.AggregationGroup {
				list[i].Bucket, list[i].Label, list[i].Step = e.Bucket, e.Label, e.Step
			}
		}
	}
}
