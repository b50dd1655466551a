package blackbox

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// asked identifies a request on both ends.
type asked struct {
	server, rank  int
	name, session string
	number        uint32
}

// wait is a wait between processes, indexes of File.Processes, because of a request.
type wait struct {
	waiter, holder int
	of             Entry
}

// tables reports whether the process is a parameter server.
func (p *Process) tables() bool { return p.Serves && p.Rank < 0 }

// place returns the index of a rank, or of a parameter server by number, or -1.
func (b *File) place(tables bool, number int) int {
	return slices.IndexFunc(b.Processes, func(p Process) bool {
		return p.tables() == tables && (tables && strings.HasSuffix(p.Name, fmt.Sprintf(" %d", number)) || !tables && p.Rank == number)
	})
}

// waits returns the waits of ranks for parameter servers, and of parameter servers for ranks. A
// rank with an answered request does not wait, even if its record says so: it was stopped before it
// read the answer.
func (b *File) waits() (out []wait) {
	answered := map[asked]bool{} // answered, or the server itself recorded the awaited rank
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
			if waits && who != whom { // a rank prefetches, and waits for itself until its clock reaches the request
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

// latest returns the last entry of each request: broken connections repeat requests.
func (p *Process) latest(key func(Entry) asked) map[asked]Entry {
	out := map[asked]Entry{}
	for _, e := range slices.Concat(p.Ended, p.Open) {
		if e.Kind == record.Request.String() && e.Group != record.AggregationGroup {
			out[key(e)] = e
		}
	}
	return out
}

// over reports whether the entry ended without failure.
func (e Entry) over() bool { return e.Done != 0 && !e.Failed }

func numberOf(name string) (n int) {
	_, _ = fmt.Sscanf(name[strings.LastIndexByte(name, ' ')+1:], "%d", &n) // 0 without a number
	return n
}

// stuck returns the finding for ranks that meet at parameter servers: the process that other
// processes waited for and that did not wait itself. It is nil if no process waited.
func (b *File) stuck() *Finding {
	waits := b.waits()
	if len(waits) == 0 {
		return nil
	}
	culprit := waits[0].holder
	if slices.ContainsFunc(b.Processes, func(p Process) bool { return p.hasEnded() }) {
		at := slices.IndexFunc(waits, func(w wait) bool { return b.Processes[w.holder].hasEnded() })
		if at < 0 { // no wait for the ended process: short waits are normal
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

// follow follows waits to a process that does not wait, because a waiting process is not the cause.
// In a circle follow stops at any process.
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

// summed reports whether an aggregation server has answered an exchange.
func (p *Process) summed(group, seq uint32) bool {
	return slices.ContainsFunc(p.Ended, func(e Entry) bool {
		return e.Kind == record.Request.String() && e.Group == group && e.Seq == seq && e.over()
	})
}

// last returns the last request of a killed process that no peer waited for, or nil.
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

func (e Entry) table() string {
	if e.Label == "" || e.Group == record.AggregationGroup {
		return e.Label
	}
	return "table " + e.Label
}

// request is String for a finding from requests.
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

// recognise adds the ranks' bucket and step to an aggregation server's entries.
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
