// Package wal is a write-ahead log of opaque records.
//
// invariant[acknowledged-is-logged]: a record always survives the end of the process, kill -9
// included, once Wait has returned for it; with Config.Sync also a loss of power. Records are
// numbered from 1 without gaps. Many appenders share a write and a sync (group commit, after DeWitt
// et al., "Implementation techniques for main memory database systems", SIGMOD 1984): during the
// write of a group the next group gathers.
//
// A log is a directory of segments, each named after the number of its first record. All integers
// are little-endian:
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
//	4       4     records of the same write before this one
//	8       8     the record's number
//	16      4     CRC-32C of the payload and of the 16 bytes before
//	20      n     the payload
//
// A crash can tear the last write. Open cuts off the torn bytes at the end of the last segment;
// they differ from damage because no whole record follows. With Config.Sync a loss of power may
// also keep a later part of the last write and lose an earlier part, as the position within the
// write shows. The number of acknowledged records is stored next to the segments (see ack.go), and
// distinguishes a truncated log from a torn log. All other damage is an error that names file and
// offset. A file of another owner is an error that names both. Version 1 had no owner.
package wal

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/faults"
)

// Defaults of Config.
const (
	DefaultSegmentBytes = 64 << 20
	DefaultBufferBytes  = 4 << 20
)

// HeaderBytes is the size of a record in a log beyond its payload.
const HeaderBytes = recordHeader

// maxSegmentBytes limits the memory of Replay.
const maxSegmentBytes = 1 << 30

// Config configures a log.
type Config struct {
	// Owner identifies the owner of the log, in at most 104 bytes. Each file has the Owner, and
	// Open rejects a log with a file of another owner.
	Owner string
	// Sync forces each group to the disk (fdatasync) before Wait returns, so that records survive a
	// loss of power. Otherwise records survive only the end of the process.
	Sync bool
	// SegmentBytes is the maximum size of a segment; 0 means DefaultSegmentBytes. Truncate removes
	// whole segments, and Open and Replay hold one in memory.
	SegmentBytes int64
	// BufferBytes is the maximum size of the group that gathers during a write; a full buffer
	// blocks Append. It also limits a record: MaxRecord. 0 means DefaultBufferBytes. A log has two
	// such buffers.
	BufferBytes int

	create func(path string) (file, error) // set by tests; nil is createFile
}

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

// Validate returns all errors together.
func (c Config) Validate() error {
	c = c.withDefaults()
	var bad faults.List
	bad.If(len(c.Owner) > ownerBytes, "owner %q has %d bytes: at most %d", c.Owner, len(c.Owner), ownerBytes)
	bad.If(c.BufferBytes <= recordHeader,
		"buffer of %d bytes: want more than %d, a record's header", c.BufferBytes, recordHeader)
	if least := int64(segmentHeader) + int64(c.BufferBytes); c.SegmentBytes < least || c.SegmentBytes > maxSegmentBytes {
		bad.Add(fmt.Errorf("segments of %d bytes: want %d (a buffer and a header) to %d", c.SegmentBytes, least, maxSegmentBytes))
	}
	return bad.Err()
}

// MaxRecord returns the maximum size of a record in bytes.
func (c Config) MaxRecord() int { return c.withDefaults().BufferBytes - recordHeader }

// LSN is a record's position in a log, for Wait.
type LSN struct{ Number uint64 }

// Stats are a log's counters since it was opened.
type Stats struct {
	Records  int64  `json:"records"` // appended, safe or not
	Bytes    int64  `json:"bytes"`   // written, with headers
	Writes   int64  `json:"writes"`  // written groups
	Syncs    int64  `json:"syncs"`
	Segments int    `json:"segments"`     // current files
	First    uint64 `json:"first_record"` // oldest stored record, or the next one
	Last     uint64 `json:"last_record"`  // last appended record
	Safe     uint64 `json:"safe_record"`  // last safe record
}
