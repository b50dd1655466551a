// Package wire is the byte layout of a link: the preface at a connection's start and the following
// frames.
//
// A frame is a header of 32 bytes and a payload, integers in little endian:
//
//	offset size
//	     0    2  magic "rg"
//	     2    1  layout version, 2
//	     3    1  type
//	     4    4  tag: group
//	     8    4  tag: sequence number
//	    12    4  tag: part
//	    16    8  tag: signature of the operation
//	    24    4  length of the payload, at most MaxPayload
//	    28    4  CRC-32C of the 28 bytes before
//
// The checksum covers only the header: a reader out of step with the stream must notice before use
// of a length. TCP's 16-bit sum guards the payload. A Summed frame's payload is followed by a
// CRC-32C of the payload, SumSize bytes outside Length.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

const (
	// HeaderSize is the length of a frame's header in bytes.
	HeaderSize = 32
	// SumSize is the length of the checksum behind the payload of a Summed frame.
	SumSize = 4
	// Version is the version of the layout in every header.
	Version = 2
	// MaxPayload is the largest payload of one frame in bytes.
	MaxPayload = 1 << 30

	magic0, magic1 = 'r', 'g'
)

// Type is the kind of a frame.
type Type uint8

// The types of frames. Types from FirstFree on are for protocols on separate links, such as the
// control connection.
const (
	Data    Type = 1 + iota // a message of the mesh, under the header's tag
	Goodbye                 // last frame of a rank that leaves
	Abort                   // last frame of a rank that fails; the payload is the reason
	Hello                   // handshake: the sender's identity, and a nonce
	Proof                   // handshake: proof of the ticket
	Refusal                 // handshake: the reason
	Summed                  // Data followed by the payload's checksum

	FirstFree Type = 64 // first type outside this list
)

// String returns the type's name.
func (t Type) String() string {
	names := [...]string{Data: "data", Goodbye: "goodbye", Abort: "abort", Hello: "hello", Proof: "proof", Refusal: "refusal", Summed: "summed data"}
	if int(t) < len(names) && names[t] != "" {
		return names[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// Header is the decoded header of a frame.
type Header struct {
	Type             Type
	Group, Seq, Part uint32 // the tag
	Sig              uint64 // the operation's signature, equal at both ends
	Length           int    // of the payload, in bytes
}

// Errors of a header, distinguished with errors.Is.
var (
	// ErrMagic: the bytes are not the start of a frame.
	ErrMagic = errors.New("wire: not the start of a frame")
	// ErrVersion: a frame of a different layout.
	ErrVersion = errors.New("wire: another layout version")
	// ErrChecksum: a damaged header.
	ErrChecksum = errors.New("wire: the header's checksum is wrong")
	// ErrSum: a damaged payload.
	ErrSum = errors.New("wire: the payload's checksum is wrong")
	// ErrTooLong: a payload beyond the limit.
	ErrTooLong = errors.New("wire: payload too long")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum returns the CRC-32C of a payload up to the end of p, from the sum so before p, 0 at the
// start.
func Sum(so uint32, p []byte) uint32 { return crc32.Update(so, castagnoli, p) }

// PutHeader writes h to b. A length outside 0 to MaxPayload is an error.
func PutHeader(b *[HeaderSize]byte, h Header) error {
	if h.Length < 0 || h.Length > MaxPayload {
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLong, h.Length, MaxPayload)
	}
	b[0], b[1], b[2], b[3] = magic0, magic1, Version, byte(h.Type)
	le := binary.LittleEndian
	le.PutUint32(b[4:], h.Group)
	le.PutUint32(b[8:], h.Seq)
	le.PutUint32(b[12:], h.Part)
	le.PutUint64(b[16:], h.Sig)
	le.PutUint32(b[24:], uint32(h.Length))
	le.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
	return nil
}

// ParseHeader decodes and checks a header, including the length against limit. Limits above
// MaxPayload count as MaxPayload.
func ParseHeader(b *[HeaderSize]byte, limit int) (Header, error) {
	le := binary.LittleEndian
	switch {
	case b[0] != magic0 || b[1] != magic1:
		return Header{}, fmt.Errorf("%w: it begins with %q", ErrMagic, b[:8])
	case b[2] != Version:
		return Header{}, fmt.Errorf("%w: %d, expected %d", ErrVersion, b[2], Version)
	case le.Uint32(b[28:]) != crc32.Checksum(b[:28], castagnoli):
		return Header{}, fmt.Errorf("%w: % x", ErrChecksum, b[:])
	}
	n := le.Uint32(b[24:])
	if limit = min(limit, MaxPayload); int64(n) > int64(limit) {
		return Header{}, fmt.Errorf("%w: a %v frame of %d bytes, the limit is %d", ErrTooLong, Type(b[3]), n, limit)
	}
	return Header{
		Type:  Type(b[3]),
		Group: le.Uint32(b[4:]), Seq: le.Uint32(b[8:]), Part: le.Uint32(b[12:]),
		Sig: le.Uint64(b[16:]), Length: int(n),
	}, nil
}
