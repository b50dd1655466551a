package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

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

// write writes a header and the arrays. If w fails, it still calls the functions of Passing arrays,
// because their senders must not wait.
func write(w io.Writer, header []byte, arrays []Array) error {
	out := &latched{w: w}
	_, _ = out.Write(header) // out stores the error
	if out.err != nil {
		out.err = fmt.Errorf("writing the header: %w", out.err)
	}
	for _, a := range arrays {
		before := out.err
		if err := a.write(out); err != nil { // error of the array, not of w
			return fmt.Errorf("writing array %q of %v: %w", a.name, a.info(), err)
		}
		if before == nil && out.err != nil {
			out.err = fmt.Errorf("writing array %q of %v: %w", a.name, a.info(), out.err)
		}
	}
	return out.err
}

// latched writes to w until the first error, and then discards all data.
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

func (a Array) write(w io.Writer) error {
	sum, per, room := uint32(0), chunkBytes/a.kind.width(), a.buffer()
	for lo := 0; lo < a.len(); lo += per {
		hi := min(a.len(), lo+per)
		from, at := a.window(lo, hi, room)
		if a.pass != nil {
			if err := a.pass(from.floats); err != nil {
				return err
			}
		}
		part := from.view(at, at+hi-lo)
		sum = crc32c.Update(sum, part)
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	_, err := w.Write(binary.LittleEndian.AppendUint32(nil, sum))
	return err
}

// view returns values [lo, hi) as bytes for the file, in the same memory.
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
