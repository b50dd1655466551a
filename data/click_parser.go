package data

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/prng"
)

// The columns of Criteo's display advertising sets, tab-separated: the label
// (1: clicked), 13 counts and 26 hashed categories. Every field but the label
// may be empty: missing.
const (
	clickNumbers = 13
	clickSlots   = 26
	clickFields  = 1 + clickNumbers + clickSlots
)

// clickTableRows is how many embedding rows the slots share, if not told.
const clickTableRows = 1_000_001

var clickValues = []int{clickNumbers} // of clickParser.shape. Never written.

// clickSlotList are the slots of Criteo's categories, C1 to C26 as its files' columns are called. Never written.
var clickSlotList = func() (out []Slot) {
	for i := range clickSlots {
		out = append(out, Slot{Name: fmt.Sprintf("C%d", i+1)})
	}
	return out
}()

// shape is that of the rows that a parser makes.
func (p *clickParser) shape() Shape {
	s := Shape{Values: clickValues, Labels: 1}
	if p.rows > 0 {
		s.IDs = clickSlots
	}
	if p.keys {
		s.Keys, s.Slots = clickSlots, clickSlotList
	}
	if len(p.slots) > 0 {
		s.Slots = p.slots
	}
	return s
}

// slotID is the embedding row of a category: 0 stands for what is missing, the
// others are shared by all slots. The hash is SplitMix64's finalizer over the
// value and the slot; of rows many times fewer than values, each is as likely.
func slotID(slot int, value uint64, rows int) int32 {
	hi, _ := bits.Mul64(prng.Mix(value+uint64(slot+1)*slotSalt), uint64(rows-1))
	return 1 + int32(hi)
}

// slotSalt times a slot, counted from 1, tells its values from others'.
const slotSalt = 0xd1342543de82ef95

// keyBits is how much of a key is the category's value; the slot is above it.
const keyBits = 56

// ClickKey is the key of a category in a table without a fixed number of rows,
// such as a parameter server's: the slot, counted from 1, in the upper 8 bits
// and the value in the lower 56. Key 0 stands for what is missing, in any slot.
// Criteo's values are hashes of 32 bits and are kept as they are, as are all
// below 2^56, so that two categories never share a key; a larger one is hashed
// to 56 bits. 0 <= slot < 255.
func ClickKey(slot int, value uint64) uint64 {
	if value >= 1<<keyBits {
		value = prng.Mix(value) & (1<<keyBits - 1)
	}
	return uint64(slot+1)<<keyBits | value
}

// clickParser parses lines; several may share it.
type clickParser struct {
	rows int  // of the table that ids index; 0: no ids
	keys bool // are wanted
	// slots are of a layout like Criteo's format: bags are wanted. nil: they are not.
	slots []Slot
	logs  *[clickLogs]float32
	hex   [256]uint8
	// pairs has the value of two hexadecimal digits, the first of which is the
	// lower byte of the index; noPair for anything else. Those in use are a few KB.
	pairs [1 << 16]uint16
}

const noPair = 1 << 15

// clickLogs is below which count its logarithm is looked up.
const clickLogs = 1 << 14

func newClickParser(rows int) *clickParser {
	p := &clickParser{rows: rows, logs: new([clickLogs]float32)}
	for x := range p.logs {
		p.logs[x] = float32(math.Log1p(float64(x)))
	}
	for i := range p.hex {
		p.hex[i] = 0xff
	}
	for i := range 10 {
		p.hex['0'+i] = uint8(i)
	}
	for i := range 6 {
		p.hex['a'+i], p.hex['A'+i] = uint8(10+i), uint8(10+i)
	}
	for i := range p.pairs {
		p.pairs[i] = noPair
		if a, b := p.hex[i&0xff], p.hex[i>>8]; a|b < 16 {
			p.pairs[i] = uint16(a)<<4 | uint16(b)
		}
	}
	return p
}

// number is what the model sees of a count: log(1+x), and 0 for x below 0.
func (p *clickParser) number(x int64) float32 {
	switch {
	case x <= 0:
		return 0
	case x < clickLogs:
		return p.logs[x]
	}
	return float32(math.Log1p(float64(x)))
}

// usualClick is about how long a line is: what room is made for at first.
const usualClick = 200

