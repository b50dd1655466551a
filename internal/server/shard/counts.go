package shard

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/internal/server/rows"
)

// counting describes the counts file of a checkpoint.
type counting struct {
	Lines    int64          `json:"lines"` // lines of the filter
	Fresh    int64          `json:"fresh"` // new keys since the last decay
	Sessions []countedPulls `json:"sessions,omitempty"`
}

const lineSize = 64

func (c *counting) check(bad func(is bool, format string, args ...any)) {
	bad(c.Lines < 1 || c.Lines > 1<<34 || c.Fresh < 0, "counts of %d lines after %d keys", c.Lines, c.Fresh)
	for _, s := range c.Sessions {
		bad(s.Session < 0 || s.Session >= rows.MaxSessions || !slices.IsSorted(s.Parts), "pulls of session %d", s.Session)
	}
}

// filterCopy is the filter at one moment: its nonzero lines.
type filterCopy struct {
	counting
	numbers []uint64
	lines   []counters
}

// text returns the admission as a checkpoint has it.
func (a Admission) text() string {
	b, _ := a.MarshalText() // never fails
	return string(b)
}

// copyFilter copies the filter and its counted pulls; nil without a filter.
func (t *Table) copyFilter() *filterCopy {
	if t.filter == nil {
		return nil
	}
	t.counted.mu.Lock()
	defer t.counted.mu.Unlock()
	f := t.filter
	c := &filterCopy{counting: counting{Lines: int64(len(f.lines)), Fresh: f.fresh.Load(), Sessions: t.counted.state()}}
	for i, line := range f.lines {
		if line != (counters{}) {
			c.numbers, c.lines = append(c.numbers, uint64(i)), append(c.lines, line)
		}
	}
	return c
}

func (s *saving) counts() error {
	const most = 4096
	return s.section(countsSection, func(w *writer) error {
		if s.keys == nil {
			return nil
		}
		for lo := 0; lo < len(s.keys.numbers); lo += most {
			w.begin(linesPiece, 0, math.MaxUint64, nil)
			for i := lo; i < min(lo+most, len(s.keys.numbers)); i++ {
				w.addLine(s.keys.numbers[i], &s.keys.lines[i])
			}
			if err := w.flush(); err != nil {
				return err
			}
		}
		return nil
	})
}

// beginCounts prepares the filter for the lines of a file. Counts of the server's own checkpoint,
// or of a delta's base, are replaced; counts of other servers are retained.
func (l *loader) beginCounts(c *counting) error {
	t := l.t
	if t.filter == nil || c == nil {
		return nil // begin compares admissions if they must be equal
	}
	f, q := t.filter, &t.counted
	if c.Lines != int64(len(f.lines)) {
		return fmt.Errorf("it has counts in %d bytes, this table in %d: give the same FilterBytes", c.Lines*lineSize, len(f.lines)*lineSize)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	fresh := int64(0)
	if l.keep == nil {
		q.sessions = map[int]*countedPulls{}
		for _, s := range c.Sessions {
			q.sessions[s.Session] = &s
		}
		clear(f.lines)
	} else {
		if !l.h.Delta { // a full checkpoint: the present counts come from other servers
			q.before = &filter{lines: slices.Clone(f.lines)}
			q.before.fresh.Store(f.fresh.Load())
		}
		clear(f.lines)
		if q.before != nil {
			copy(f.lines, q.before.lines)
			fresh = q.before.fresh.Load()
		}
	}
	f.fresh.Store(fresh + c.Fresh)
	return nil
}

// lines merges lines of a file into the filter.
func (l *loader) lines(p *piece) error {
	f := l.t.filter
	if f == nil {
		return nil
	}
	for i := range p.n {
		number := p.key(i)
		if number >= uint64(len(f.lines)) {
			return fmt.Errorf("line %d of %d of the counts", number, len(f.lines))
		}
		line, b := &f.lines[number], p.body[i*lineBytes+8:]
		for w := range line {
			line[w] = mostOf(line[w], binary.LittleEndian.Uint64(b[8*w:]))
		}
	}
	return nil
}

// mostOf returns the maximum of each pair of counters.
func mostOf(a, b uint64) (out uint64) {
	if a == 0 || b == 0 {
		return a | b
	}
	for at := 0; at < 64; at += 4 {
		out |= max(a>>at&mostCount, b>>at&mostCount) << at
	}
	return out
}
