// Package wal is a write-ahead log of opaque records.
//
// invariant[acknowledged-is-logged]: a record that Wait has answered for survives the
// end of the process, kill -9 included; with Config.Sync also the loss of power. Records have numbers, 1 and
// up without gaps. Many appenders share one write and one sync (group commit,
// after DeWitt et al., "Implementation techniques for main memory database
// systems", SIGMOD 1984): while one group is on its way the next one gathers.
//
// A log is a directory of segments, each named after the number of its first
// record. All integers are little-endian:
//
//	offset  bytes
//	0       8     "RINGOWAL"
//	8       4     version of the format, 2
//	12      4     flags; 1: written with Config.Sync
//	16      8     number of the first record
//	24      104   Config.Owner, and zeros
//	128     4     CRC-32C of all bytes before
//	then records:
//	0       4     n, the payload's length
//	4       4     how many records of the same write come before this one
//	8       8     the record's number
//	16      4     CRC-32C of the payload and of the 16 bytes before
//	20      n     the payload
//
// A crash can leave the last write in part. What is left of it at the end of the
// last segment is cut off when the log is opened; that nothing whole follows tells
// it from damage. With Config.Sync a loss of power may also keep a later part of
// the last write and lose an earlier one; the position within the write shows that.
// Which records were acknowledged is kept beside the segments (see ack.go), so that a log which
// was cut further back is told from one that a crash cut short. All other damage
// is an error that names file and offset. A file of another owner is an error that names both.
// Version 1 had no owner.
package wal

import (
	"errors"
	"fmt"
)

// Defaults of Config.
const (
	DefaultSegmentBytes = 64 << 20
	DefaultBufferBytes  = 4 << 20
)

// HeaderBytes is what a record takes in a log beyond its own bytes.
const HeaderBytes = recordHeader

// maxSegmentBytes bounds what Replay holds in memory.
const maxSegmentBytes = 1 << 30

// Config says how a log is kept.
type Config struct {
	// Owner says what the log belongs to, in at most 104 bytes. Each file of it states the owner, and a
	// log with a file of another one is not opened.
	Owner string
	// Sync forces each group to the disk (fdatasync) before Wait answers, so
	// that records survive a loss of power. Without it they survive the end of
	// the process.
	Sync bool
	// SegmentBytes is the most that a segment has; 0 is DefaultSegmentBytes.
	// Truncate frees whole segments, and Open and Replay hold one in memory.
	SegmentBytes int64
	// BufferBytes is the most that gathers while a write is on its way; Append
	// waits beyond it. It also bounds a record: MaxRecord. 0 is
	// DefaultBufferBytes. A log has two such buffers.
	BufferBytes int

	create func(path string) (file, error) // for tests; nil is createFile
}

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	if c.SegmentBytes == 0 {
		c.SegmentBytes = DefaultSegmentBytes
	}
	if c.BufferBytes == 0 {
		c.BufferBytes = DefaultBufferBytes
	}
	if c.create == nil {
		c.create = createFile
	}
	return c
}

// Validate reports all faults together.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	if len(c.Owner) > ownerBytes {
		errs = append(errs, fmt.Errorf("owner %q has %d bytes: at most %d", c.Owner, len(c.Owner), ownerBytes))
	}
	if c.BufferBytes <= recordHeader {
		errs = append(errs, fmt.Errorf("buffer of %d bytes: want more than %d, a record's header", c.BufferBytes, recordHeader))
	}
	if least := int64(segmentHeader) + int64(c.BufferBytes); c.SegmentBytes < least || c.SegmentBytes > maxSegmentBytes {
		errs = append(errs, fmt.Errorf("segments of %d bytes: want %d (a buffer and a header) to %d", c.SegmentBytes, least, maxSegmentBytes))
	}
	return errors.Join(errs...)
}

// MaxRecord is the longest record in bytes.
func (c Config) MaxRecord() int { return c.withDefaults().BufferBytes - recordHeader }

// LSN is a record's place in a log, for Wait.
type LSN struct {
	// Number is the record's number.
	Number uint64
	run    int // how often the log had been resumed
}

// Stats counts what a log has done since it was opened.
type Stats struct {
	Records  int64  `json:"records"` // appended, whether safe yet or not
	Bytes    int64  `json:"bytes"`   // written, headers included
	Writes   int64  `json:"writes"`  // groups
	Syncs    int64  `json:"syncs"`
	Segments int    `json:"segments"`     // files now
	First    uint64 `json:"first_record"` // number of the oldest record kept, or of the next one
	Last     uint64 `json:"last_record"`  // number of the last record appended
	Safe     uint64 `json:"safe_record"`  // number of the last record that Wait answers for
}
