package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/klauspost/compress/zstd"
)

// Arrow's metadata are tables of FlatBuffers, of which any number may be said to be in a list, and which may be the elements of lists below
// themselves. What follows walks over what arrow-go will walk over, and counts: nothing has more elements than the metadata have
// bytes. Numbers are those of the fields in Arrow's Message.fbs and Schema.fbs. What lies outside panics, which is a fault, too.

func root(b []byte) flatbuffers.Table {
	return flatbuffers.Table{Bytes: b, Pos: flatbuffers.GetUOffsetT(b)}
}

// field is where a field of a table is; 0: it is left out.
func field(t flatbuffers.Table, slot int) flatbuffers.UOffsetT {
	return flatbuffers.UOffsetT(t.Offset(flatbuffers.VOffsetT(4 + 2*slot)))
}

// below is a table in a field of a table.
func below(t flatbuffers.Table, slot int) (flatbuffers.Table, bool) {
	at := field(t, slot)
	if at == 0 {
		return t, false
	}
	return flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(t.Pos + at)}, true
}

// listLen is how many elements a list has; 0 where it is left out.
func listLen(t flatbuffers.Table, slot int) int {
	if at := field(t, slot); at != 0 {
		return t.VectorLen(at)
	}
	return 0
}

// dictionaries are what a schema says of its dictionaries: by number, whether their values are views.
type dictionaries struct {
	ofViews map[int64]bool
	views   int // columns of views that are in no dictionary
}

// message is what the metadata say.
type message struct {
	kind  ipc.MessageType
	body  int64 // bytes
	batch flatbuffers.Table
	zstd  bool // buffers are compressed by it
}

var errLists = errors.New("its lists have more elements than it has bytes")

// budget is how many elements, and bytes of texts, may still come.
type budget int

func (b *budget) take(n int) error {
	if *b -= budget(n); n < 0 || *b < 0 {
		return errLists
	}
	return nil
}

// texts takes the bytes of the texts of a list of keys and values, which may all be one text: who reads them copies each.
func (b *budget) texts(t flatbuffers.Table, slot int) error {
	n := listLen(t, slot)
	if err := b.take(n); err != nil {
		return err
	}
	for i := range n {
		at := t.Vector(field(t, slot)) + flatbuffers.UOffsetT(4*i)
		pair := flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(at)}
		for text := range 2 {
			if err := b.take(listLen(pair, text)); err != nil {
				return err
			}
		}
	}
	return nil
}

// check walks over the metadata of a message.
func (d *dictionaries) check(meta []byte) (m message, err error) {
	left := budget(len(meta))
	t := root(meta)
	m.kind, m.body = ipc.MessageType(t.GetByteSlot(6, 0)), t.GetInt64Slot(10, 0)
	if err := left.texts(t, 4); err != nil {
		return m, err
	}
	header, ok := below(t, 2)
	if !ok {
		return m, errors.New("a message without a header")
	}
	switch m.kind {
	case ipc.MessageSchema:
		d.ofViews, d.views = map[int64]bool{}, 0
		if err := left.texts(header, 2); err != nil {
			return m, err
		}
		return m, d.fields(header, 1, nesting, &left)
	case ipc.MessageDictionaryBatch:
		views := 0
		if d.ofViews[header.GetInt64Slot(4, 0)] {
			views = 1
		}
		if header, ok = below(header, 1); !ok {
			return m, errors.New("a dictionary without values")
		}
		return m, m.checkBatch(header, views)
	case ipc.MessageRecordBatch:
		return m, m.checkBatch(header, d.views)
	}
	return m, fmt.Errorf("a message of kind %v, which tables have not", m.kind)
}

const (
	typeTimestamp = 10
	typeUnion     = 14
	typeViews     = 23 // and one more
	nesting       = 64
)

