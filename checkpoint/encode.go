package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/crc32c"
)

// Magic is the beginning of every checkpoint.
const Magic = "RINGOCKP"

const (
	version    = 1
	prefixSize = len(Magic) + 4 + 4
	maxHeader  = 16 << 20
	crcSize    = 4
	chunkBytes = 256 << 10 // unit of reads, writes and checksums: stays in the caches
)

// index is the JSON header.
type index struct {
	Header
	Arrays []Info `json:"arrays"`
}

// encodeHeader returns the bytes before the first array.
func encodeHeader(s State) ([]byte, error) {
	ix := index{Header: s.Header, Arrays: []Info{}}
	for _, a := range s.Arrays {
		ix.Arrays = append(ix.Arrays, a.info())
	}
	text, err := json.Marshal(ix)
	if err != nil {
		return nil, err
	}
	if len(text) > maxHeader {
		return nil, fmt.Errorf("the header has %d bytes, at most %d can be written", len(text), maxHeader)
	}
	b := append(make([]byte, 0, prefixSize+len(text)+crcSize), Magic...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	b = append(b, text...)
	return binary.LittleEndian.AppendUint32(b, crc32c.Checksum(b)), nil
}

// size is the file's length in bytes.
func (s State) size(header []byte) int64 {
	n := int64(len(header))
	for _, a := range s.Arrays {
		n += int64(a.len())*int64(a.kind.width()) + crcSize
	}
	return n
}

// write writes a header and the arrays, through one small buffer. If w fails, Passing arrays are
// still streamed, because their senders must not wait.
func write(w io.Writer, header []byte, arrays []Array) error {
	out := &latched{w: w}
	_, _ = out.Write(header) // out stores the error
	if out.err != nil {
		out.err = fmt.Errorf("writing the header: %w", out.err)
	}
	buf := make([]byte, chunkBytes)
	for _, a := range arrays {
		before := out.err
		if err := a.write(out, buf); err != nil { // error of the array, not of w
			return fmt.Errorf("writing array %q of %v: %w", a.name, a.info(), err)
		}
		if before == nil && out.err != nil {
			out.err = fmt.Errorf("writing array %q of %v: %w", a.name, a.info(), out.err)
		}
	}
	return out.err
}

// latched writes to w until an error, and then discards data without reporting it.
type latched struct {
	w   io.Writer
	err error
}

func (l *latched) Write(b []byte) (int, error) {
	if l.err == nil {
		_, l.err = l.w.Write(b)
	}
	return len(b), nil
}

func (a Array) write(w io.Writer, buf []byte) error {
	sum, per, room := uint32(0), len(buf)/a.kind.width(), a.buffer()
	for lo := 0; lo < a.len(); lo += per {
		hi := min(a.len(), lo+per)
		from, at := a.window(lo, hi, room)
		if a.pass != nil {
			if err := a.pass(from.floats); err != nil {
				return err
			}
		}
		part := from.bytesOf(buf, at, at+hi-lo, littleEndian)
		sum = crc32c.Update(sum, part)
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	_, err := w.Write(binary.LittleEndian.AppendUint32(nil, sum))
	return err
}

// littleEndian reports whether memory has the file's byte order; values are then read and written
// in place.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1 // never written

// bytesOf returns the file's bytes of values [lo, hi): a view if memory has the file's order, else
// a copy in buf.
func (a Array) bytesOf(buf []byte, lo, hi int, little bool) []byte {
	if little {
		return a.view(lo, hi)
	}
	buf = buf[:(hi-lo)*a.kind.width()]
	switch a.kind {
	case float32s:
		for i, v := range a.floats[lo:hi] {
			binary.LittleEndian.PutUint32(buf[4*i:], math.Float32bits(v))
		}
	case uint64s:
		for i, v := range a.words[lo:hi] {
			binary.LittleEndian.PutUint64(buf[8*i:], v)
		}
	default:
		copy(buf, a.bytes[lo:hi])
	}
	return buf
}

// set sets the values from lo on to the contents of b, bytes of the file.
func (a Array) set(b []byte, lo int) {
	switch a.kind {
	case float32s:
		for i := range len(b) / 4 {
			a.floats[lo+i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case uint64s:
		for i := range len(b) / 8 {
			a.words[lo+i] = binary.LittleEndian.Uint64(b[8*i:])
		}
	default:
		copy(a.bytes[lo:], b)
	}
}

// view is the memory of values [lo, hi).
func (a Array) view(lo, hi int) []byte {
	switch a.kind {
	case float32s:
		return bytesview.Bytes(a.floats[lo:hi])
	case uint64s:
		return bytesview.Bytes(a.words[lo:hi])
	default:
		return a.bytes[lo:hi]
	}
}