// parse parses whole lines, of which a file's last may lack its end. Of a bad
// line nothing is kept but its fault. Nothing is allocated once out has been as
// large, but for faults.
func (p *clickParser) parse(text []byte, out *block) {
	out.lines, out.faults = 0, out.faults[:0]
	if p.slots != nil {
		out.keys, out.ends, out.starts = out.keys[:0], out.ends[:0], append(out.starts[:0], 0)
	}
	room := p.reserve(&out.clickRows, 0, len(text)/usualClick+1)
	var values [clickSlots]uint64
	n := 0
	for at := 0; at < len(text); out.lines++ {
		if n == room {
			room = p.reserve(&out.clickRows, n, 2*room)
		}
		given, end, fault := p.line(text, at, (*[clickNumbers]float32)(out.numbers[n*clickNumbers:]), &values)
		if fault == "" {
			out.labels[n] = int32(text[at] - '0')
			if p.rows > 0 {
				p.index((*[clickSlots]int32)(out.ids[n*clickSlots:]), &values, given)
			}
			if p.keys {
				keysOf((*[clickSlots]uint64)(out.keys[n*clickSlots:]), &values, given)
			}
			if p.slots != nil {
				out.addBags(&values, given)
			}
			n++
		} else {
			out.faults = append(out.faults, lineFault{out.lines, end, fault})
			for end < len(text) && text[end] != '\n' {
				end++
			}
		}
		at = end + 1
	}
	p.reserve(&out.clickRows, n, n)
}

// reserve resizes r to so many rows, of which the first are kept, and returns how
// many it has.
func (p *clickParser) reserve(r *clickRows, keep, rows int) int {
	r.numbers = resized(r.numbers, keep*clickNumbers, rows*clickNumbers)
	r.labels = resized(r.labels, keep, rows)
	if p.rows > 0 {
		r.ids = resized(r.ids, keep*clickSlots, rows*clickSlots)
	}
	if p.keys {
		r.keys = resized(r.keys, keep*clickSlots, rows*clickSlots)
	}
	return rows
}

// resized is grown that keeps the first elements.
func resized[T any](s []T, keep, n int) []T {
	if cap(s) >= n {
		return s[:n]
	}
	out := make([]T, n)
	copy(out, s[:keep])
	return out
}

// index writes the embedding rows of a line's categories: slotID's.
func (p *clickParser) index(ids *[clickSlots]int32, values *[clickSlots]uint64, given uint32) {
	most, salt := uint64(p.rows-1), uint64(0)
	for slot, value := range values {
		salt += slotSalt
		hi, _ := bits.Mul64(prng.Mix(value+salt), most)
		ids[slot] = int32(hi+1) & -int32(given&1)
		given >>= 1
	}
}

// keysOf writes the keys of a line's categories.
func keysOf(keys *[clickSlots]uint64, values *[clickSlots]uint64, given uint32) {
	for slot, value := range values {
		keys[slot] = ClickKey(slot, value) & -uint64(given&1)
		given >>= 1
	}
}

// addBags appends the keys of a line's categories as bags, in place: room for the keys is a power of two, so that no index of it is checked.
func (r *clickRows) addBags(values *[clickSlots]uint64, given uint32) {
	const room = 32
	first, row := len(r.keys), len(r.ends)
	r.keys, r.ends = slices.Grow(r.keys, room), slices.Grow(r.ends, clickSlots)[:row+clickSlots]
	keys, ends := (*[room]uint64)(r.keys[first:first+room]), (*[clickSlots]uint32)(r.ends[row:])
	n := uint32(0)
	for slot, value := range values {
		keys[n%room] = ClickKey(slot, value)
		n += given & 1
		ends[slot] = n
		given >>= 1
	}
	r.keys = r.keys[:first+int(n)]
	r.starts = append(r.starts, len(r.keys))
}

