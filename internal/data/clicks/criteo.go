package clicks

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/ringo-ml/ringo/internal/data/prng"
)

// Columns of Criteo's display advertising sets, separated by tabs: the label (1: clicked), 13
// counts and 26 hashed categories. Every field but the label may be empty, which means missing.
const (
	CriteoNumbers = 13
	CriteoSlots   = 26
	CriteoFields  = 1 + CriteoNumbers + CriteoSlots
)

// TableRows is the default number of embedding rows.
const TableRows = 1_000_001

// SlotID returns the embedding row of a category: row 0 for a missing one, the other rows shared by
// all slots. The hash is SplitMix64's finalizer over the value and the slot; with far fewer rows
// than values, all rows are equally likely.
func SlotID(slot int, value uint64, rows int) int32 {
	hi, _ := bits.Mul64(prng.Mix(value+uint64(slot+1)*slotSalt), uint64(rows-1))
	return 1 + int32(hi)
}

// slotSalt, times the slot from 1, separates the values of slots.
const slotSalt = 0xd1342543de82ef95

// KeyBits is the width of the value in a key, below the slot.
const KeyBits = 56

// Key returns the key of a category; see data.ClickKey.
func Key(slot int, value uint64) uint64 {
	if value >= 1<<KeyBits {
		value = prng.Mix(value) & (1<<KeyBits - 1)
	}
	return uint64(slot+1)<<KeyBits | value
}

// CriteoParser parses lines in Criteo's format. Goroutines may share a parser.
type CriteoParser struct {
	rows int  // rows of the table indexed by ids; 0: no ids
	keys bool // keys requested
	bags bool // bags requested, for a layout like Criteo's format
	// unlabelled lines begin with the first count; their labels are 0.
	unlabelled bool
	logs       *[maxLog]float32
	hex        [256]uint8
	// pairs maps two hexadecimal digits, the first in the lower byte of the index, to their value,
	// and other bytes to noPair. The part in use is a few KB.
	pairs [1 << 16]uint16
}

const noPair = 1 << 15

// maxLog limits the counts with a tabulated logarithm.
const maxLog = 1 << 14

