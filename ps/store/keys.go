package store

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"
)

// Keys in Pebble: tables' sizes first, then rows by table and key, big-endian so
// that bytes sort as numbers do.
const (
	sizePrefix = 0x00 // then the table; 16 bytes: rows and bytes
	rowPrefix  = 0x01 // then table and key
	endPrefix  = 0x02
)

func appendRowKey(b []byte, table uint32, key uint64) []byte {
	b = append(b, rowPrefix)
	b = binary.BigEndian.AppendUint32(b, table)
	return binary.BigEndian.AppendUint64(b, key)
}

func appendSizeKey(b []byte, table uint32) []byte {
	return binary.BigEndian.AppendUint32(append(b, sizePrefix), table)
}

// tableEnd is the key that follows a table's rows.
func tableEnd(table uint32) []byte {
	if table+1 == 0 {
		return []byte{endPrefix}
	}
	return binary.BigEndian.AppendUint32([]byte{rowPrefix}, table+1)
}

func appendSize(b []byte, s TableSize) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Rows))
	return binary.LittleEndian.AppendUint64(b, uint64(s.Bytes))
}

func decodeSize(b []byte) (TableSize, error) {
	if len(b) != 16 {
		return TableSize{}, fmt.Errorf("a table's size has %d bytes, want 16", len(b))
	}
	return TableSize{int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))}, nil
}

// counts adds changes of a table's size. A write carries its change in the same
// batch as its rows, so that sizes belong to the rows that a crash leaves.
var counts = &pebble.Merger{
	Name: "ringo.counts",
	Merge: func(_, value []byte) (pebble.ValueMerger, error) {
		s := &sum{}
		if err := s.add(value); err != nil {
			return nil, err
		}
		return s, nil
	},
}

type sum struct{ TableSize }

func (s *sum) add(value []byte) error {
	c, err := decodeSize(value)
	s.TableSize = s.plus(c)
	return err
}

func (s *sum) MergeNewer(value []byte) error { return s.add(value) }
func (s *sum) MergeOlder(value []byte) error { return s.add(value) }
func (s *sum) Finish(bool) ([]byte, io.Closer, error) {
	return appendSize(nil, s.TableSize), nil, nil
}

// keyOf is the key of a row's key in Pebble.
func keyOf(k []byte) uint64 { return binary.BigEndian.Uint64(k[len(k)-8:]) }
