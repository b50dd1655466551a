// Package blackbox merges the records of a failed job's processes and finds the first operation
// that differs between ranks: its bucket, the missing ranks, and the activity of each process.
//
// A launcher merges its processes' record memory (package record) into a file; `ringo blackbox
// FILE` prints the file. docs/formats/blackbox.md documents the layout.
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

// Format and Version identify the file format.
const (
	Format  = "ringo-blackbox"
	Version = 1
)

// maxFile limits Read: some 2.7 MB for each of 1,024 processes with full records.
const maxFile = 3 << 30

// File is the merged records of a job's processes.
type File struct {
	Format    string    `json:"format"`
	Version   int       `json:"version"`
	Written   time.Time `json:"written"`
	Why       string    `json:"why"` // reason for the job's failure, from the launcher
	Processes []Process `json:"processes"`
}

// Process is the record of a process.
type Process struct {
	Name       string  `json:"name"`             // "rank 3"
	Rank       int     `json:"rank"`             // number in the mesh; -1 outside
	Serves     bool    `json:"serves,omitempty"` // server, in no group of ranks
	ExitStatus string  `json:"how,omitempty"`    // exit status: "killed by signal 9 (SIGKILL)"; "": success
	Lost       bool    `json:"lost,omitempty"`   // the job failed because of this process, according to the launcher
	Silent     string  `json:"silent,omitempty"` // reason for a missing record; "" with a record
	Number     int     `json:"process"`          // process number on its host
	Step       int64   `json:"step"`             // steps done, -1 before the first
	Doing      string  `json:"doing,omitempty"`  // current phase
	Unseen     uint64  `json:"unseen,omitempty"` // concurrent events without space in the record
	Open       []Entry `json:"open"`             // events in progress, oldest first
	Ended      []Entry `json:"ended"`            // last operations, messages, requests, faults and changes, ordered by begin if known
}

// Entry is an event as text and numbers. Times are nanoseconds since 1970 in the host's clock.
type Entry struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Algorithm string `json:"algorithm,omitempty"`
	Bucket    int    `json:"bucket"`          // -1: none
	Label     string `json:"label,omitempty"` // name of the bucket
	Step      int64  `json:"step"`
	Group     uint32 `json:"group"`
	Seq       uint32 `json:"seq"`
	With      int    `json:"with"` // peer of a message, or root; -1: none
	Peer      int    `json:"peer"` // awaited rank, now or at the failure; -1: none
	Size      int64  `json:"bytes"`
	Sent      int64  `json:"bytes_sent"`          // -1: unknown
	Sig       string `json:"signature,omitempty"` // equal on ranks with equal work
	Rows      uint64 `json:"rows,omitempty"`      // number of rows of a request
	Begun     int64  `json:"begun"`               // begin, or start of the wait; 0: unknown
	Done      int64  `json:"done"`                // end; 0: in progress; -1: ended at an unknown time
	Failed    bool   `json:"failed,omitempty"`
}

// Add adds a process's record; nil means no record.
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

// inOrder sorts ended entries by begin. An entry without one follows its group's previous entry.
func inOrder(ended []Entry) []Entry {
	slices.SortStableFunc(ended, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Seq, b.Seq)) })
	type dated struct {
		Entry
		at int64
	}
	all, last := make([]dated, len(ended)), map[uint32]int64{} // last known time, by group
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

// Write writes the file as JSON.
func (b *File) Write(w io.Writer) error {
	b.Format, b.Version = Format, Version
	return json.NewEncoder(w).Encode(b)
}

// Read reads a file. Errors have the byte offset.
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