// line parses the line that begins at a place and returns which categories it
// has (a bit per slot; values of others are not defined) and where it ends, or
// where in it the fault is and what.
//
// Most fields are at most 7 digits or exactly 8 hexadecimal ones, and are read as
// one word of 8 bytes. How long a count is cannot be guessed, so that there is no
// branch on it, and the tabs are found beforehand, so that no count waits for the
// one before it. Whether a category is there is guessed well enough.
func (p *clickParser) line(text []byte, at int, numbers *[clickNumbers]float32, values *[clickSlots]uint64) (given uint32, end int, fault string) {
	if at+1 >= len(text) || text[at] != '0' && text[at] != '1' || text[at+1] != '\t' {
		return 0, at, badLabel(text[at:])
	}
	at, column := p.counts(text, at+2, numbers)
	if column < clickNumbers {
		return 0, at, badField(text, at, 1+column, "an integer of at most 18 digits")
	}
	for slot := range clickSlots - 1 {
		if at+9 <= len(text) {
			word := binary.LittleEndian.Uint64(text[at:])
			if byte(word) == '\t' {
				at++
				continue
			}
			if value, bad := p.hex8(word); bad == 0 && text[at+8] == '\t' {
				values[slot] = value
				given |= 1 << slot
				at += 9
				continue
			}
		}
		value, next, ok := p.category(text, at)
		if !ok || next >= len(text) || text[next] != '\t' {
			return 0, next, badField(text, next, 1+clickNumbers+slot, "a category in hexadecimal")
		}
		values[slot] = value
		if next > at {
			given |= 1 << slot
		}
		at = next + 1
	}
	value, next, ok := p.category(text, at)
	values[clickSlots-1] = value
	if next > at {
		given |= 1 << (clickSlots - 1)
	}
	if at = next; at+1 < len(text) && text[at] == '\r' && text[at+1] == '\n' {
		at++
	}
	switch {
	case ok && at < len(text) && text[at] == '\t':
		return 0, at, fmt.Sprintf("more than %d fields, want the line's end after field %d", clickFields, clickFields)
	case !ok || at < len(text) && text[at] != '\n':
		return 0, at, badField(text, at, clickFields-1, "a category in hexadecimal and the line's end")
	}
	return given, at, ""
}

// counts parses the counts from a place on and returns the place after the last
// one's tab, and how many they are; fewer than all: the place is that of a fault.
func (p *clickParser) counts(text []byte, at int, numbers *[clickNumbers]float32) (end, column int) {
	start, ends := at, uint64(0)
	if at+72 <= len(text) { // a word from each of 64 bytes on
		ends = byteMask((*[64]byte)(text[at:]), tabs)
	}
	for column = range numbers {
		if ends == 0 { // beyond those 64 bytes, or near the text's end
			x, n := integer(text[start:])
			if start += n; start >= len(text) || text[start] != '\t' {
				return start, column
			}
			numbers[column] = p.number(x)
			start++
			continue
		}
		next := at + bits.TrailingZeros64(ends)
		ends &= ends - 1
		n := next - start
		// The digits' values at the word's top, and digits of no value below.
		d := (binary.LittleEndian.Uint64(text[start:]) ^ zeros) << 8 << (uint(56-8*n) & 63)
		if (d+0x7676767676767676|d)&highs == 0 && n < 8 { // no byte of more than 9
			if x := addDigits(d); x < clickLogs {
				numbers[column] = p.logs[x]
			} else {
				numbers[column] = float32(math.Log1p(float64(x)))
			}
		} else {
			x, m := integer(text[start:next])
			if m != n {
				return start + m, column
			}
			numbers[column] = p.number(x)
		}
		start = next + 1
	}
	return start, clickNumbers
}

const (
	ones  = 0x0101010101010101
	tabs  = '\t' * ones
	zeros = 0x3030303030303030 // the digit
	lows  = 0x7f7f7f7f7f7f7f7f
	highs = 0x8080808080808080
)

// addDigits is the number of 8 digits, the first of which is the lowest byte
// (Lemire's, after Muła).
func addDigits(d uint64) uint64 {
	d = d*10 + d>>8
	return ((d&0x000000ff000000ff)*0x000f424000000064 + (d>>16&0x000000ff000000ff)*0x0000271000000001) >> 32
}

// hex8 is the number of 8 hexadecimal digits, the first of which is the lowest
// byte; bad is not 0 if there is anything else.
func (p *clickParser) hex8(word uint64) (value, bad uint64) {
	a, b := uint64(p.pairs[uint16(word)]), uint64(p.pairs[uint16(word>>16)])
	c, d := uint64(p.pairs[uint16(word>>32)]), uint64(p.pairs[uint16(word>>48)])
	return a<<24 | b<<16 | c<<8 | d, (a | b | c | d) & noPair
}

