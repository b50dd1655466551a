package data

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/data/layout"
)

// slotRows are samples by a layout, one after the other.
type slotRows struct {
	numbers []float32
	labels  []int32
	keys    []uint64
	ends    []uint32 // of each sample's bags, slot by slot, counted from the sample's first key
	starts  []int    // of each sample's keys, and where the last one's end
}

func (r *slotRows) reset() {
	r.numbers, r.labels, r.keys, r.ends, r.starts = r.numbers[:0], r.labels[:0], r.keys[:0], r.ends[:0], append(r.starts[:0], 0)
}

// bag is the keys of a sample in a slot of so many.
func (r *slotRows) bag(row, slots, slot int) []uint64 {
	from := uint32(0)
	if slot > 0 {
		from = r.ends[row*slots+slot-1]
	}
	at := r.starts[row]
	return r.keys[at+int(from) : at+int(r.ends[row*slots+slot])]
}

// slotParser parses lines by a layout; several may share it.
type slotParser struct {
	separator byte
	quoted    bool // fields may be
	fields    int  // of a line
	columns   []slotColumnOf
	numbers   int
	slots     []Slot
	usual     *clickParser // of lines in Criteo's format, which are parsed as such; nil: they are not
}

// slotColumnOf is a column of the layout, and which field of a line it is.
type slotColumnOf struct {
	layout.Column
	field int
	table uint64 // a hash of its name, or of hexadecimal values its number among those
}

// newSlotParser is the parser of a layout's lines, of which header is the first one, if the layout has one.
func newSlotParser(l *layout.Layout, header []byte) (*slotParser, error) {
	p := &slotParser{separator: l.Separator[0], quoted: l.Separator == "," || l.Separator == ";", fields: len(l.Columns)}
	var names []string
	if l.Header {
		for at := 0; ; {
			field, next, fault := p.field(header, at)
			if fault != "" {
				return nil, fmt.Errorf("line 1: field %d: %s", len(names)+1, fault)
			}
			names = append(names, string(field))
			if next >= len(header) {
				break
			}
			at = next + 1
		}
		if p.fields = len(names); p.fields > layout.MaxFields {
			return nil, fmt.Errorf("line 1: %d columns, want at most %d", p.fields, layout.MaxFields)
		}
	}
	var hex []string
	for i, c := range l.Columns {
		if c.Kind == layout.Ignore {
			continue
		}
		out := slotColumnOf{Column: c, field: i}
		if l.Header {
			if out.field = slices.Index(names, c.Name); out.field < 0 {
				return nil, fmt.Errorf("line 1: there is no column %q of layout %s: the header names %s", c.Name, l.Name(), strings.Join(names[:min(len(names), 12)], ", "))
			}
			if again := slices.Index(names[out.field+1:], c.Name); again >= 0 {
				return nil, fmt.Errorf("line 1: fields %d and %d are both called %q, a column of layout %s: which is it?", out.field+1, out.field+again+2, c.Name, l.Name())
			}
		}
		switch {
		case c.Kind == layout.Number:
			p.numbers++
		case c.Values == layout.Hex:
			if !slices.Contains(hex, c.Table) {
				hex = append(hex, c.Table)
			}
			out.table = uint64(slices.Index(hex, c.Table))
		case c.Slotted():
			h := fnv.New64a()
			_, _ = h.Write([]byte(c.Table)) // never fails
			out.table = h.Sum64()
		}
		if c.Slotted() {
			p.slots = append(p.slots, Slot{Name: c.Name, Sequence: c.Kind == layout.Sequence})
		}
		p.columns = append(p.columns, out)
	}
	if likeCriteo(l) {
		p.usual = newClickParser(0)
		p.usual.keys = true
	}
	return p, nil
}

// likeCriteo reports whether the parser of Criteo's format gives the same samples, faster. It takes whole numbers alone: a layout of one's
// own may be of others.
func likeCriteo(l *layout.Layout) bool {
	if l.Name() != "criteo" || l.Header || l.Separator != "\t" || len(l.Columns) != clickFields {
		return false
	}
	tables := map[string]bool{}
	for i, c := range l.Columns {
		switch {
		case i == 0:
			if c.Kind != layout.Label || c.From != nil {
				return false
			}
		case i <= clickNumbers:
			if c.Kind != layout.Number || c.Transform != "log" {
				return false
			}
		default:
			if c.Kind != layout.Category || c.Values != layout.Hex || tables[c.Table] {
				return false
			}
			tables[c.Table] = true
		}
	}
	return true
}

