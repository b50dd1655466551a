package clicks

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/data/layout"
	"github.com/ringo-ml/ringo/internal/data/prng"
	"github.com/ringo-ml/ringo/internal/spelling"
)

// LayoutParser parses lines by a layout. Goroutines may share a parser.
type LayoutParser struct {
	separator byte
	quoted    bool // fields may be quoted
	fields    int  // fields per line
	columns   []slotColumnOf
	numbers   int
	slots     int           // categories, bags and sequences
	tools     *CriteoParser // tables of digits and logarithms
	label     bool          // lines have a label
}

// slotColumnOf is a column of the layout with its field in a line.
type slotColumnOf struct {
	use    use
	values use // form of the values that become keys
	log    bool
	field  int32
	table  uint64 // hash of the table's name, or the number of a hexadecimal table
	// between has the separator of the values of a bag or sequence in each byte; 0 for a single
	// value.
	between uint64
	*layout.Column
}

// use is the interpretation of a field.
type use uint8

const (
	useLabel use = iota
	useNumber
	useText
	useHex
	useKey
	useHexOne // one value, mostly of eight digits
	useKept   // text of Layout.Kept
)

// NewLayoutParser returns the parser of a layout. Header is the first line, if the layout has one;
// with unlabelled it may lack the label.
func NewLayoutParser(l *layout.Layout, header []byte, unlabelled bool) (*LayoutParser, error) {
	p := &LayoutParser{separator: l.Separator[0], quoted: l.Separator == "," || l.Separator == ";", tools: NewCriteoParser(0, false)}
	var names []string
	var err error
	if l.Header {
		names, err = p.names(header)
	}
	if err == nil {
		err = p.choose(l, names, unlabelled)
	}
	if err != nil {
		return nil, fmt.Errorf("line 1: %w", err)
	}
	return p, nil
}

// choose selects the fields: by name, or in the layout's order without names.
func (p *LayoutParser) choose(l *layout.Layout, names []string, unlabelled bool) error {
	if p.fields = len(l.Columns); names != nil {
		p.fields = len(names)
	}
	var hex []string
	for i, c := range l.Columns {
		if c.Kind == layout.Ignore {
			continue
		}
		out := slotColumnOf{Column: &l.Columns[i], field: int32(i)}
		if names != nil {
			at, err := placeIn(names, l, c.Name)
			if at < 0 && c.Kind == layout.Label && unlabelled {
				continue
			} else if err != nil {
				return err
			}
			out.field = int32(at)
		}
		switch {
		case c.Kind == layout.Label:
			p.label = true
		case c.Kind == layout.Number:
			p.numbers++
			out.use, out.log = useNumber, c.Transform == "log"
		default:
			if c.Values == layout.Hex && !slices.Contains(hex, c.Table) {
				hex = append(hex, c.Table)
			}
			out.slot(slices.Index(hex, c.Table))
			p.slots++
		}
		p.columns = append(p.columns, out)
	}
	return p.keep(l, names)
}

// keep adds the layout's kept column, if any.
func (p *LayoutParser) keep(l *layout.Layout, names []string) error {
	if l.Kept == "" {
		return nil
	}
	known := names != nil
	for _, c := range l.Columns {
		if c.Name == l.Kept && (c.Kind == layout.Bag || c.Kind == layout.Sequence) {
			return fmt.Errorf("column %q has several values in a row: want a column with one", c.Name)
		}
		if !known {
			names = append(names, c.Name)
		}
	}
	at, err := placeIn(names, l, l.Kept)
	p.columns = append(p.columns, slotColumnOf{use: useKept, field: int32(at), Column: &layout.Column{Name: l.Kept}})
	return err
}

// slot sets the conversion of values to keys. Number is the index among the hexadecimal tables.
func (c *slotColumnOf) slot(number int) {
	c.values = map[string]use{layout.Text: useText, layout.Hex: useHex, layout.Key: useKey}[c.Values]
	if c.use = c.values; c.use == useHex {
		c.table = uint64(number)
	} else {
		h := fnv.New64a()
		_, _ = h.Write([]byte(c.Table))
		c.table = h.Sum64()
	}
	if c.Kind == layout.Category && c.use == useHex {
		c.use = useHexOne
	}
	if c.Separator != "" {
		c.between = ones * uint64(c.Separator[0])
	}
}

// names returns the fields of a header.
func (p *LayoutParser) names(header []byte) (names []string, err error) {
	for at := 0; ; {
		field, next, fault := p.field(header, at)
		if fault != "" {
			return nil, fmt.Errorf("field %d: %s", len(names)+1, fault)
		}
		names = append(names, string(field))
		if next >= len(header) {
			break
		}
		at = next + 1
	}
	if len(names) > layout.MaxFields {
		return nil, fmt.Errorf("%d columns, want at most %d", len(names), layout.MaxFields)
	}
	return names, nil
}

