package data

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
)

// slotParser parses lines by a layout; several may share it.
type slotParser struct {
	separator byte
	quoted    bool // fields may be
	fields    int  // of a line
	columns   []slotColumnOf
	numbers   int
	slots     []Slot
	tools     *clickParser // whose tables of digits and logarithms are used
	label     bool         // there is one
}

// slotColumnOf is a column of the layout, and which field of a line it is.
type slotColumnOf struct {
	use    use
	values use // of what becomes keys
	log    bool
	field  int32
	table  uint64 // a hash of its name, or of hexadecimal values its number among those
	// between is, in each byte, what stands between the values of a bag or sequence; 0: there is
	// one value at most.
	between uint64
	*layout.Column
}

// use is what a field is read as.
type use uint8

const (
	useLabel use = iota
	useNumber
	useText
	useHex
	useKey
	useHexOne // one value, which usually has eight digits
)

// newSlotParser is the parser of a layout's lines, of which header is the first one, if the layout
// has one; with unlabelled it may name no label.
func newSlotParser(l *layout.Layout, header []byte, unlabelled bool) (*slotParser, error) {
	p := &slotParser{separator: l.Separator[0], quoted: l.Separator == "," || l.Separator == ";", tools: newClickParser(0)}
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

// choose says which fields are used, and how: of those with some names, or with none those of the
// layout in their order.
func (p *slotParser) choose(l *layout.Layout, names []string, unlabelled bool) error {
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
			p.slots = append(p.slots, Slot{Name: c.Name, Sequence: c.Kind == layout.Sequence})
		}
		p.columns = append(p.columns, out)
	}
	return nil
}

// slot says how values become keys. number is that of the table among those of hexadecimal values.
func (c *slotColumnOf) slot(number int) {
	c.values = map[string]use{layout.Text: useText, layout.Hex: useHex, layout.Key: useKey}[c.Values]
	if c.use = c.values; c.use == useHex {
		c.table = uint64(number)
	} else {
		h := fnv.New64a()
		_, _ = h.Write([]byte(c.Table)) // never fails
		c.table = h.Sum64()
	}
	if c.Kind == layout.Category && c.use == useHex {
		c.use = useHexOne
	}
	if c.Separator != "" {
		c.between = ones * uint64(c.Separator[0])
	}
}

// names are the fields of a header.
func (p *slotParser) names(header []byte) (names []string, err error) {
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

// placeIn is which field of a header names a column; -1 with an error: none does.
func placeIn(names []string, l *layout.Layout, column string) (int, error) {
	at := slices.Index(names, column)
	if at < 0 {
		return at, fmt.Errorf("there is no column %q of layout %s: the header names %s", column, l.Name(), strings.Join(names[:min(len(names), 12)], ", "))
	}
	if again := slices.Index(names[at+1:], column); again >= 0 {
		return at, fmt.Errorf("fields %d and %d are both called %q, a column of layout %s: which is it?", at+1, at+again+2, column, l.Name())
	}
	return at, nil
}

// likeCriteo reports whether the parser of Criteo's format gives the same samples, faster. It takes
// whole numbers alone: a layout of one's own may be of others.
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

// layoutShape is that of a layout's samples, whatever files are like.
func layoutShape(l *layout.Layout) Shape {
	s := Shape{Labels: 1}
	for _, c := range l.Of(layout.Column.Slotted) {
		s.Slots = append(s.Slots, Slot{Name: c.Name, Sequence: c.Kind == layout.Sequence})
	}
	if n := len(l.Of(func(c layout.Column) bool { return c.Kind == layout.Number })); n > 0 {
		s.Values = []int{n}
	}
	return s
}

// parse parses whole lines, and the last of a file may lack its end. A bad line leaves its fault
// alone. Nothing is allocated once out has been as large, but for faults.
func (p *slotParser) parse(text []byte, out *block) {
	r := &out.clickRows
	r.reset()
	r.starts = append(r.starts, 0)
	out.lines, out.faults = 0, out.faults[:0]
	for at := 0; at < len(text); out.lines++ {
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
			out.faults = append(out.faults, lineFault{out.lines, where, fault})
		}
		at = end + 1
	}
}

