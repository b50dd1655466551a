package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/internal/crc32c"
)

// recordHead is the size of a record's head. A record, little-endian, padded to whole units:
//
//	0  4  CRC-32C of the table's number and the rest
//	4  4  bytes of the row
//	8  8  key
//	16    the row
const (
	recordHead = 16
	unit       = 16
	maxRow     = 128 << 10
)

func recordBytes(row int) int64 { return int64(recordHead+row+unit-1) &^ (unit - 1) }

func seedOf(table uint32) uint32 {
	return crc32c.Checksum(binary.LittleEndian.AppendUint32(nil, table))
}

func appendRecord(b []byte, seed uint32, key uint64, row []byte) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(row)))
	b = binary.LittleEndian.AppendUint64(b, key)
	b = append(b, row...)
	binary.LittleEndian.PutUint32(b[at:], crc32c.Update(seed, b[at+4:]))
	for len(b)%unit != 0 {
		b = append(b, 0)
	}
	return b
}

// errRecord is the error of bytes that are no record of the table.
var errRecord = errors.New("a checksum is wrong")

// parseRecord parses the record at the start of b. needs is the length needed if b is too short.
func parseRecord(b []byte, seed uint32) (key uint64, row []byte, needs int64, err error) {
	if len(b) < recordHead {
		return 0, nil, recordHead, nil
	}
	n := binary.LittleEndian.Uint32(b[4:])
	if n > maxRow {
		return 0, nil, 0, errRecord
	}
	if len(b) < recordHead+int(n) {
		return 0, nil, recordBytes(int(n)), nil
	}
	if crc32c.Update(seed, b[4:recordHead+n]) != binary.LittleEndian.Uint32(b) {
		return 0, nil, 0, errRecord
	}
	return binary.LittleEndian.Uint64(b[8:]), b[recordHead : recordHead+n : recordHead+n], 0, nil
}

// reading has the buffers of a reader.
type reading struct {
	buf    []byte
	places []place
	retry  []place
	iov    [1][]byte
	later  []int  // rows to wait for, by their index in found
	blank  []byte // placeholder for rows in later
}

var readings = sync.Pool{New: func() any { return &reading{} }}

func (s *Segments) slotOf(at place) int            { return int(int64(at) * unit / s.size) }
func (s *Segments) unitOf(at place) int64          { return int64(at) % (s.size / unit) }
func (s *Segments) placeAt(slot, fill int64) place { return place((slot*s.size + fill) / unit) }

// gather finds the rows of keys. A first pass takes rows in the page cache and starts reads for the
// rest, so that the disk works on all of them simultaneously; a second pass waits.
func (s *Segments) gather(t *placed, r *reading, keys []uint64, found *Rows) error {
	r.later = r.later[:0]
	for _, key := range keys {
		row, there, now := s.glance(t, r, key)
		if !there {
			continue
		}
		if !now {
			r.later = append(r.later, found.Len())
			n := int(t.row.Load()) // read once: a write may change it
			r.blank = slices.Grow(r.blank[:0], n)[:n]
			row = r.blank
		}
		found.Add(key, row)
	}
	for _, i := range r.later {
		row, _, ok, err := s.look(t, r, found.Keys[i])
		if err != nil {
			return err
		}
		if !ok || len(row) != len(found.Row(i)) { // another key's row, or another length
			return s.gatherAnew(t, r, keys, found)
		}
		copy(found.Row(i), row)
	}
	return nil
}

// gatherAnew is gather, one row at a time.
func (s *Segments) gatherAnew(t *placed, r *reading, keys []uint64, found *Rows) error {
	found.Reset()
	for _, key := range keys {
		row, _, ok, err := s.look(t, r, key)
		if err != nil {
			return err
		}
		if ok {
			found.Add(key, row)
		}
	}
	return nil
}

// glance reports whether a key may have a record, and reads it, or starts a read that would block.
func (s *Segments) glance(t *placed, r *reading, key uint64) (row []byte, there, now bool) {
	r.places = t.index.find(mix(key), r.places[:0])
	if len(r.places) == 0 || s.waits.Load() {
		return nil, len(r.places) > 0, false
	}
	n := recordBytes(int(t.row.Load()))
	from := int64(r.places[0]) * unit
	r.buf = slices.Grow(r.buf[:0], int(n))[:n]
	r.iov[0] = r.buf
	got, wait, err := readNow(s.fd, r.iov[:], from)
	if err == nil && !wait {
		k, row, needs, err := parseRecord(r.buf[:got], t.seed)
		if err == nil && needs == 0 && k == key {
			return row, true, true
		}
	}
	if err != nil {
		s.waits.Store(true) // unsupported by the file system
	}
	for _, at := range r.places {
		ask(s.fd, int64(at)*unit, n)
	}
	return nil, true, false
}

// look finds the record of a key. The row is valid until the next use of r.
//
// During the read the record may be cleaned and its place reused: the data are then another key's
// record, or invalid. An unchanged index entry after the read excludes this.
func (s *Segments) look(t *placed, r *reading, key uint64) (row []byte, at place, ok bool, err error) {
	hash := mix(key)
	r.places = t.index.find(hash, r.places[:0])
	for tries := 0; len(r.places) > 0; {
		var damage error
		for _, at := range r.places {
			k, row, err := s.record(t, r, at)
			if err == nil && k == key {
				return row, at, true, nil
			}
			if err != nil && damage == nil {
				damage = err
			}
		}
		r.retry = t.index.find(hash, r.retry[:0])
		if slices.Equal(r.retry, r.places) {
			// A record can leave its place and return: damage is confirmed by a second read.
			if tries++; damage == nil || tries == 2 {
				return nil, 0, false, damage
			}
		}
		r.places, r.retry = r.retry, r.places
	}
	return nil, 0, false, nil
}

// record reads the record at a place. Its damage is only tentative: the place may have been reused.
func (s *Segments) record(t *placed, r *reading, at place) (key uint64, row []byte, err error) {
	from := int64(at) * unit
	for n := recordBytes(int(t.row.Load())); ; {
		r.buf = slices.Grow(r.buf[:0], int(n))[:n]
		got, err := s.file.ReadAt(r.buf, from)
		if err != nil && err != io.EOF {
			return 0, nil, err
		}
		key, row, needs, err := parseRecord(r.buf[:got], t.seed)
		if err == nil && needs > n {
			n = needs
			continue
		}
		if needs > 0 {
			err = errRecord // the file ends inside the record
		}
		if err != nil {
			err = &DamageError{s.path, fmt.Errorf("at byte %d: %w", from, err)}
		}
		return key, row, err
	}
}