// integer reads digits with a sign or without; n is their length, 0 if there
// are none. More than 18 digits are not taken for a number: all that are fit.
func integer(text []byte) (x int64, n int) {
	first := 0
	if len(text) > 0 && text[0] == '-' {
		first = 1
	}
	for n = first; n < len(text) && n < first+18; n++ {
		d := text[n] - '0'
		if d > 9 {
			break
		}
		x = 10*x + int64(d)
	}
	switch {
	case n == first:
		return 0, 0
	case first == 1:
		return -x, n
	}
	return x, n
}

// category reads the hexadecimal digits from a place on, of which there may be
// none, and returns where they end; not ok: more than 16.
func (p *clickParser) category(text []byte, at int) (value uint64, end int, ok bool) {
	if at+8 < len(text) && text[at+8] < '0' { // eight characters and an end, or so it seems
		if value, bad := p.hex8(binary.LittleEndian.Uint64(text[at:])); bad == 0 {
			return value, at + 8, true
		}
	}
	for end = at; end < len(text); end++ {
		d := p.hex[text[end]]
		if d >= 16 {
			break
		}
		if end-at == 16 {
			return 0, end, false
		}
		value = value<<4 | uint64(d)
	}
	return value, end, true
}

func badLabel(text []byte) string {
	field := shown(text, 0)
	if field == "" {
		return "the label is missing, want 0 or 1 and 39 more fields after tabs"
	}
	return fmt.Sprintf("label %q, want 0 or 1 and 39 more fields after tabs", field)
}

// badField says what is wrong at a place of a field.
func badField(text []byte, at, column int, want string) string {
	if at >= len(text) || text[at] == '\n' || text[at] == '\r' {
		return fmt.Sprintf("the line ends in field %d of %d", column+1, clickFields)
	}
	for at > 0 && text[at-1] != '\t' && text[at-1] != '\n' {
		at--
	}
	return fmt.Sprintf("field %d is %q, want %s or nothing", column+1, shown(text, at), want)
}

// shown is the field at a place, the beginning of it if it is long.
func shown(text []byte, at int) string {
	end := at
	for end < len(text) && end < at+24 && text[end] != '\t' && text[end] != '\n' {
		end++
	}
	return string(text[at:end])
}

// ClickParser parses lines of Criteo in memory on the calling goroutine, for a
// program that has lines rather than files, and to measure what one core can
// do.
type ClickParser struct {
	parser *clickParser
	out    block
}

// NewClickParser returns a parser that gives ids of a table with so many rows
// (0: no ids; otherwise at least 2, or it panics), keys, or both.
func NewClickParser(rows int, keys bool) *ClickParser {
	if rows < 0 || rows == 1 || rows > datafile.MaxElements {
		panic(fmt.Sprintf("data: a table of %d rows", rows))
	}
	p := newClickParser(rows)
	p.keys = keys
	return &ClickParser{parser: p}
}

// Parse fills a batch with the rows of whole lines, of which the last may lack
// its end. Bad ones are left out and counted, and the first of them is told
// with its place in the text. Nothing is allocated for good lines once the
// batch has been as large.
func (p *ClickParser) Parse(b *Batch, text []byte) (bad int, first error) {
	p.out.clickRows = clickRows{numbers: b.Values, ids: b.IDs, keys: b.Keys, labels: b.Labels}
	p.parser.parse(text, &p.out)
	r := &p.out.clickRows
	b.N, b.Values, b.IDs, b.Keys, b.Labels = len(r.labels), r.numbers, r.ids, r.keys, r.labels
	if p.parser.rows == 0 {
		b.IDs = b.IDs[:0]
	}
	if !p.parser.keys {
		b.Keys = b.Keys[:0]
	}
	if len(p.out.faults) == 0 {
		return 0, nil
	}
	f := p.out.faults[0]
	return len(p.out.faults), datafile.Errorf("the text", int64(f.offset), "line %d: %s", f.line+1, f.text)
}
