package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/klauspost/compress/zstd"
)

// Arrow's metadata are FlatBuffers tables. A damaged table can declare lists of any length, and
// lists that contain themselves. The functions below visit the same fields as arrow-go and limit
// the total number of elements to the metadata's bytes. Field numbers are from Arrow's Message.fbs
// and Schema.fbs. An offset outside the bytes panics; guarded converts the panic to an error.

func root(b []byte) flatbuffers.Table {
	return flatbuffers.Table{Bytes: b, Pos: flatbuffers.GetUOffsetT(b)}
}

// field returns the offset of a table's field; 0: absent.
func field(t flatbuffers.Table, slot int) flatbuffers.UOffsetT {
	return flatbuffers.UOffsetT(t.Offset(flatbuffers.VOffsetT(4 + 2*slot)))
}

// below returns a table in a field of a table.
func below(t flatbuffers.Table, slot int) (flatbuffers.Table, bool) {
	at := field(t, slot)
	if at == 0 {
		return t, false
	}
	return flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(t.Pos + at)}, true
}

// listLen returns the length of a list; 0 without a list.
func listLen(t flatbuffers.Table, slot int) int {
	if at := field(t, slot); at != 0 {
		return t.VectorLen(at)
	}
	return 0
}

// dictionaries describes the dictionaries of a schema.
type dictionaries struct {
	// ofViews reports, by number of a dictionary, whether its values are views (references to
	// shared buffers).
	ofViews map[int64]bool
	views   int // columns of views outside dictionaries
}

// message is the checked part of a message's metadata.
type message struct {
	kind  ipc.MessageType
	body  int64 // size in bytes
	batch flatbuffers.Table
	zstd  bool // buffers are compressed by zstd
}

var errLists = errors.New("its lists have more elements than it has bytes")

// budget is the number of list elements and text bytes that the metadata may still declare.
type budget int

func (b *budget) take(n int) error {
	if *b -= budget(n); n < 0 || *b < 0 {
		return errLists
	}
	return nil
}

// texts deducts the bytes of a list of keys and values. A text with several references counts once
// per reference, because arrow-go copies it each time.
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

// check checks the metadata of a message.
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
	typeViews     = 23 // and typeViews+1
	nesting       = 64
)

// fields checks a list of fields and their children, at most levels deep.
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
		if err := left.take(1 + listLen(f, 0)); err != nil { // 1 + the name
			return err
		}
		if err := left.texts(f, 6); err != nil {
			return err
		}
		kind := f.GetByteSlot(4+2*2, 0)
		if of, ok := below(f, 3); ok && (kind == typeUnion || kind == typeTimestamp) { // kinds of a union, zone of a timestamp
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

// checkBatch checks the metadata of a batch with `views` columns of views. A list in it has the
// number of buffers of each of these columns.
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

// windowMost is the size of a zstd window that is allowed for any amount of data.
const windowMost = 8 << 20

// checkBuffers returns an error for compressed buffers whose decoder needs more memory than the
// decoded data and windowMost.
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
		if int64(size) == -1 { // not compressed
			continue
		}
		if err := checkFrames(b[8:], max(windowMost, size)); err != nil {
			return fmt.Errorf("buffer %d: %w", i, err)
		}
	}
	return nil
}

// checkFrames returns an error if a zstd frame of b has a window above the limit.
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
			if last = head&1 == 1; head>>1&3 == 1 { // one repeated byte
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