func (p *slotParser) shape() Shape {
	s := Shape{Slots: p.slots, Labels: 1}
	if p.numbers > 0 {
		s.Values = []int{p.numbers}
	}
	return s
}

// parse parses whole lines, of which a file's last may lack its end. Of a bad line nothing is kept but its fault.
func (p *slotParser) parse(text []byte, out *block) {
	r := &out.slotted
	r.reset()
	if p.usual != nil {
		p.usual.parse(text, out)
		r.take(&out.clickRows)
		return
	}
	out.lines, out.faults = 0, out.faults[:0]
	var room [64][]byte
	fields := room[:0]
	for at := 0; at < len(text); out.lines++ {
		rows, numbers, ends := len(r.labels), len(r.numbers), len(r.ends)
		var where int
		var fault string
		end := at + bytes.IndexByte(text[at:], '\n')
		if end < at {
			end = len(text)
		}
		line := text[at:end]
		if n := len(line); n > 0 && line[n-1] == '\r' {
			line = line[:n-1]
		}
		if fields, where, fault = p.split(line, fields[:0]); fault == "" {
			where, fault = p.sample(line, fields, r)
		}
		if fault == "" {
			r.starts = append(r.starts, len(r.keys))
		} else {
			r.labels, r.numbers, r.ends, r.keys = r.labels[:rows], r.numbers[:numbers], r.ends[:ends], r.keys[:r.starts[rows]]
			out.faults = append(out.faults, lineFault{out.lines, at + where, fault})
		}
		at = end + 1
	}
}

// take makes r the rows of Criteo's parser.
func (r *slotRows) take(from *clickRows) {
	r.numbers, r.labels = append(r.numbers[:0], from.numbers...), append(r.labels[:0], from.labels...)
	for row := range from.labels {
		n := uint32(0)
		for _, key := range from.keys[row*clickSlots:][:clickSlots] {
			if key != 0 {
				r.keys = append(r.keys, key)
				n++
			}
			r.ends = append(r.ends, n)
		}
		r.starts = append(r.starts, len(r.keys))
	}
}

// split cuts a line into its fields. where is the fault's place in the line.
func (p *slotParser) split(line []byte, fields [][]byte) (_ [][]byte, where int, fault string) {
	for at := 0; ; {
		field, next, fault := p.field(line, at)
		if fault != "" {
			return fields, at, fmt.Sprintf("field %d: %s", len(fields)+1, fault)
		}
		if len(fields) == p.fields {
			return fields, at, fmt.Sprintf("more than %d fields", p.fields)
		}
		if fields = append(fields, field); next >= len(line) {
			break
		}
		at = next + 1
	}
	if len(fields) < p.fields {
		return fields, len(line), fmt.Sprintf("the line ends after field %d of %d", len(fields), p.fields)
	}
	return fields, 0, ""
}

// field is the one that begins at a place, and where the separator behind it is, or the line's end. Quotes within are doubled: then it is a
// copy.
func (p *slotParser) field(line []byte, at int) (field []byte, next int, fault string) {
	if !p.quoted || at >= len(line) || line[at] != '"' {
		n := bytes.IndexByte(line[at:], p.separator)
		if n < 0 {
			return line[at:], len(line), ""
		}
		return line[at : at+n], at + n, ""
	}
	doubled := false
	for end := at + 1; end < len(line); end++ {
		if line[end] != '"' {
			continue
		}
		if end+1 < len(line) && line[end+1] == '"' {
			doubled = true
			end++
			continue
		}
		if end+1 < len(line) && line[end+1] != p.separator {
			return nil, end, "text after the closing quote"
		}
		if field = line[at+1 : end]; doubled {
			field = bytes.ReplaceAll(field, []byte(`""`), []byte(`"`))
		}
		return field, end + 1, ""
	}
	return nil, at, "a quote that does not close in its line"
}

