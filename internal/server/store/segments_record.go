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

// A record, little-endian, padded to whole units:
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

// recordBytes is what a row of so many bytes takes in the file.
func recordBytes(row int) int64 { return int64(recordHead+row+unit-1) &^ (unit - 1) }

func seedOf(table uint32) uint32 {
	return crc32c.Checksum(binary.LittleEndian.AppendUint32(nil, table))
}

// appendRecord appends a record to b.
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

// parseRecord reads the record at the beginning of b. Where b is too short for it, it says how
// many bytes it needs.
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

// reading is what a reader needs.
type reading struct {
	buf    []byte
	places []place
	retry  []place
	iov    [1][]byte
	later  []int  // rows to wait for, by their place among the found
	blank  []byte // in their place
}

var readings = sync.Pool{New: func() any { return &reading{} }}

func (s *Segments) slotOf(at place) int            { return int(int64(at) * unit / s.size) }
func (s *Segments) unitOf(at place) int64          { return int64(at) % (s.size / unit) }
func (s *Segments) placeAt(slot, fill int64) place { return place((slot*s.size + fill) / unit) }

// gather finds the rows of keys. In a first pass it takes what the system has in memory and asks
// for the rest, so that the disk works on all of it at once; in a second it waits.
func (s *Segments) gather(t *placed, r *reading, keys []uint64, found *Rows) error {
	r.later = r.later[:0]
	for _, key := range keys {
		row, there, now := s.glance(t, r, key)
		if !there {
			continue
		}
		if !now {
			r.later = append(r.later, found.Len())
			n := int(t.row.Load()) // once: a write may change it
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
		if !ok || len(row) != len(found.Row(i)) { // it is another key's, or of another length
			return s.gatherAnew(t, r, keys, found)
		}
		copy(found.Row(i), row)
	}
	return nil
}

// gatherAnew is gather, one row after the other.
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

// glance says whether there may be a record of a key, and reads it if that takes no waiting. Else
// it has the system read it.
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
			s.reads.Add(1)
			s.in.Add(int64(got))
			return row, true, true
		}
	}
	if err != nil {
		s.waits.Store(true) // as file systems do that know of no such thing
	}
	for _, at := range r.places {
		ask(s.fd, int64(at)*unit, n)
	}
	return nil, true, false
}

// look finds the record of a key. The row is valid until the reading's next use.
//
// While it reads, the record may be cleaned away and its place be used again: what it read is
// then another key's record, or none. If the index says the same afterwards it was not so.
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
			// A record can have gone and come back to its place: see that it is so twice.
			if tries++; damage == nil || tries == 2 {
				return nil, 0, false, damage
			}
		}
		r.places, r.retry = r.retry, r.places
	}
	return nil, 0, false, nil
}

// record reads one. Damage is not yet an error for others: it may be a place that is used again.
func (s *Segments) record(t *placed, r *reading, at place) (key uint64, row []byte, err error) {
	from := int64(at) * unit
	for n := recordBytes(int(t.row.Load())); ; {
		r.buf = slices.Grow(r.buf[:0], int(n))[:n]
		got, err := s.file.ReadAt(r.buf, from)
		s.reads.Add(1)
		s.in.Add(int64(got))
		if err != nil && err != io.EOF {
			return 0, nil, err
		}
		key, row, needs, err := parseRecord(r.buf[:got], t.seed)
		if err == nil && needs > n {
			n = needs
			continue
		}
		if needs > 0 {
			err = errRecord // the file ends in it
		}
		if err != nil {
			err = &DamageError{s.path, fmt.Errorf("at byte %d: %w", from, err)}
		}
		return key, row, err
	}
}