// sample appends what the fields of a line are, which source has, or nothing but says what is wrong
// with the field of a column. Columns are taken in the layout's order, whatever that of the file,
// so that numbers and slots are the same ones in all files.
func (p *slotParser) sample(source []byte, cuts *lineCuts, r *clickRows) (c *slotColumnOf, fault string) {
	rows, numbers, ends, first := len(r.labels), len(r.numbers), len(r.ends), len(r.keys)
	for i := range p.columns {
		c = &p.columns[i]
		lo, hi := int(cuts.at[c.field]), int(cuts.at[c.field+1])-1
		switch c.use {
		case useNumber:
			x, ok := p.number(c, source, lo, hi)
			if r.numbers = append(r.numbers, x); !ok {
				fault = "want a number or nothing"
			}
		case useLabel:
			var label int32
			label, fault = c.label(source[lo:hi])
			r.labels = append(r.labels, label)
		case useHexOne:
			if lo < hi {
				var key uint64
				key, fault = p.hexKey(c, source, lo, hi)
				r.keys = append(r.keys, key)
			}
			r.ends = append(r.ends, uint32(len(r.keys)-first))
		default:
			r.keys, fault = p.keys(c, source, lo, hi, r.keys)
			r.ends = append(r.ends, uint32(len(r.keys)-first))
		}
		if fault != "" {
			r.labels, r.numbers, r.ends, r.keys = r.labels[:rows], r.numbers[:numbers], r.ends[:ends], r.keys[:first]
			return c, fmt.Sprintf("%q: %s", source[lo:min(hi, lo+24)], fault)
		}
	}
	if !p.label {
		r.labels = append(r.labels, 0)
	}
	r.starts = append(r.starts, len(r.keys))
	return nil, ""
}

// label is what a field says.
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

// number converts the text of a number to a model's input. Up to 7 digits are read as one word: see
// clickParser.counts.
func (p *slotParser) number(c *slotColumnOf, source []byte, lo, hi int) (float32, bool) {
	if n := hi - lo; n < 8 && lo+8 <= len(source) {
		d := (binary.LittleEndian.Uint64(source[lo:]) ^ zeros) << 8 << (uint(56-8*n) & 63)
		if (d+0x7676767676767676|d)&highs == 0 {
			if x := addDigits(d); !c.log {
				return float32(x), true
			} else if x < clickLogs {
				return p.tools.logs[x], true
			}
		}
	}
	return c.number(source[lo:hi])
}

// number is that of any field.
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
	if c.log {
		x = math.Log1p(max(x, 0))
	}
	y := float32(x)
	return y, y-y == 0
}

// keys appends those of a field, and says what is wrong with it.
func (p *slotParser) keys(c *slotColumnOf, source []byte, lo, hi int, keys []uint64) (_ []uint64, fault string) {
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
			key = textKey(c.table, source[lo:end])
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

// hexKey is that of a hexadecimal value.
func (p *slotParser) hexKey(c *slotColumnOf, source []byte, lo, hi int) (key uint64, fault string) {
	if hi-lo == 8 {
		if v, bad := p.tools.hex8(binary.LittleEndian.Uint64(source[lo:])); bad == 0 {
			return (c.table+1)<<keyBits | v, "" // ClickKey's of so small a value
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
	return ClickKey(int(c.table), v), ""
}

// givenKey is a key as a decimal number. Up to 16 digits are one or two words of 8, and more are
// left to strconv, which knows what is too large.
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

// digitsOf are the first 1 to 8 digits of a word at its top, and digits of no value below.
func digitsOf(word uint64, n int) (d uint64, ok bool) {
	d = (word ^ zeros) << (64 - 8*n)
	return d, (d+0x7676767676767676|d)&highs == 0
}

// textKey is a hash of a table and a text: two given ones have the same key with odds of 2^-64.
func textKey(table uint64, text []byte) uint64 {
	h := prng.Mix(table ^ uint64(len(text)))
	for len(text) >= 8 {
		h = prng.Mix(h ^ binary.LittleEndian.Uint64(text))
		text = text[8:]
	}
	last := uint64(0)
	if cap(text) >= 8 { // what is behind the text is left out
		last = binary.LittleEndian.Uint64(text[:8]) & (1<<(8*len(text)) - 1)
	} else {
		for i, b := range text {
			last |= uint64(b) << (8 * i)
		}
	}
	return prng.Mix(h ^ last)
}
