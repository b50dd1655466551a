package blackbox

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// LostProcess is a process that was lost and thereby ended the job.
type LostProcess struct {
	Rank string `json:"rank"`
	// By are the ranks with an error about the loss; empty if the launcher detected the loss.
	By []string `json:"by,omitempty"`
}

func (l LostProcess) text() string {
	if len(l.By) == 0 {
		return l.Rank + " was lost"
	}
	return fmt.Sprintf("%s was lost, as %s found", l.Rank, strings.Join(l.By, ", "))
}

// blame adds lost processes to a finding about other processes. A rank that failed because of the
// loss may not have sent its last data, so that the exchange before can be the first unfinished
// one.
func (b *File) blame(f *Finding) {
	for _, l := range b.losses() {
		if !f.mentions(l.Rank) {
			f.Lost = append(f.Lost, l)
		}
	}
}

// losses returns the processes that the launcher found lost, else the process that each rank's
// first error names. A rank's error about itself does not count: a disconnected rank considers the
// rest lost.
func (b *File) losses() (out []LostProcess) {
	for _, p := range b.Processes {
		if p.Lost {
			out = append(out, LostProcess{Rank: p.Name})
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, p := range b.Processes {
		at := slices.IndexFunc(p.Ended, func(e Entry) bool { return e.Kind == record.Fault.String() && e.With >= 0 && e.With != p.Rank })
		if at < 0 {
			continue
		}
		lost := fmt.Sprintf("rank %d", p.Ended[at].With)
		have := slices.IndexFunc(out, func(l LostProcess) bool { return l.Rank == lost })
		if have < 0 {
			have, out = len(out), append(out, LostProcess{Rank: lost})
		}
		out[have].By = append(out[have].By, p.Name)
	}
	return out
}

// mentions reports whether the finding names a process other than in Ended.
func (f *Finding) mentions(name string) bool {
	is := func(d Activity) bool { return d.Rank == name }
	return slices.ContainsFunc(f.Missing, is) || slices.ContainsFunc(f.Within, is) ||
		slices.ContainsFunc(f.Waited, func(w WaitingFor) bool { return w.Rank == name || w.For == name }) ||
		slices.ContainsFunc(f.Differ, func(d OperationOf) bool { return slices.Contains(d.Ranks, name) })
}
