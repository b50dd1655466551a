package clicks

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// lineCuts are the fields of a line: field k is at[k] to at[k+1]-1 in the text, or in plain for a
// line with quotes. One byte follows each field, a separator or the line's end, hence the -1.
//
// Fields are read as words of 8 bytes, which can extend past a field and a line, but never past the
// text: each reader checks the length.
type lineCuts struct {
	at    []int32
	plain []byte  // fields without quotes
	where []int32 // position in the text of each field of plain
}

// place returns the position of a field in the text.
func (c *lineCuts) place(field int) int {
	if len(c.where) > 0 {
		return int(c.where[field])
	}
	return int(c.at[field])
}

// cut finds the fields of the line from lo to hi. The fields are in source; where is the position
// of a fault.
//
// A line without quotes is processed in blocks of 64 bytes with a mask of separators: a search for
// each separator would cost more than reading the fields. A line with too many fields is abandoned
// soon after the last good field, so that cuts need no memory for lines that do not fit the layout.
func (p *LayoutParser) cut(text []byte, lo, hi int, c *lineCuts) (source []byte, where int, fault string) {
	c.at, c.where = c.at[:0], c.where[:0]
	if p.quoted && bytes.IndexByte(text[lo:hi], '"') >= 0 {
		return p.cutQuoted(text[:hi], lo, c)
	}
	c.at = append(c.at, int32(lo))
	at, most, pattern := lo, p.fields+1, ones*uint64(p.separator)
	for ; at < hi && at+64 <= len(text) && len(c.at) <= most; at += 64 {
		mask := byteMask((*[64]byte)(text[at:]), pattern)
		if left := hi - at; left < 64 {
			mask &= 1<<left - 1
		}
		for ; mask != 0; mask &= mask - 1 {
			c.at = append(c.at, int32(at+bits.TrailingZeros64(mask)+1))
		}
	}
	for ; at < hi && len(c.at) <= most; at++ {
		if text[at] == p.separator {
			c.at = append(c.at, int32(at+1))
		}
	}
	return text, p.count(c, hi), p.counted(c)
}

// count ends the last field, and returns a position for the error of a wrong number of fields.
func (p *LayoutParser) count(c *lineCuts, hi int) (where int) {
	if len(c.at) > p.fields {
		where = int(c.at[p.fields])
	} else if where = hi; len(c.at) < p.fields {
		return where
	}
	c.at = append(c.at, int32(hi+1))
	return where
}

// counted describes a wrong number of fields.
func (p *LayoutParser) counted(c *lineCuts) string {
	if n := len(c.at); n > p.fields+1 {
		return fmt.Sprintf("more than %d fields", p.fields)
	} else if n <= p.fields {
		return fmt.Sprintf("the line ends after field %d of %d", n, p.fields)
	}
	return ""
}

// cutQuoted is cut for a line with quoted fields, up to the end of a text.
func (p *LayoutParser) cutQuoted(text []byte, lo int, c *lineCuts) (source []byte, where int, fault string) {
	c.plain = c.plain[:0]
	for at := lo; ; {
		field, next, fault := p.field(text, at)
		if fault != "" {
			return nil, at, fmt.Sprintf("field %d: %s", len(c.at)+1, fault)
		}
		if len(c.at) == p.fields {
			return nil, at, fmt.Sprintf("more than %d fields", p.fields)
		}
		c.at, c.where = append(c.at, int32(len(c.plain))), append(c.where, int32(at))
		c.plain = append(append(c.plain, field...), p.separator)
		if next >= len(text) {
			break
		}
		at = next + 1
	}
	if len(c.at) < p.fields {
		return nil, len(text), fmt.Sprintf("the line ends after field %d of %d", len(c.at), p.fields)
	}
	c.at = append(c.at, int32(len(c.plain)))
	return c.plain, 0, ""
}

// field returns the field at a position, and the position of the next separator or the end. With
// doubled quotes inside, field is a copy.
func (p *LayoutParser) field(line []byte, at int) (field []byte, next int, fault string) {
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

// byteMask returns a mask of the bytes of text that equal the byte that pattern repeats eight
// times; the lowest bit is the first byte.
func byteMask(text *[64]byte, pattern uint64) (mask uint64) {
	for i := range 8 {
		x := binary.LittleEndian.Uint64(text[8*i:]) ^ pattern
		x = ^(x&lows + lows | x | lows) >> 7 // 1 in each equal byte
		mask |= x * 0x0102040810204080 >> 56 << (8 * i)
	}
	return mask
}

// nextByte finds the end of a bag's value: the first position from lo on of the byte that pattern
// repeats eight times, or hi.
func nextByte(text []byte, lo, hi int, pattern uint64) int {
	for ; lo+8 <= len(text) && lo < hi; lo += 8 {
		x := binary.LittleEndian.Uint64(text[lo:]) ^ pattern
		if found := (x - ones) &^ x & highs; found != 0 { // lowest byte is exact
			return min(hi, lo+bits.TrailingZeros64(found)>>3)
		}
	}
	for ; lo < hi && text[lo] != byte(pattern); lo++ {
	}
	return min(lo, hi)
}
