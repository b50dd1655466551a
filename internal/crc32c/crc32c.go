// Package crc32c is the checksum of files: CRC-32 with Castagnoli's polynomial, which processors
// support.
package crc32c

import (
	"hash"
	"hash/crc32"
)

var table = crc32.MakeTable(crc32.Castagnoli) // never written

// Checksum is the sum of b.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, table) }

// Update extends a checksum by b.
func Update(sum uint32, b []byte) uint32 { return crc32.Update(sum, table, b) }

// New returns a hash for writes.
func New() hash.Hash32 { return crc32.New(table) }
