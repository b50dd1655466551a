// Package blackbox puts together what the processes of a job had recorded when it failed, and says what that shows: the first
// operation in which ranks differ, its bucket, who was missing, and what each was doing.
//
// A launcher merges the memory in which its processes record (package record) into one file; `ringo blackbox FILE` prints it. The
// layout of the file is in docs/formats/blackbox.md.
package blackbox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// Format and Version stand at the beginning of a file.
const (
	Format  = "ringo-blackbox"
	Version = 1
)

// maxFile bounds what Read takes: some 2.7 MB for each of 1,024 processes with all that they can record.
const maxFile = 3 << 30

// File is what the processes of a job had recorded.
type File struct {
	Format    string    `json:"format"`
	Version   int       `json:"version"`
	Written   time.Time `json:"written"`
	Why       string    `json:"why"` // the job failed, in the launcher's words
	Processes []Process `json:"processes"`
}

// Process is one of them.
type Process struct {
	Name       string  `json:"name"`             // "rank 3"
	Rank       int     `json:"rank"`             // its number in the mesh; -1: it is outside
	Serves     bool    `json:"serves,omitempty"` // it is a server, and in no group of ranks
	ExitStatus string  `json:"how,omitempty"`    // it ended: "killed by signal 9 (SIGKILL)"; "": well
	Lost       bool    `json:"lost,omitempty"`   // the job failed because of it, as its launcher found
	Silent     string  `json:"silent,omitempty"` // why nothing is known of what it did; "": it is
	Number     int     `json:"process"`          // of the system
	Step       int64   `json:"step"`             // how many it had done, -1 before the first
	Doing      string  `json:"doing,omitempty"`  // the phase under way
	Unseen     uint64  `json:"unseen,omitempty"` // how much it did at once, and had no room to record
	Open       []Entry `json:"open"`             // what had begun and not ended, the oldest first
	Ended      []Entry `json:"ended"`            // the last operations, messages, requests, faults and changes, in the order in which they began as far as it is known
}

// Entry is an event in words. Times are nanoseconds since 1970 by the host's clock.
type Entry struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Algorithm string `json:"algorithm,omitempty"`
	Bucket    int    `json:"bucket"`          // -1: of none
	Label     string `json:"label,omitempty"` // what the bucket is called
	Step      int64  `json:"step"`
	Group     uint32 `json:"group"`
	Seq       uint32 `json:"seq"`
	With      int    `json:"with"` // the other rank of a message, or a root; -1: none
	Peer      int    `json:"peer"` // for whom it waits, or did when it failed; -1: nobody
	Size      int64  `json:"bytes"`
	Sent      int64  `json:"bytes_sent"`          // -1: unknown
	Sig       string `json:"signature,omitempty"` // the same on ranks that do the same
	Rows      uint64 `json:"rows,omitempty"`      // of a request
	Begun     int64  `json:"begun"`               // or since when it waits; 0: nobody looked at the clock
	Done      int64  `json:"done"`                // 0: it goes on; -1: it has ended, and nobody looked at the clock
	Failed    bool   `json:"failed,omitempty"`
}

// Add adds what a process had recorded; nil: nothing.
func (b *File) Add(p Process, s *record.Snapshot) {
	p.Step, p.Open, p.Ended = -1, []Entry{}, []Entry{}
	if s == nil {
		if p.Silent == "" {
			p.Silent = "it recorded nothing"
		}
		b.Processes = append(b.Processes, p)
		return
	}
	p.Number, p.Step, p.Unseen = s.Process, s.Step, s.Dropped
	for _, e := range s.Open {
		if e.Kind == record.PhaseKind {
			p.Doing = e.Phase.String()
			continue
		}
		p.Open = append(p.Open, entry(s, e))
	}
	for _, e := range s.Operations {
		p.Ended = append(p.Ended, entry(s, e))
	}
	p.Ended = inOrder(p.Ended)
	if p.Serves {
		b.recognise(&p)
	}
	b.Processes = append(b.Processes, p)
}

// inOrder sorts what has ended by when it began. An operation of which nobody knows that stands behind the one before it in its group.
func inOrder(ended []Entry) []Entry {
	slices.SortStableFunc(ended, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Seq, b.Seq)) })
	type dated struct {
		Entry
		at int64
	}
	all, last := make([]dated, len(ended)), map[uint32]int64{} // by group
	for i, e := range ended {
		all[i] = dated{e, e.Begun}
		if e.Kind == record.Operation.String() {
			last[e.Group] = max(last[e.Group], e.Begun)
			all[i].at = last[e.Group]
		}
	}
	slices.SortStableFunc(all, func(a, b dated) int { return cmp.Compare(a.at, b.at) })
	for i := range all {
		ended[i] = all[i].Entry
	}
	return ended
}

func entry(s *record.Snapshot, e record.Event) Entry {
	at := func(ns int64) int64 {
		if ns == 0 || ns == record.Unknown {
			return ns
		}
		return s.Epoch.UnixNano() + ns
	}
	out := Entry{
		Kind: e.Kind.String(), Name: s.Text(e.Name), Algorithm: s.Text(e.Algorithm), Bucket: int(e.Bucket), Label: s.Text(e.Label), Step: e.Step,
		Group: e.Group, Seq: e.Seq, With: int(e.Other), Peer: int(e.Peer), Size: e.Size, Sent: e.Sent, Sig: fmt.Sprintf("%016x", e.Sig),
		Begun: at(cmp.Or(e.Begun, e.Since)), Done: at(e.Done), Failed: e.Failed,
	}
	if e.Kind == record.Request {
		out.Sig, out.Rows = "", e.Sig
	}
	return out
}

// Write writes the file.
func (b *File) Write(w io.Writer) error {
	b.Format, b.Version = Format, Version
	return json.NewEncoder(w).Encode(b)
}

// Read reads a file. Errors say at which byte it is none.
func Read(r io.Reader) (*File, error) {
	in := json.NewDecoder(io.LimitReader(r, maxFile))
	var b File
	if err := in.Decode(&b); err != nil {
		return nil, fmt.Errorf("blackbox: at byte %d: %w", in.InputOffset(), err)
	}
	if b.Format != Format {
		return nil, fmt.Errorf("blackbox: its format is %q: want %q", b.Format, Format)
	}
	if b.Version != Version {
		return nil, fmt.Errorf("blackbox: version %d, this program reads %d", b.Version, Version)
	}
	return &b, nil
}