// placeIn returns the field of a column in a header; -1 and an error without one.
func placeIn(names []string, l *layout.Layout, column string) (int, error) {
	at := slices.Index(names, column)
	if at < 0 {
		return at, fmt.Errorf("there is no column %q of layout %s%s: the file has %s", column, l.Name(), spelling.Hint(column, names...), strings.Join(names[:min(len(names), 12)], ", "))
	}
	if again := slices.Index(names[at+1:], column); again >= 0 {
		return at, fmt.Errorf("fields %d and %d are both called %q, a column of layout %s: which is it?", at+1, at+again+2, column, l.Name())
	}
	return at, nil
}

// likeCriteo reports whether Criteo's parser gives equal samples faster. Criteo's parser takes
// integers only; a custom layout can have other numbers.
func likeCriteo(l *layout.Layout) bool {
	if l.Name() != "criteo" || l.Kept != "" || l.Header || l.Separator != "\t" || len(l.Columns) != CriteoFields {
		return false
	}
	tables := map[string]bool{}
	for i, c := range l.Columns {
		switch {
		case i == 0:
			if c.Kind != layout.Label || c.From != nil {
				return false
			}
		case i <= CriteoNumbers:
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

// Parse parses whole lines; the last line of a file may lack its end. A bad line adds a fault only.
// No memory is allocated once out has been as large, except for faults.
func (p *LayoutParser) Parse(text []byte, out *Block) {
	r := &out.Rows
	r.Reset()
	r.Starts = append(r.Starts, 0)
	out.Lines, out.Faults = 0, out.Faults[:0]
	for at := 0; at < len(text); out.Lines++ {
		end := at + bytes.IndexByte(text[at:], '\n')
		if end < at {
			end = len(text)
		}
		stop := end
		if stop > at && text[stop-1] == '\r' {
			stop--
		}
		source, where, fault := p.cut(text, at, stop, &out.cuts)
		if fault == "" {
			var c *slotColumnOf
			if c, fault = p.sample(source, &out.cuts, r); fault != "" {
				where, fault = out.cuts.place(int(c.field)), fmt.Sprintf("column %d, %s: %s", c.field+1, c.Name, fault)
			}
		}
		if fault != "" {
			out.Faults = append(out.Faults, Fault{out.Lines, where, fault})
		}
		at = end + 1
	}
}

// sample appends the fields of a line as a row, or returns the column and the text of a fault.
// Columns are taken in the layout's order, so that numbers and slots are equal for all files.
func (p *LayoutParser) sample(source []byte, cuts *lineCuts, r *Rows) (c *slotColumnOf, fault string) {
	rows, numbers, ends, first := len(r.Labels), len(r.Numbers), len(r.Ends), len(r.Keys)
	for i := range p.columns {
		c = &p.columns[i]
		lo, hi := int(cuts.at[c.field]), int(cuts.at[c.field+1])-1
		switch c.use {
		case useNumber:
			x, ok := p.Number(c, source, lo, hi)
			if r.Numbers = append(r.Numbers, x); !ok {
				fault = "want a number or nothing"
			}
		case useLabel:
			var label int32
			label, fault = c.label(source[lo:hi])
			r.Labels = append(r.Labels, label)
		case useKept:
			r.Texts = append(r.Texts, string(source[lo:hi]))
		case useHexOne:
			if lo < hi {
				var key uint64
				key, fault = p.hexKey(c, source, lo, hi)
				r.Keys = append(r.Keys, key)
			}
			r.Ends = append(r.Ends, uint32(len(r.Keys)-first))
		default:
			r.Keys, fault = p.keys(c, source, lo, hi, r.Keys)
			r.Ends = append(r.Ends, uint32(len(r.Keys)-first))
		}
		if fault != "" {
			r.Labels, r.Numbers, r.Ends, r.Keys = r.Labels[:rows], r.Numbers[:numbers], r.Ends[:ends], r.Keys[:first]
			return c, fmt.Sprintf("%q: %s", source[lo:min(hi, lo+24)], fault)
		}
	}
	if !p.label {
		r.Labels = append(r.Labels, 0)
	}
	r.Starts = append(r.Starts, len(r.Keys))
	return nil, ""
}

// label parses the label.
func (c *slotColumnOf) label(field []byte) (label int32, fault string) {
	if c.From == nil {
		if len(field) == 1 && (field[0] == '0' || field[0] == '1') {
			return int32(field[0] - '0'), ""
		}
		return 0, "want a label of 0 or 1"
	}
	x, err := strconv.ParseFloat(string(field), 64)
	if err != nil || x != x {
		return 0, "want a number"
	}
	if x >= *c.From {
		label = 1
	}
	return label, ""
}

// Number converts a number to a model input. Up to 7 digits are read as one word: see
// CriteoParser.counts.
func (p *LayoutParser) Number(c *slotColumnOf, source []byte, lo, hi int) (float32, bool) {
	if n := hi - lo; n < 8 && lo+8 <= len(source) {
		d := (binary.LittleEndian.Uint64(source[lo:]) ^ zeros) << 8 << (uint(56-8*n) & 63)
		if (d+0x7676767676767676|d)&highs == 0 {
			if x := addDigits(d); !c.log {
				return float32(x), true
			} else if x < maxLog {
				return p.tools.logs[x], true
			}
		}
	}
	return c.Number(source[lo:hi])
}

// Number converts any number.
func (c *slotColumnOf) Number(field []byte) (float32, bool) {
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
	if c.log {
		x = math.Log1p(max(x, 0))
	}
	y := float32(x)
	return y, y-y == 0
}

// keys appends the keys of a field, or describes its fault.
func (p *LayoutParser) keys(c *slotColumnOf, source []byte, lo, hi int, keys []uint64) (_ []uint64, fault string) {
	if lo == hi {
		return keys, ""
	}
	for {
		end := hi
		if c.between != 0 {
			end = nextByte(source, lo, hi, c.between)
		}
		if end == lo {
			return keys, fmt.Sprintf("an empty value between two of %q", c.Separator)
		}
		var key uint64
		switch c.values {
		case useHex:
			key, fault = p.hexKey(c, source, lo, end)
		case useKey:
			key, fault = givenKey(source, lo, end)
		default:
			key = TextKey(c.table, source[lo:end])
		}
		if fault != "" {
			return keys, fault
		}
		if keys = append(keys, key); end == hi {
			return keys, ""
		}
		lo = end + 1
	}
}

// hexKey returns the key of a hexadecimal value.
func (p *LayoutParser) hexKey(c *slotColumnOf, source []byte, lo, hi int) (key uint64, fault string) {
	if hi-lo == 8 {
		if v, bad := p.tools.hex8(binary.LittleEndian.Uint64(source[lo:])); bad == 0 {
			return (c.table+1)<<KeyBits | v, "" // as Key for a small value
		}
	}
	v := uint64(0)
	for _, b := range source[lo:hi] {
		d := p.tools.hex[b]
		if d >= 16 || hi-lo > 16 {
			return 0, "want up to 16 hexadecimal digits"
		}
		v = v<<4 | uint64(d)
	}
	return Key(int(c.table), v), ""
}

// givenKey parses a decimal key. Up to 16 digits are one or two words of 8 bytes; longer keys use
// strconv, which checks the range.
func givenKey(source []byte, lo, hi int) (key uint64, fault string) {
	if n := hi - lo; n <= 16 && lo+8 <= len(source) {
		above := uint64(0)
		if n > 8 {
			d, ok := digitsOf(binary.LittleEndian.Uint64(source[lo:]), n-8)
			if !ok {
				return 0, noKey
			}
			above, lo, n = addDigits(d)*1e8, hi-8, 8
		}
		if d, ok := digitsOf(binary.LittleEndian.Uint64(source[lo:]), n); ok {
			return above + addDigits(d), ""
		}
		return 0, noKey
	}
	v, err := strconv.ParseUint(string(source[lo:hi]), 10, 64)
	if err != nil {
		return 0, noKey
	}
	return v, ""
}

const noKey = "want a key, 0 to 18446744073709551615"

// digitsOf returns the first 1 to 8 digits of a word in the upper bytes, with zeros below.
func digitsOf(word uint64, n int) (d uint64, ok bool) {
	d = (word ^ zeros) << (64 - 8*n)
	return d, (d+0x7676767676767676|d)&highs == 0
}

// TextKey hashes a table and a text. Two texts have an equal key with a probability of 2^-64.
func TextKey(table uint64, text []byte) uint64 {
	h := prng.Mix(table ^ uint64(len(text)))
	for len(text) >= 8 {
		h = prng.Mix(h ^ binary.LittleEndian.Uint64(text))
		text = text[8:]
	}
	last := uint64(0)
	if cap(text) >= 8 { // bytes after the text are masked
		last = binary.LittleEndian.Uint64(text[:8]) & (1<<(8*len(text)) - 1)
	} else {
		for i, b := range text {
			last |= uint64(b) << (8 * i)
		}
	}
	return prng.Mix(h ^ last)
}
