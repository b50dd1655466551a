package wal

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ringo-ml/ringo/internal/crc32c"
	"github.com/ringo-ml/ringo/internal/dirlock"
)

// The last segment alone does not distinguish a lost tail from a torn write. The number of the last
// acknowledged record is therefore stored next to the segments, in a file that is overwritten in
// place after each group, before Wait returns:
//
//	offset  bytes
//	0       8     "RINGOAC2"
//	8       8     number of the record
//	16      4     flags; 1: the log was closed in good order
//	20      104   Config.Owner, and zeros
//	124     4     CRC-32C of all bytes before
//
// The file is never synced. After the end of the process, kill -9 included, its number is exact.
// After a loss of power the number may be older than the log, a lower bound of the acknowledged
// records; or, without Config.Sync, newer, and then acknowledged records are lost.
const (
	markName   = "acknowledged"
	markMagic  = "RINGOAC2"
	markBytes  = 24 + ownerBytes
	markClosed = 1
)

// ackState is the content of the file.
type ackState struct {
	safe   uint64
	closed bool
}

func markPath(dir string) string { return filepath.Join(dir, markName) }

func (m ackState) append(b []byte, owner string) []byte {
	at, flags := len(b), uint32(0)
	if m.closed {
		flags = markClosed
	}
	b = append(b, markMagic...)
	b = binary.LittleEndian.AppendUint64(b, m.safe)
	b = binary.LittleEndian.AppendUint32(b, flags)
	b = appendOwner(b, owner)
	return binary.LittleEndian.AppendUint32(b, crc32c.Checksum(b[at:]))
}

// readMark reads a log's acknowledgement file; known is false if no valid file exists.
func readMark(dir, owner string) (m ackState, known bool, err error) {
	b, err := readAtMost(markPath(dir), markBytes+1)
	if errors.Is(err, fs.ErrNotExist) {
		return ackState{}, false, nil
	}
	if err != nil || len(b) != markBytes || string(b[:8]) != markMagic || binary.LittleEndian.Uint32(b[markBytes-4:]) != crc32c.Checksum(b[:markBytes-4]) {
		return ackState{}, false, err
	}
	if err := checkOwner(markPath(dir), b[20:], owner); err != nil {
		return ackState{}, false, err
	}
	return ackState{binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint32(b[16:])&markClosed != 0}, true, nil
}

// openMark writes m to the file, and opens it for later writes.
func (l *Log) openMark(m ackState) error {
	f, err := os.OpenFile(markPath(l.dir), os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(m.append(l.markBuffer[:0], l.c.Owner), 0)
	if err == nil {
		err = f.Truncate(markBytes)
	}
	if err == nil && l.c.Sync {
		if err = f.Sync(); err == nil {
			err = dirlock.Sync(l.dir)
		}
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.mark = f
	return nil
}

// setMark records m. Cost: a write of 128 bytes to the page cache.
func (l *Log) setMark(m ackState) error {
	_, err := l.mark.WriteAt(m.append(l.markBuffer[:0], l.c.Owner), 0)
	return err
}