// fields walks over a list of fields, and over those below them, so many levels deep.
func (d *dictionaries) fields(t flatbuffers.Table, slot, levels int, left *budget) error {
	n := listLen(t, slot)
	if n > 0 && levels == 0 {
		return errors.New("columns that are nested too deeply")
	}
	if err := left.take(n); err != nil {
		return err
	}
	for i := range n {
		at := t.Vector(field(t, slot)) + flatbuffers.UOffsetT(4*i)
		f := flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(at)}
		if err := left.take(1 + listLen(f, 0)); err != nil { // its name
			return err
		}
		if err := left.texts(f, 6); err != nil {
			return err
		}
		kind := f.GetByteSlot(4+2*2, 0)
		if of, ok := below(f, 3); ok && (kind == typeUnion || kind == typeTimestamp) { // their kinds, its zone
			if err := left.take(listLen(of, 1)); err != nil {
				return err
			}
		}
		view := kind == typeViews || kind == typeViews+1
		if dictionary, ok := below(f, 4); ok {
			if listLen(f, 5) > 0 {
				return errors.New("a dictionary of nested values, which is not read")
			}
			d.ofViews[dictionary.GetInt64Slot(4, 0)] = view
		} else if view {
			d.views++
		}
		if err := d.fields(f, 5, levels-1, left); err != nil {
			return err
		}
	}
	return nil
}

// checkBatch walks over a batch in which so many columns are views, each of as many buffers as a list says.
func (m *message) checkBatch(t flatbuffers.Table, views int) error {
	m.batch = t
	buffers, counts := listLen(t, 2), listLen(t, 4)
	if buffers < 0 || 16*buffers > len(t.Bytes) || counts < views || 8*counts > len(t.Bytes) {
		return errLists
	}
	for i := range views {
		if n := t.GetInt64(t.Vector(field(t, 4)) + flatbuffers.UOffsetT(8*i)); n < 0 || n > int64(buffers) {
			return errLists
		}
	}
	if compression, ok := below(t, 3); ok {
		m.zstd = compression.GetByteSlot(4, 0) == 1
	}
	return nil
}

// windowMost is the window that a decoder of zstd must have, whatever it decodes.
const windowMost = 8 << 20

// checkBuffers reports compressed buffers whose decoder would need more memory than what they decode to.
func (m *message) checkBuffers(body []byte) error {
	if !m.zstd {
		return nil
	}
	for i := range listLen(m.batch, 2) {
		at := m.batch.Vector(field(m.batch, 2)) + flatbuffers.UOffsetT(16*i)
		from, n := m.batch.GetInt64(at), m.batch.GetInt64(at+8)
		if n == 0 {
			continue
		}
		if from < 0 || n < 8 || n > int64(len(body)) || from > int64(len(body))-n {
			return fmt.Errorf("buffer %d has bytes %d to %d of %d", i, from, from+n, len(body))
		}
		b := body[from : from+n]
		size := binary.LittleEndian.Uint64(b)
		if int64(size) == -1 { // it is not compressed
			continue
		}
		if err := checkFrames(b[8:], max(windowMost, size)); err != nil {
			return fmt.Errorf("buffer %d: %w", i, err)
		}
	}
	return nil
}

// checkFrames looks at all frames of zstd in b: none may have a window larger than the limit.
func checkFrames(b []byte, limit uint64) error {
	for len(b) > 0 {
		var h zstd.Header
		if err := h.Decode(b); err != nil {
			return err
		}
		b = b[h.HeaderSize:]
		if h.Skippable {
			b = b[h.SkippableSize:]
			continue
		}
		window := h.WindowSize
		if h.SingleSegment {
			window = h.FrameContentSize
		}
		if window > limit {
			return fmt.Errorf("it needs a window of %d bytes to be decoded: want %d at most", window, limit)
		}
		for last := false; !last; {
			head := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
			size := head >> 3
			if last = head&1 == 1; head>>1&3 == 1 { // one byte, repeated
				size = 1
			}
			b = b[3+size:]
		}
		if h.HasCheckSum {
			b = b[4:]
		}
	}
	return nil
}
