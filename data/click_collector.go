package data

import (
	"bytes"
	"io"

	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datafile"
)

// orderedCollector turns blocks into windows, in order, and judges what is bad in them.
type orderedCollector struct {
	limit int           // bad lines that are left out
	bad   int           // those so far
	first []*clickFault // that were left out since the beginning, or the position that was resumed
	skip  int           // rows of the first block, which an earlier window had

	over   bool        // no more rows can be had: it was the last block, or
	failed error       // one that could not be read, or
	fault  *clickFault // a bad line too many

	coming *clicks.Split // taken from the run, but perhaps not done
	block  *clicks.Split // whose rows go to windows
	row    int           // the next one of it
	before int           // bad lines before block
}

// clickFault is a bad line, whose number is found out only if it is told.
type clickFault struct {
	path   string
	begin  int64 // of its block, in the unpacked file
	offset int64
	text   string
}

// fill adds rows to the window ahead until it has as many as the one before it has
// given out, or there are no more; without wait only rows that are there.
func (s *ClickStream) fill(wait bool) {
	w, full := s.nextWindow, s.cfg.window()-s.now.remaining()
	for len(w.rows) < full {
		if s.block == nil || s.row == len(s.block.Labels) {
			if !s.collect(wait) {
				return
			}
			continue // a block may have no rows
		}
		if len(w.rows) == 0 {
			w.begin = StreamPosition{Block: s.block.Number, Row: s.row, Bad: s.before}
		}
		n := min(full-len(w.rows), len(s.block.Labels)-s.row)
		w.rows = s.shelf.put(w.rows, &s.block.Rows, s.row, s.row+n)
		w.bad = s.bad
		s.row += n
	}
}

// collect makes the next block the one whose rows are taken; false if there is
// none, or none yet.
func (s *ClickStream) collect(wait bool) bool {
	if s.over {
		return false
	}
	if !s.arrived(wait) {
		return false
	}
	b := s.coming
	s.coming = nil
	if s.block != nil {
		s.run.Free <- s.block
		s.block = nil
	}
	if b.Err != nil {
		s.failed, s.over = b.Err, true
		return false
	}
	s.before = s.bad
	if fault := s.judge(b); fault != nil {
		s.fault, s.over = fault, true
		return false
	}
	s.block, s.row = b, min(s.skip, len(b.Labels))
	s.skip = 0
	return true
}

// arrived waits for the next block, or only looks. It notices the last one.
func (s *ClickStream) arrived(wait bool) bool {
	if s.coming == nil {
		var ok bool
		if wait {
			s.coming, ok = <-s.run.Order
		} else {
			select {
			case s.coming, ok = <-s.run.Order:
			default:
				return false
			}
		}
		if !ok {
			s.over = true
			return false
		}
	}
	if wait {
		<-s.coming.Done
		return true
	}
	select {
	case <-s.coming.Done:
		return true
	default:
		return false
	}
}

// judge counts a block's bad lines and returns the one that is too many.
func (c *orderedCollector) judge(b *clicks.Split) *clickFault {
	for _, f := range b.Faults {
		fault := &clickFault{b.Path, b.Offset, b.Offset + int64(f.Offset), f.Text}
		if c.bad == c.limit {
			return fault
		}
		if c.bad++; len(c.first) < datafile.MaxNames {
			c.first = append(c.first, fault)
		}
	}
	return nil
}

// leftOut returns the first bad lines, n in all: none, or one kind.
func (c *orderedCollector) leftOut(n int) []LeftOut {
	if n == 0 {
		return nil
	}
	left := LeftOut{Kind: BadSample, Count: n}
	for _, f := range c.first[:min(len(c.first), n)] {
		left.Names = append(left.Names, datafile.Errorf(f.path, f.offset, "%s", f.text).Error())
	}
	return []LeftOut{left}
}

// broken reports whether rows ended before the files did.
func (c *orderedCollector) broken() bool { return c.failed != nil || c.fault != nil }

// badLineError is the failure in words. The number of a bad line is found by reading its
// file again up to it, which only a run does that ends.
func (c *orderedCollector) badLineError() error {
	if c.fault == nil {
		return c.failed
	}
	var first error
	if len(c.first) > 0 { // else it was left out before the position that was resumed
		first = c.first[0].error()
	}
	return datafile.TooManyBad(c.fault.error(), c.limit, c.bad, first)
}

// error names file, line and offset.
func (f *clickFault) error() *datafile.FormatError {
	line, err := lineNumber(f.path, f.offset)
	if err != nil {
		return datafile.Errorf(f.path, f.offset, "%s (in a line whose number cannot be found out: %v)", f.text, err)
	}
	return datafile.Errorf(f.path, f.offset, "line %d: %s", line, f.text)
}

// lineNumber is that of the line with an offset, from 1.
func lineNumber(path string, offset int64) (line int64, err error) {
	r, err := datafile.OpenText(path)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	line = 1
	buf := make([]byte, usualBlock)
	for left := offset; left > 0 && err == nil; {
		var n int
		n, err = r.Read(buf[:min(left, int64(len(buf)))])
		line += int64(bytes.Count(buf[:n], []byte{'\n'}))
		left -= int64(n)
		if err == io.EOF && left == 0 {
			err = nil
		}
	}
	return line, err
}
