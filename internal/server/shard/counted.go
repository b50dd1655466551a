package shard

import (
	"fmt"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/optim"
)

// counted orders the pulls that change the filter. A pull is counted, logged and given its rows
// under mu. A checkpoint copies the counts under mu as well: it has all counts of a pull or none,
// and the log has the pulls in the order of counting.
type counted struct {
	mu       sync.Mutex
	sessions map[int]*countedPulls
	before   *filter // counts of the servers loaded before the current one
}

// countedPulls are the counted pulls of a session that may be repeated.
type countedPulls struct {
	Session int      `json:"session"`
	Process uint64   `json:"process"`         // process that numbers the pulls
	Oldest  uint64   `json:"oldest"`          // lower parts were counted, or never will be
	Parts   []uint64 `json:"parts,omitempty"` // counted parts from Oldest, sorted
}

// maxParts limits the parts of a pull: its part i has number Pull.Number*maxParts + i.
const maxParts = 1 << 16

// pullPart is a part of a pull: at most the keys of one load from the store.
type pullPart struct {
	by   rows.PullID
	part uint64
	log  func(part uint64, keys []uint64) error
}

// take records a part as counted. It reports false for a part counted before. mu is held.
func (c *counted) take(by rows.PullID, part uint64) bool {
	if by.Process == 0 {
		return true
	}
	p := c.sessions[by.Session]
	if p == nil || p.Process != by.Process {
		p = &countedPulls{Session: by.Session, Process: by.Process}
		if c.sessions == nil {
			c.sessions = map[int]*countedPulls{}
		}
		c.sessions[by.Session] = p
	}
	if oldest := by.Oldest * maxParts; oldest > p.Oldest {
		p.Oldest = oldest
		i, _ := slices.BinarySearch(p.Parts, oldest)
		p.Parts = slices.Delete(p.Parts, 0, i)
	}
	i, has := slices.BinarySearch(p.Parts, part)
	if has || part < p.Oldest {
		return false
	}
	p.Parts = slices.Insert(p.Parts, i, part)
	return true
}

// state copies the sessions' pulls, by session. mu is held.
func (c *counted) state() (out []countedPulls) {
	for _, p := range c.sessions {
		out = append(out, countedPulls{p.Session, p.Process, p.Oldest, slices.Clone(p.Parts)})
	}
	slices.SortFunc(out, func(a, b countedPulls) int { return a.Session - b.Session })
	return out
}

// CountsPulls reports whether keys are counted before they have a row: Admission.Count is above 1.
func (t *Table) CountsPulls() bool { return t.filter != nil }

// PullCounted is Pull for a table with CountsPulls. A repeated pull, with the same PullID and keys,
// is counted once; a pull with Process 0 is counted each time. log receives the counted keys, in
// parts, in the order of all pulls, before they have rows: Recount with the same arguments repeats
// a part. An error of log ends the pull. log may be nil.
func (t *Table) PullCounted(by rows.PullID, keys []uint64, dst []float32, log func(part uint64, keys []uint64) error) error {
	if len(dst) != len(keys)*t.Dim() {
		return t.fault("pull", fmt.Errorf("%d values for %d rows of %d", len(dst), len(keys), t.Dim()))
	}
	t.counts.pulled.Add(int64(len(keys)))
	tr := t.batches.Get()
	defer t.batches.Put(tr)
	part := pullPart{by: by, part: by.Number * maxParts, log: log}
	tr.counts = &part
	defer func() { tr.counts = nil }()
	for lo := 0; lo < len(keys); lo += t.partKeys() {
		hi := min(len(keys), lo+t.partKeys())
		if err := t.pullPart(tr, keys[lo:hi], dst[lo*t.Dim():hi*t.Dim()]); err != nil {
			return t.fault("pull", err)
		}
		part.part++
	}
	return nil
}

// partKeys returns the number of keys in a part. It does not depend on the existing rows, because a
// repeated pull must have the same parts.
func (t *Table) partKeys() int {
	if t.store == nil {
		return 1 << 20
	}
	return t.chunk
}

func (t *Table) pullPart(tr *loadBatch, keys []uint64, dst []float32) (err error) {
	if tr.missing, err = t.rows.PullPresent(keys, dst, tr.missing[:0]); err != nil || len(tr.missing) == 0 {
		return err
	}
	if t.store != nil {
		t.counts.missed.Add(int64(len(tr.missing)))
	}
	return t.bring(tr, keys, dst, nil)
}

// countPart counts the batch's absent keys, logs them, and creates rows for admitted keys.
func (t *Table) countPart(tr *loadBatch) (made int, err error) {
	tr.missed = tr.missed[:0]
	for i, from := range tr.from {
		if from == absent {
			tr.missed = append(tr.missed, tr.keys[i])
		}
	}
	if len(tr.missed) == 0 {
		return 0, nil
	}
	t.counted.mu.Lock()
	defer t.counted.mu.Unlock()
	p := tr.counts
	if !t.counted.take(p.by, p.part) {
		return t.make(tr, func(key uint64) bool { return t.admits(key, true) })
	}
	if p.log != nil {
		if err := p.log(p.part, tr.missed); err != nil {
			return 0, err
		}
	}
	return t.make(tr, func(key uint64) bool { return t.admits(key, false) })
}

// Recount counts a part of a pull from a log, as PullCounted did, unless the loaded checkpoint
// includes it. Recount runs before Replayed.
func (t *Table) Recount(by rows.PullID, part uint64, keys []uint64) error {
	if t.filter == nil {
		return t.fault("replay", fmt.Errorf("the log counts %d keys of a table that admits without counting: give its admission as it was", len(keys)))
	}
	if !t.counted.take(by, part) {
		return nil
	}
	tr := t.batches.Get()
	defer t.batches.Put(tr)
	admitted := make([]uint64, 0, len(keys))
	for _, key := range keys {
		a := t.cfg.Admission
		if optim.Admits(t.filter.see(key), a.Count, mix(key^admissionSalt), a.share()) {
			admitted = append(admitted, key)
		}
	}
	values := make([]float32, len(admitted)*t.Dim())
	var err error
	if tr.missing, err = t.rows.PullPresent(admitted, values, tr.missing[:0]); err == nil && len(tr.missing) > 0 {
		err = t.remake(tr, admitted)
	}
	return t.fault("replay", err)
}

// remake creates rows for the batch's missing keys, already admitted, unless the store has them.
func (t *Table) remake(tr *loadBatch, keys []uint64) error {
	tr.sort(keys)
	for lo := 0; lo < len(tr.missingKeys); {
		hi := tr.cut(lo, t.partKeys())
		if err := t.room.take(len(tr.keys)); err != nil {
			return err
		}
		t.gate.RLock()
		made, err := t.readAll(tr, readForCall)
		if err == nil {
			var n int
			n, err = t.make(tr, func(uint64) bool { return true })
			made += n
		}
		t.gate.RUnlock()
		t.room.give(len(tr.keys) - made)
		if err != nil {
			return err
		}
		lo = hi
	}
	return nil
}
