package wal

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/internal/crc32c"
)

const (
	magic         = "RINGOWAL"
	version       = 2
	flagSync      = 1
	ownerBytes    = 104
	segmentHeader = 28 + ownerBytes
	recordHeader  = 20
)

type record struct {
	number  uint64
	before  uint32 // records of the same write before this one
	payload []byte // slice of the segment
}

func (r record) size() int { return recordHeader + len(r.payload) }

// appendHeader appends a record's header. sum is the payload's CRC-32C, independent of the number.
func appendHeader(b []byte, n int, before uint32, number uint64, sum uint32) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	b = binary.LittleEndian.AppendUint32(b, before)
	b = binary.LittleEndian.AppendUint64(b, number)
	return binary.LittleEndian.AppendUint32(b, crc32c.Update(sum, b[at:]))
}

// decode decodes the record at the start of b. The second result is empty or describes the error.
func decode(b []byte) (r record, fault string) {
	if len(b) < recordHeader {
		return record{}, fmt.Sprintf("%d bytes, a record has at least %d", len(b), recordHeader)
	}
	n := binary.LittleEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-recordHeader) {
		return record{}, fmt.Sprintf("a record of %d bytes where %d are left", n, len(b)-recordHeader)
	}
	r = record{
		number:  binary.LittleEndian.Uint64(b[8:]),
		before:  binary.LittleEndian.Uint32(b[4:]),
		payload: b[recordHeader : recordHeader+int(n)],
	}
	sum := crc32c.Update(crc32c.Checksum(r.payload), b[:recordHeader-4])
	if has := binary.LittleEndian.Uint32(b[16:]); has != sum {
		return record{}, fmt.Sprintf("the record's checksum is %08x, the file says %08x", sum, has)
	}
	return r, ""
}

func appendSegmentHeader(b []byte, first uint64, sync bool, owner string) []byte {
	at, flags := len(b), uint32(0)
	if sync {
		flags |= flagSync
	}
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint32(b, flags)
	b = binary.LittleEndian.AppendUint64(b, first)
	b = appendOwner(b, owner)
	return binary.LittleEndian.AppendUint32(b, crc32c.Checksum(b[at:]))
}

// appendOwner appends an owner padded with zeros.
func appendOwner(b []byte, owner string) []byte {
	var zeros [ownerBytes]byte
	return append(append(b, owner...), zeros[len(owner):]...)
}

func checkOwner(path string, b []byte, owner string) error {
	if has := strings.TrimRight(string(b[:ownerBytes]), "\x00"); has != owner {
		return fmt.Errorf("%s is %w %s, not of %s: it was copied or renamed; bring the file that was here back from a copy", path, errOwner, has, owner)
	}
	return nil
}

// scan decodes the records of a segment b, starting at number first, and calls do for each; an
// error of do ends scan. The results are the position and the number of the next record. In a log's
// last segment a torn write ends the scan without an error, before the end of b.
func scan(path string, b []byte, first uint64, owner string, last bool, do func(record) error) (end int, next uint64, err error) {
	sync, err := checkHeader(path, b, first, owner)
	if err != nil {
		return 0, 0, err
	}
	end, next = segmentHeader, first
	for end < len(b) {
		r, fault := decode(b[end:])
		if fault == "" && r.number != next {
			return end, next, &DamageError{path, int64(end), fmt.Sprintf("record %d where %d belongs", r.number, next)}
		}
		if fault != "" {
			if last && !followed(b[end+1:], next, sync) {
				return end, next, nil
			}
			return end, next, &DamageError{path, int64(end), fmt.Sprintf("record %d: %s", next, fault)}
		}
		if err := do(r); err != nil {
			return end, next, err
		}
		end += r.size()
		next++
	}
	return end, next, nil
}

// checkHeader checks a segment's header and reports whether it was written with Sync.
func checkHeader(path string, b []byte, first uint64, owner string) (sync bool, err error) {
	damage := func(at int64, format string, a ...any) (bool, error) {
		return false, &DamageError{path, at, fmt.Sprintf(format, a...)}
	}
	if len(b) >= 12 && string(b[:8]) == magic && binary.LittleEndian.Uint32(b[8:]) != version {
		return false, fmt.Errorf("%s: format version %d, this program reads version %d: %w: use the program that wrote it", path, binary.LittleEndian.Uint32(b[8:]), version, ErrVersion)
	}
	if len(b) < segmentHeader {
		return damage(int64(len(b)), "the file ends within its header of %d bytes", segmentHeader)
	}
	if string(b[:8]) != magic {
		return damage(0, "it does not begin with %q", magic)
	}
	if sum, has := crc32c.Checksum(b[:segmentHeader-4]), binary.LittleEndian.Uint32(b[segmentHeader-4:]); sum != has {
		return damage(0, "the header's checksum is %08x, the file says %08x", sum, has)
	}
	if err := checkOwner(path, b[24:], owner); err != nil {
		return false, err
	}
	flags := binary.LittleEndian.Uint32(b[12:])
	if flags&^flagSync != 0 {
		return damage(12, "unknown flags %#x", flags)
	}
	if n := binary.LittleEndian.Uint64(b[16:]); n != first {
		return damage(16, "the header's first record is %d, the file's name says %d", n, first)
	}
	return flags&flagSync != 0, nil
}

// followed reports whether b, after the invalid record next, has a whole record as a proof of
// damage: a record of a later write, or without sync any record, because the system then keeps at
// least the start of a write. Cost: a check at every byte, only after a crash.
func followed(b []byte, next uint64, sync bool) bool {
	for ; len(b) >= recordHeader; b = b[1:] {
		number := binary.LittleEndian.Uint64(b[8:])
		if number < next || number-next > uint64(len(b)) {
			continue // such a record does not fit into the rest
		}
		r, fault := decode(b)
		if fault == "" && (!sync || r.number-next > uint64(r.before)) {
			return true
		}
	}
	return false
}
