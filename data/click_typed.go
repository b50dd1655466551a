package data

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/layout"
)

// typed reports whether a file's columns have names and types, as its name says: those of Parquet
// and Arrow.
func typed(path string) bool {
	end := strings.ToLower(filepath.Ext(path))
	return end == ".parquet" || isArrow(end)
}

// typedParser makes samples of rows whose columns have types: of one value each, or lists of them.
// A row becomes a line of the fields that are used, with a list's values as in a bag, so that a
// value has the key and the faults that it has in text.
type typedParser struct {
	slotParser
	columnNumbers []int // of the file's columns, by field
}

// newTypedParser is that of a file with some columns.
func newTypedParser(l *layout.Layout, names []string, unlabelled bool) (*typedParser, error) {
	p := &typedParser{slotParser: slotParser{tools: newClickParser(0)}}
	if err := p.choose(l, names, unlabelled); err != nil {
		return nil, err
	}
	for i := range p.columns {
		p.columnNumbers = append(p.columnNumbers, int(p.columns[i].field))
		p.columns[i].field = int32(i)
	}
	p.fields = len(p.columns)
	return p, nil
}

// parse parses rows. A fault's line is its row, and its offset the number of its column in want.
func (p *typedParser) parse(rows *table.Chunk, out *block) {
	r := &out.clickRows
	r.reset()
	r.starts = append(r.starts, 0)
	out.lines, out.faults = rows.N, out.faults[:0]
	for row := range rows.N {
		c, fault := p.line(rows, row, &out.cuts)
		if fault == "" {
			c, fault = p.sample(out.cuts.plain, &out.cuts, r)
		}
		if fault != "" {
			out.faults = append(out.faults, lineFault{row, int(c.field), fault})
		}
	}
}

// line makes a row the line of cuts.
func (p *typedParser) line(rows *table.Chunk, row int, cuts *lineCuts) (c *slotColumnOf, fault string) {
	cuts.at, cuts.plain, cuts.where = append(cuts.at[:0], 0), cuts.plain[:0], cuts.where[:0]
	for i := range p.columns {
		c = &p.columns[i]
		values := &rows.Columns[i]
		first, end := row, row+1
		if values.Rows != nil {
			first, end = begin(values.Rows, row), values.Rows[row]
		}
		if end-first > 1 && c.between == 0 {
			return c, fmt.Sprintf("a list of %d values: want one", end-first)
		}
		for n := first; n < end; n++ {
			value := values.Text[begin(values.Ends, n):values.Ends[n]]
			if n > first {
				cuts.plain = append(cuts.plain, byte(c.between))
			}
			if c.between != 0 && values.Rows != nil { // else it is a text of several, as in lines
				if len(value) == 0 {
					return c, "an empty value in a list"
				}
				if bytes.IndexByte(value, byte(c.between)) >= 0 {
					return c, fmt.Sprintf("%q: a value with %q in it, by which the layout separates values: choose another separator", value[:min(len(value), 24)], c.Separator)
				}
			}
			cuts.plain = append(cuts.plain, value...)
		}
		if cuts.plain = append(cuts.plain, 0); len(cuts.plain) > slotLine {
			return c, fmt.Sprintf("a row of more than %d bytes as text", slotLine)
		}
		cuts.at = append(cuts.at, int32(len(cuts.plain)))
	}
	return nil, ""
}

// begin is where a part begins, as parts end.
func begin(ends []int, part int) int {
	if part == 0 {
		return 0
	}
	return ends[part-1]
}

// textReader is a table.Reader of a format whose columns have types, lists among them.
type textReader interface {
	// ScanText is Scan with all values as text; columns may be lists, too.
	ScanText(want []int, visit func(*table.Chunk) error) error
}

// errEnough ends a pass that has what it wants.
var errEnough = errors.New("enough")

// eachTyped is each of a file whose columns have types.
func (f *lineFormat) eachTyped(path string, bad *datafile.Skips, collect func(*chunk) bool) error {
	if f.layout == nil {
		return fmt.Errorf("%s: in Criteo's format rows are lines of text; --layout says what columns are", path)
	}
	in, err := OpenTable(path)
	if err != nil {
		return err
	}
	return f.rowsOf(in, bad, collect)
}

// rowsOf gives the parsed chunks of a table to collect, in order, until that returns false.
func (f *lineFormat) rowsOf(in table.Reader, bad *datafile.Skips, collect func(*chunk) bool) error {
	text, ok := in.(textReader)
	if !ok {
		return fmt.Errorf("%s: its rows are not read as text", in.Name())
	}
	p, err := newTypedParser(f.layout, in.Columns(), f.unlabelled)
	if err != nil {
		return &table.Fault{File: in.Name(), Problem: err.Error()}
	}
	c := new(chunk)
	err = text.ScanText(slices.Clone(p.columnNumbers), func(rows *table.Chunk) error {
		p.parse(rows, &c.block)
		for _, fault := range c.block.faults {
			told := &table.Fault{File: in.Name(), Line: rows.First + int64(fault.line), Row: true, Column: p.columns[fault.offset].Name, Problem: fault.text}
			if err := bad.Skip(told); err != nil {
				return err
			}
		}
		if !collect(c) {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// readTyped reads the samples of a file whose columns have types, or of its first limit rows (0:
// all).
func readTyped(path string, f *lineFormat, limit int, bad *datafile.Skips) (*clicks, error) {
	out := &clicks{shape: f.shape()}
	err := f.eachTyped(path, bad, func(c *chunk) bool {
		out.add(&c.block.clickRows, limit)
		return limit == 0 || out.n < limit
	})
	if err == nil && out.n == 0 {
		err = f.none(path)
	}
	return out, err
}
