package clicks

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/layout"
)

// typedParser parses rows with typed columns, of single values or lists. A row becomes a line of
// the used fields, with lists as bags, so that a value has the same key and the same faults as in
// text.
type typedParser struct {
	LayoutParser
	columnNumbers []int // columns of the file, by field
}

// newTypedParser returns the parser of a file with named columns.
func newTypedParser(l *layout.Layout, names []string, unlabelled bool) (*typedParser, error) {
	p := &typedParser{LayoutParser: LayoutParser{tools: NewCriteoParser(0, false)}}
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

// Parse parses rows. The line of a fault is its row, the offset the number of its column.
func (p *typedParser) Parse(rows *table.Chunk, out *Block) {
	r := &out.Rows
	r.Reset()
	r.Starts = append(r.Starts, 0)
	out.Lines, out.Faults = rows.N, out.Faults[:0]
	for row := range rows.N {
		c, fault := p.line(rows, row, &out.cuts)
		if fault == "" {
			c, fault = p.sample(out.cuts.plain, &out.cuts, r)
		}
		if fault != "" {
			out.Faults = append(out.Faults, Fault{row, int(c.field), fault})
		}
	}
}

// line converts a row to a line.
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
			if c.between != 0 && values.Rows != nil { // a list; texts of several values are as in lines
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

// begin returns the start of a part, from the ends of parts.
func begin(ends []int, part int) int {
	if part == 0 {
		return 0
	}
	return ends[part-1]
}

// textReader is a table.Reader of a format with typed columns and lists.
type textReader interface {
	// ScanText is Scan with all values as text; columns may be lists.
	ScanText(want []int, visit func(*table.Chunk) error) error
}

// errEnough ends a pass early.
var errEnough = errors.New("enough")

// RowsOf calls collect with the parsed chunks of a table, in order, until collect returns false.
func (f *Format) RowsOf(in table.Reader, bad *datafile.Skips, collect func(*Chunk) bool) error {
	text, ok := in.(textReader)
	if !ok {
		return fmt.Errorf("%s: its rows are not read as text", in.Name())
	}
	p, err := newTypedParser(f.Layout, in.Columns(), f.Unlabelled)
	if err != nil {
		return &table.Fault{File: in.Name(), Problem: err.Error()}
	}
	c := new(Chunk)
	err = text.ScanText(slices.Clone(p.columnNumbers), func(rows *table.Chunk) error {
		p.Parse(rows, &c.Block)
		for _, fault := range c.Block.Faults {
			told := &table.Fault{File: in.Name(), Line: rows.First + int64(fault.Line), Row: true, Column: p.columns[fault.Offset].Name, Problem: fault.Text}
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