// sample appends what a line's fields are. where is the fault's place in the line.
func (p *slotParser) sample(line []byte, fields [][]byte, r *slotRows) (where int, fault string) {
	first := len(r.keys)
	for i := range p.columns {
		c := &p.columns[i]
		field := fields[c.field]
		switch {
		case c.Kind == layout.Label:
			label, ok := c.label(field)
			if !ok {
				fault = "want a label of 0 or 1"
				if c.From != nil {
					fault = "want a number"
				}
			}
			r.labels = append(r.labels, label)
		case c.Kind == layout.Number:
			x, ok := c.number(field)
			if !ok {
				fault = "want a number or nothing"
			}
			r.numbers = append(r.numbers, x)
		default:
			fault = p.keysOf(c, field, r)
			r.ends = append(r.ends, uint32(len(r.keys)-first))
		}
		if fault != "" {
			return placeOf(line, field), fmt.Sprintf("column %d, %s: %q: %s", c.field+1, c.Name, field[:min(len(field), 24)], fault)
		}
	}
	return 0, ""
}

// placeOf is where in a line a field begins, or 0 where it is a copy.
func placeOf(line, field []byte) int {
	if n := cap(line) - cap(field); n >= 0 && n <= len(line) {
		return n
	}
	return 0
}

// label is what a field says.
func (c *slotColumnOf) label(field []byte) (label int32, ok bool) {
	if c.From == nil {
		if len(field) == 1 && (field[0] == '0' || field[0] == '1') {
			return int32(field[0] - '0'), true
		}
		return 0, false
	}
	x, err := strconv.ParseFloat(string(field), 64)
	if x >= *c.From {
		label = 1
	}
	return label, err == nil && x == x
}

// number is what a model sees of a number.
func (c *slotColumnOf) number(field []byte) (float32, bool) {
	if len(field) == 0 {
		return 0, true
	}
	var x float64
	if v, n := integer(field); n == len(field) {
		x = float64(v)
	} else if v, err := strconv.ParseFloat(string(field), 64); err == nil {
		x = v
	} else {
		return 0, false
	}
	if c.Transform == "log" {
		x = math.Log1p(max(x, 0))
	}
	y := float32(x)
	return y, y-y == 0
}

// keysOf appends the keys of a field, and says what is wrong with it.
func (p *slotParser) keysOf(c *slotColumnOf, field []byte, r *slotRows) (fault string) {
	if len(field) == 0 {
		return ""
	}
	for more := true; more; {
		value := field
		if more = false; c.Kind != layout.Category {
			if n := bytes.IndexByte(field, c.Separator[0]); n >= 0 {
				value, field, more = field[:n], field[n+1:], true
			}
		}
		if len(value) == 0 {
			return fmt.Sprintf("an empty value between two of %q", c.Separator)
		}
		key, fault := c.key(value)
		if fault != "" {
			return fault
		}
		r.keys = append(r.keys, key)
	}
	return ""
}

// key is that of a value.
func (c *slotColumnOf) key(value []byte) (key uint64, fault string) {
	switch c.Values {
	case layout.Hex:
		v, err := strconv.ParseUint(string(value), 16, 64)
		if err != nil {
			return 0, "want up to 16 hexadecimal digits"
		}
		return ClickKey(int(c.table), v), ""
	case layout.Key:
		v, err := strconv.ParseUint(string(value), 10, 64)
		if err != nil {
			return 0, "want a key, 0 to 18446744073709551615"
		}
		return v, ""
	}
	return textKey(c.table, value), ""
}

// textKey is a hash of a table and a text: two given ones have the same key with odds of 2^-64.
func textKey(table uint64, text []byte) uint64 {
	h := mixed(table ^ uint64(len(text)))
	for len(text) >= 8 {
		h = mixed(h ^ (uint64(text[0]) | uint64(text[1])<<8 | uint64(text[2])<<16 | uint64(text[3])<<24 | uint64(text[4])<<32 | uint64(text[5])<<40 | uint64(text[6])<<48 | uint64(text[7])<<56))
		text = text[8:]
	}
	last := uint64(0)
	for i, b := range text {
		last |= uint64(b) << (8 * i)
	}
	return mixed(h ^ last)
}