// NewCriteoParser returns a parser with ids for a table of this number of rows (0: no ids) and, on
// request, keys.
func NewCriteoParser(rows int, keys bool) *CriteoParser {
	p := &CriteoParser{rows: rows, keys: keys, logs: new([maxLog]float32)}
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

// Number returns the model input of a count: log(1+x), and 0 for x below 0.
func (p *CriteoParser) Number(x int64) float32 {
	switch {
	case x <= 0:
		return 0
	case x < maxLog:
		return p.logs[x]
	}
	return float32(math.Log1p(float64(x)))
}

// lineSize is the estimated length of a line, for the first allocation.
const lineSize = 200

// Parse parses whole lines; the last line of a file may lack its end. A bad line adds a fault only.
// No memory is allocated once out has been as large, except for faults.
func (p *CriteoParser) Parse(text []byte, out *Block) {
	out.Lines, out.Faults = 0, out.Faults[:0]
	if p.bags {
		out.Keys, out.Ends, out.Starts = out.Keys[:0], out.Ends[:0], append(out.Starts[:0], 0)
	}
	room := p.reserve(&out.Rows, 0, len(text)/lineSize+1)
	var values [CriteoSlots]uint64
	n := 0
	for at := 0; at < len(text); out.Lines++ {
		if n == room {
			room = p.reserve(&out.Rows, n, 2*room)
		}
		given, end, fault := p.line(text, at, (*[CriteoNumbers]float32)(out.Numbers[n*CriteoNumbers:]), &values)
		if fault == "" {
			if out.Labels[n] = 0; !p.unlabelled {
				out.Labels[n] = int32(text[at] - '0')
			}
			if p.rows > 0 {
				p.index((*[CriteoSlots]int32)(out.IDs[n*CriteoSlots:]), &values, given)
			}
			if p.keys {
				keysOf((*[CriteoSlots]uint64)(out.Keys[n*CriteoSlots:]), &values, given)
			}
			if p.bags {
				out.addBags(&values, given)
			}
			n++
		} else {
			out.Faults = append(out.Faults, Fault{out.Lines, end, fault})
			for end < len(text) && text[end] != '\n' {
				end++
			}
		}
		at = end + 1
	}
	p.reserve(&out.Rows, n, n)
}

// reserve resizes r to a number of rows, keeps the first rows, and returns the number.
func (p *CriteoParser) reserve(r *Rows, keep, rows int) int {
	r.Numbers = resized(r.Numbers, keep*CriteoNumbers, rows*CriteoNumbers)
	r.Labels = resized(r.Labels, keep, rows)
	if p.rows > 0 {
		r.IDs = resized(r.IDs, keep*CriteoSlots, rows*CriteoSlots)
	}
	if p.keys {
		r.Keys = resized(r.Keys, keep*CriteoSlots, rows*CriteoSlots)
	}
	return rows
}

// resized returns s with n elements and keeps the first elements.
func resized[T any](s []T, keep, n int) []T {
	if cap(s) >= n {
		return s[:n]
	}
	out := make([]T, n)
	copy(out, s[:keep])
	return out
}

// index writes the embedding rows of a line's categories, as SlotID.
func (p *CriteoParser) index(ids *[CriteoSlots]int32, values *[CriteoSlots]uint64, given uint32) {
	most, salt := uint64(p.rows-1), uint64(0)
	for slot, value := range values {
		salt += slotSalt
		hi, _ := bits.Mul64(prng.Mix(value+salt), most)
		ids[slot] = int32(hi+1) & -int32(given&1)
		given >>= 1
	}
}

// keysOf writes the keys of a line's categories.
func keysOf(keys *[CriteoSlots]uint64, values *[CriteoSlots]uint64, given uint32) {
	for slot, value := range values {
		keys[slot] = Key(slot, value) & -uint64(given&1)
		given >>= 1
	}
}

// addBags appends the keys of a line's categories as bags. The capacity for keys is a power of two,
// so that no index needs a bounds check.
func (r *Rows) addBags(values *[CriteoSlots]uint64, given uint32) {
	const room = 32
	first, row := len(r.Keys), len(r.Ends)
	r.Keys, r.Ends = slices.Grow(r.Keys, room), slices.Grow(r.Ends, CriteoSlots)[:row+CriteoSlots]
	keys, ends := (*[room]uint64)(r.Keys[first:first+room]), (*[CriteoSlots]uint32)(r.Ends[row:])
	n := uint32(0)
	for slot, value := range values {
		keys[n%room] = Key(slot, value)
		n += given & 1
		ends[slot] = n
		given >>= 1
	}
	r.Keys = r.Keys[:first+int(n)]
	r.Starts = append(r.Starts, len(r.Keys))
}

// line parses the line at a position. It returns the categories present (a bit per slot; other
// values are undefined) and the end, or the position and the text of the fault.
//
// Most fields have at most 7 digits or exactly 8 hexadecimal digits, and are read as a word of 8
// bytes. The length of a count is unpredictable, so the code does not branch on the length, and
// finds all tabs first, so that counts do not wait for each other. The presence of a category is
// predicted well.
func (p *CriteoParser) line(text []byte, at int, numbers *[CriteoNumbers]float32, values *[CriteoSlots]uint64) (given uint32, end int, fault string) {
	if !p.unlabelled {
		if at+1 >= len(text) || text[at] != '0' && text[at] != '1' || text[at+1] != '\t' {
			return 0, at, badLabel(text[at:])
		}
		at += 2
	}
	at, column := p.counts(text, at, numbers)
	if column < CriteoNumbers {
		return 0, at, badField(text, at, 1+column, "an integer of at most 18 digits")
	}
	for slot := range CriteoSlots - 1 {
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
			return 0, next, badField(text, next, 1+CriteoNumbers+slot, "a category in hexadecimal")
		}
		values[slot] = value
		if next > at {
			given |= 1 << slot
		}
		at = next + 1
	}
	value, next, ok := p.category(text, at)
	values[CriteoSlots-1] = value
	if next > at {
		given |= 1 << (CriteoSlots - 1)
	}
	if at = next; at+1 < len(text) && text[at] == '\r' && text[at+1] == '\n' {
		at++
	}
	switch {
	case ok && at < len(text) && text[at] == '\t':
		return 0, at, fmt.Sprintf("more than %d fields, want the line's end after field %d", CriteoFields, CriteoFields)
	case !ok || at < len(text) && text[at] != '\n':
		return 0, at, badField(text, at, CriteoFields-1, "a category in hexadecimal and the line's end")
	}
	return given, at, ""
}

