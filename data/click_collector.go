package data

import (
	"bytes"
	"io"

	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datafile"
)

// orderedCollector takes rows from parsed blocks of text, in file order, and counts bad lines.
type orderedCollector struct {
	limit int           // largest number of bad lines to skip
	bad   int           // bad lines until now
	first []*clickFault // first bad lines since the start of the epoch or the resumed position
	skip  int           // rows of the first block to skip: they are in an earlier window

	over   bool        // no more rows: the last block is done, or an error below
	failed error       // read error
	fault  *clickFault // bad line above the limit

	coming *clicks.Split // received from the run, possibly still being parsed
	block  *clicks.Split // block of the current rows
	row    int           // next row of block
	before int           // bad lines before block
}

// clickFault is a bad line. Its line number is only computed for an error message.
type clickFault struct {
	path   string
	begin  int64 // block's offset in the decompressed file
	offset int64
	text   string
}

// fill adds rows to the next window until it has as many as the current window has returned, or
// until the rows end. If wait is false, it adds only rows of blocks that are already parsed.
func (s *ClickStream) fill(wait bool) {
	w, full := s.nextWindow, s.cfg.window()-s.now.remaining()
	for len(w.rows) < full {
		if s.block == nil || s.row == len(s.block.Labels) {
			if !s.collect(wait) {
				return
			}
			continue // a block can be empty
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

// collect makes the next block current. It returns false if no block is left, or without wait if
// the next block is not parsed.
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

// arrived reports whether the next block is parsed; with wait it blocks. After the last block it
// sets over.
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

// judge counts a block's bad lines and returns the first one after the permitted number.
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

// leftOut describes the first n bad lines in one entry, or in none if n is 0.
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

// broken reports whether an error ended the rows early.
func (c *orderedCollector) broken() bool { return c.failed != nil || c.fault != nil }

// badLineError returns the error that ended the rows. To find the number of a bad line it reads the
// file again, up to that line.
func (c *orderedCollector) badLineError() error {
	if c.fault == nil {
		return c.failed
	}
	var first error
	if len(c.first) > 0 { // otherwise skipped before the resumed position
		first = c.first[0].error()
	}
	return datafile.TooManyBad(c.fault.error(), c.limit, c.bad, first)
}

// error returns an error with file, line and offset.
func (f *clickFault) error() *datafile.FormatError {
	line, err := lineNumber(f.path, f.offset)
	if err != nil {
		return datafile.Errorf(f.path, f.offset, "%s (in a line whose number cannot be found out: %v)", f.text, err)
	}
	return datafile.Errorf(f.path, f.offset, "line %d: %s", line, f.text)
}

// lineNumber returns the number, from 1, of the line at an offset.
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
