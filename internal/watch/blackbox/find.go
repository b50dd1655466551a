package blackbox

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// Finding is the first operation of a group that differs between ranks, or that no rank has ended.
type Finding struct {
	Group     uint32 `json:"group"`
	Seq       uint32 `json:"seq"`
	Operation string `json:"what"`             // "allreduce of 4096 bytes by ring"
	Bucket    string `json:"bucket,omitempty"` // "bucket 3 (fc.bias)"
	Step      int64  `json:"step"`             // steps done before, -1: unknown; for a request, the request's step
	// Request reports whether the finding is a request to a parameter server instead of an
	// operation: one that processes wait for or, if none waits, the last request of a killed
	// process, which is then in Within.
	Request bool `json:"request,omitempty"`
	// Fault reports whether the finding is an error reported by ranks in a bucket, instead of an
	// unfinished operation: Differ has each rank's report.
	Fault bool `json:"fault,omitempty"`
	// Differ is the operations of the ranks, if different.
	Differ []OperationOf `json:"differ,omitempty"`
	// Missing are the ranks that had not begun the operation.
	Missing []Activity `json:"missing,omitempty"`
	// Waited are the ranks that waited in the operation for a rank that had not ended it. Within
	// are the other ranks in the operation.
	Waited []WaitingFor `json:"waited,omitempty"`
	Within []Activity   `json:"within,omitempty"`
	// Ended are the names of the ranks that had ended the operation.
	Ended []string `json:"ended,omitempty"`
	// Lost are the lost processes that ended the job, if in no field above or only in Ended.
	Lost []LostProcess `json:"lost,omitempty"`
}

// OperationOf is the operation of some ranks.
type OperationOf struct {
	Operation string   `json:"what"`
	Ranks     []string `json:"ranks"`
}

// Activity is the activity of a process outside the operation.
type Activity struct {
	Rank       string `json:"rank"`
	Doing      string `json:"doing,omitempty"`  // "backward of step 12"
	Serves     bool   `json:"serves,omitempty"` // server
	ExitStatus string `json:"how,omitempty"`    // exit status
}

// WaitingFor is a wait of one process for another.
type WaitingFor struct {
	Rank       string `json:"rank"`
	Peer       int    `json:"peer"`
	For        string `json:"for"`           // Peer's name
	ExitStatus string `json:"how,omitempty"` // exit status, if killed
	// Lost reports whether the peer had ended the operation, and no other cause blocked the rank:
	// the peer's last data did not arrive, as after a broken connection.
	Lost bool `json:"lost,omitempty"`

	failed bool
}

// Find returns the finding, or nil if no rank was in an operation and all ranks had done the same.
func (b *File) Find() *Finding {
	f := b.find()
	if f != nil && !f.Request && !f.Fault {
		b.blame(f)
	}
	return f
}

func (b *File) find() *Finding {
	if slices.ContainsFunc(b.Processes, func(p Process) bool { return p.tables() && p.hasEnded() }) { // the exchanges among ranks are affected as a consequence
		return cmp.Or(b.stuck(), b.last())
	}
	groups := map[uint32]map[int]map[uint32]Entry{} // operations by process and number
	for i, p := range b.Processes {
		for _, e := range slices.Concat(p.Ended, p.Open) {
			if e.Kind != record.Operation.String() {
				continue
			}
			if groups[e.Group] == nil {
				groups[e.Group] = map[int]map[uint32]Entry{}
			}
			if groups[e.Group][i] == nil {
				groups[e.Group][i] = map[uint32]Entry{}
			}
			groups[e.Group][i][e.Seq] = e
		}
	}
	var first *Finding
	begun := int64(0)
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		if f, at := b.differ(id, groups[id]); f != nil && (first == nil || at < begun) {
			first, begun = f, at
		}
	}
	if first == nil {
		return cmp.Or(b.stuck(), b.last(), b.faulted(), b.within(nil))
	}
	if len(first.Missing) > 0 && len(first.Differ) == 0 {
		return cmp.Or(b.within(first), first)
	}
	return first
}

// differ returns the first operation of a group with a difference between members, and its begin.
func (b *File) differ(group uint32, did map[int]map[uint32]Entry) (*Finding, int64) {
	if group == 0 || group == record.AggregationGroup { // groups of all ranks, including ranks that died before their first operation
		for i, p := range b.Processes {
			if p.Rank >= 0 && !p.Serves && p.Silent == "" && did[i] == nil {
				did[i] = map[uint32]Entry{}
			}
		}
	}
	members := slices.Sorted(maps.Keys(did))
	seqs, latest := map[uint32]bool{}, map[int]uint32{}
	for i, ops := range did {
		for seq := range ops {
			seqs[seq], latest[i] = true, max(latest[i], seq)
		}
	}
	for _, seq := range slices.Sorted(maps.Keys(seqs)) {
		f := &Finding{Group: group, Seq: seq, Step: -1}
		if begun, open := f.look(b, members, did, latest); open {
			return f, begun
		}
	}
	return nil, 0
}