// counts parses the counts from a position on, and returns the position after the last tab and the
// number of counts. With fewer counts than columns the position is that of a fault.
func (p *CriteoParser) counts(text []byte, at int, numbers *[CriteoNumbers]float32) (end, column int) {
	start, ends := at, uint64(0)
	if at+72 <= len(text) { // 8 bytes readable after each of 64 bytes
		ends = byteMask((*[64]byte)(text[at:]), tabs)
	}
	for column = range numbers {
		if ends == 0 { // after 64 bytes, or near the end of the text
			x, n := integer(text[start:])
			if start += n; start >= len(text) || text[start] != '\t' {
				return start, column
			}
			numbers[column] = p.Number(x)
			start++
			continue
		}
		next := at + bits.TrailingZeros64(ends)
		ends &= ends - 1
		n := next - start
		// Values of the digits in the upper bytes, zeros below.
		d := (binary.LittleEndian.Uint64(text[start:]) ^ zeros) << 8 << (uint(56-8*n) & 63)
		if (d+0x7676767676767676|d)&highs == 0 && n < 8 { // all bytes at most 9
			if x := addDigits(d); x < maxLog {
				numbers[column] = p.logs[x]
			} else {
				numbers[column] = float32(math.Log1p(float64(x)))
			}
		} else {
			x, m := integer(text[start:next])
			if m != n {
				return start + m, column
			}
			numbers[column] = p.Number(x)
		}
		start = next + 1
	}
	return start, CriteoNumbers
}

const (
	ones  = 0x0101010101010101
	tabs  = '\t' * ones
	zeros = 0x3030303030303030 // digit 0
	lows  = 0x7f7f7f7f7f7f7f7f
	highs = 0x8080808080808080
)

// addDigits returns the number of 8 digits, the first of them in the lowest byte (Lemire, after
// Muła).
func addDigits(d uint64) uint64 {
	d = d*10 + d>>8
	return ((d&0x000000ff000000ff)*0x000f424000000064 + (d>>16&0x000000ff000000ff)*0x0000271000000001) >> 32
}

// hex8 returns the number of 8 hexadecimal digits, the first of them in the lowest byte; bad is not
// 0 with other bytes.
func (p *CriteoParser) hex8(word uint64) (value, bad uint64) {
	a, b := uint64(p.pairs[uint16(word)]), uint64(p.pairs[uint16(word>>16)])
	c, d := uint64(p.pairs[uint16(word>>32)]), uint64(p.pairs[uint16(word>>48)])
	return a<<24 | b<<16 | c<<8 | d, (a | b | c | d) & noPair
}

// integer reads digits after an optional sign, and returns their length; n is 0 without digits.
// Numbers have at most 18 digits, so that all fit.
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

// category reads hexadecimal digits, perhaps none, and returns their end; not ok for more than 16.
func (p *CriteoParser) category(text []byte, at int) (value uint64, end int, ok bool) {
	if at+8 < len(text) && text[at+8] < '0' { // probably eight characters and an end
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

// badField describes the fault of a field.
func badField(text []byte, at, column int, want string) string {
	if at >= len(text) || text[at] == '\n' || text[at] == '\r' {
		return fmt.Sprintf("the line ends in field %d of %d", column+1, CriteoFields)
	}
	for at > 0 && text[at-1] != '\t' && text[at-1] != '\n' {
		at--
	}
	return fmt.Sprintf("field %d is %q, want %s or nothing", column+1, shown(text, at), want)
}

// shown returns the beginning of the field at a position.
func shown(text []byte, at int) string {
	end := at
	for end < len(text) && end < at+24 && text[end] != '\t' && text[end] != '\n' {
		end++
	}
	return string(text[at:end])
}