// look fills in the members' state of operation f.Seq. open reports whether the operation is
// unfinished or different on some member; begun is the earliest known begin.
func (f *Finding) look(b *File, members []int, did map[int]map[uint32]Entry, latest map[int]uint32) (begun int64, open bool) {
	begun = math.MaxInt64
	sigs := map[string]int{} // index in Differ, by signature
	for _, i := range members {
		p := b.Processes[i]
		e, ok := did[i][f.Seq]
		switch {
		case ok:
		case p.Unseen > 0: // the operation may be missing for lack of space in the record
			continue
		case f.Seq < latest[i]: // operations begin in order: this operation ended and was overwritten
			f.Ended = append(f.Ended, p.Name)
			continue
		default:
			f.Missing, open = append(f.Missing, p.doing()), true
			continue
		}
		if e.Begun != 0 {
			begun = min(begun, e.Begun)
		}
		if f.Operation == "" {
			f.Operation, f.Step = e.what(), e.Step
		}
		f.Bucket = cmp.Or(f.Bucket, e.Label)
		at, seen := sigs[e.Sig]
		if !seen {
			at = len(f.Differ)
			sigs[e.Sig], f.Differ = at, append(f.Differ, OperationOf{Operation: e.what()})
		}
		f.Differ[at].Ranks = append(f.Differ[at].Ranks, p.Name)
		switch {
		case e.Done != 0 && !e.Failed:
			f.Ended = append(f.Ended, p.Name)
		case e.Peer >= 0:
			f.Waited, open = append(f.Waited, WaitingFor{Rank: p.Name, Peer: e.Peer, For: fmt.Sprintf("rank %d", e.Peer), ExitStatus: p.killed(), failed: e.Failed}), true
		default:
			f.Within, open = append(f.Within, p.doing()), true
		}
	}
	if len(f.Differ) < 2 {
		f.Differ = nil
	}
	f.release(b)
	return begun, open || len(f.Differ) > 0
}

// release removes from Waited each rank that waited for a rank, or an aggregation server, that had
// ended its part: it only had no time yet to receive. If all such ranks failed and no other rank
// delayed the operation, they stay, because the data were lost.
func (f *Finding) release(b *File) {
	var lost []WaitingFor
	within := len(f.Within)
	f.Waited = slices.DeleteFunc(f.Waited, func(w WaitingFor) bool {
		rank := func(p Process) bool {
			return p.Rank == w.Peer && (slices.Contains(f.Ended, p.Name) || !p.hasEnded() && p.summed(f.Group, f.Seq))
		}
		if !slices.ContainsFunc(b.Processes, rank) {
			return false
		}
		who := slices.IndexFunc(b.Processes, func(p Process) bool { return p.Name == w.Rank })
		f.Within = append(f.Within, b.Processes[who].doing())
		if w.Lost = true; w.failed && w.ExitStatus == "" && slices.Contains(f.Ended, w.For) {
			lost = append(lost, w)
		}
		return true
	})
	if released := len(f.Within) - within; within == 0 && len(f.Missing) == 0 && len(lost) == released {
		f.Within, f.Waited = nil, append(f.Waited, lost...)
	}
}

func (p *Process) doing() Activity {
	d := Activity{Rank: p.Name, Doing: p.Doing, Serves: p.Serves, ExitStatus: p.ExitStatus}
	if d.Doing != "" && p.Step >= 0 {
		d.Doing += fmt.Sprintf(" of step %d", p.Step+1)
	}
	return d
}

// killed returns the status of a process that a signal has ended, or "" for another process.
func (p *Process) killed() string {
	if strings.HasPrefix(p.ExitStatus, "killed") {
		return p.ExitStatus
	}
	return ""
}

// hasEnded reports whether the process had stopped working, and not because of other processes.
func (p *Process) hasEnded() bool {
	return p.Lost || p.killed() != "" || strings.HasPrefix(p.ExitStatus, "stopped")
}

func (e Entry) what() string {
	text := e.Name
	if e.Size > 0 {
		text += fmt.Sprintf(" of %d bytes", e.Size)
	}
	if e.Algorithm != "" {
		text += " by " + e.Algorithm
	}
	return text
}

// String returns the finding on a single line.
func (f *Finding) String() string {
	switch {
	case f.Request:
		return f.request()
	case f.Fault:
		return f.fault()
	}
	text := fmt.Sprintf("operation %d", f.Seq)
	if f.Group == record.AggregationGroup {
		text += " of those through servers"
	} else if f.Group > 0 {
		text += fmt.Sprintf(" of group %d", f.Group)
	}
	if len(f.Differ) == 0 {
		text += " (" + f.Operation + ")"
	}
	if f.Bucket != "" {
		text += ", " + f.Bucket
	}
	if f.Step >= 0 {
		text += fmt.Sprintf(", in step %d", f.Step+1)
	}
	parts := []string{}
	for _, d := range f.Differ {
		parts = append(parts, fmt.Sprintf("%s began %s", strings.Join(d.Ranks, ", "), d.Operation))
	}
	for _, m := range f.Missing {
		parts = append(parts, m.Rank+" had not begun it"+m.besides())
	}
	for _, w := range f.Within {
		parts = append(parts, w.Rank+" was in it"+w.besides())
	}
	for _, w := range f.Waited {
		text := fmt.Sprintf("%s waited for %s", w.Rank, w.For)
		if w.Lost {
			text += ", whose last messages were lost"
		}
		parts = append(parts, text+Activity{ExitStatus: w.ExitStatus}.besides())
	}
	if len(f.Ended) > 0 {
		parts = append(parts, strings.Join(f.Ended, ", ")+" had ended it")
	}
	for _, l := range f.Lost {
		parts = append(parts, l.text())
	}
	return text + ": " + strings.Join(parts, "; ")
}

func (d Activity) besides() string {
	var parts []string
	if d.Doing != "" {
		parts = append(parts, "in "+d.Doing)
	}
	if d.ExitStatus != "" {
		parts = append(parts, d.ExitStatus)
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
