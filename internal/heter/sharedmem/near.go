// Package sharedmem provides shared memory for a trainer and a heter-trainer of the same host, in
// addition to their link: a region for each direction, written by one process and read-only for the
// other.
//
// A common host is proven, not derived from addresses: a heter-trainer listens at a socket without
// a file, and sends the socket's random name over the link with a key for this connection. If the
// trainer finds the socket, both prove the possession of the job's ticket, and exchange memory
// descriptors. No files and no foreign descriptors remain, and the memory is freed with the last
// process, after a crash as well.
//
// # Protection
//
// The creator seals the memory: the size is fixed, and no other process can write, even with the
// descriptor. A writer therefore cannot crash a reader by truncation, a trainer may resend a lost
// heter-trainer's frame to any heter-trainer, and a lost or hostile process cannot change other
// processes' memory. Readers must not trust the contents, because of changes during the read.
//
// Memory is allocated before the first write to a slot, and mapped before the first read: out of
// memory is an error for the caller, not a signal.
package sharedmem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/ringo-ml/ringo/internal/memfd"
)

// Limits of address space, which takes no memory before its use.
const (
	maxSlots  = 1 << 10
	maxStride = 1<<30 + 1<<20
	maxSpan   = 64 << 30
)

// Supported reports whether this system supports shared memory.
const Supported = memfd.Supported

// shape is the division of memory into slots.
type shape struct {
	slots, stride int
}

func (s shape) bytes() int64 { return int64(s.slots) * int64(s.stride) }

func (s shape) valid() bool {
	return s.slots >= 1 && s.slots <= maxSlots && s.stride >= 1 && s.stride <= maxStride && s.stride%os.Getpagesize() == 0 && s.bytes() <= maxSpan
}

func (s shape) check(i, n int) error {
	if i < 0 || i >= s.slots || n < 0 || n > s.stride {
		return fmt.Errorf("%d bytes of slot %d of shared memory: it has %d slots of %d bytes", n, i, s.slots, s.stride)
	}
	return nil
}

// Region is memory that only this process writes. One goroutine at a time uses a slot.
type Region struct {
	shape
	fd   int
	b    []byte
	room []int // allocated bytes by slot
}

// New creates memory of the given number of slots, limited by address space, of size bytes each.
func New(slots, size int) (*Region, error) {
	page := os.Getpagesize()
	if slots < 1 || size < 1 || size > maxStride-page {
		return nil, fmt.Errorf("shared memory of %d slots of %d bytes: want one at least, of 1 to %d bytes", slots, size, maxStride-page)
	}
	m := &Region{shape: shape{stride: (size + page - 1) / page * page}}
	m.slots = min(slots, maxSlots, maxSpan/m.stride)
	m.room = make([]int, m.slots)
	var err error
	if m.fd, err = memfd.Create("ringo-heter", m.bytes()); err != nil {
		return nil, err
	}
	if m.b, err = mapped(m.fd, int(m.bytes()), true); err == nil {
		err = memfd.Seal(m.fd, memfd.ReadOnly)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Slots returns the number of slots.
func (m *Region) Slots() int { return m.slots }

// Fits reports whether a slot has n bytes.
func (m *Region) Fits(n int) bool { return n <= m.stride }

// Slot returns the first n bytes of a slot, allocated if necessary. It fails for an invalid slot,
// or without memory.
func (m *Region) Slot(i, n int) ([]byte, error) {
	if err := m.check(i, n); err != nil {
		return nil, err
	}
	if more := n - m.room[i]; more > 0 {
		if err := setAside(m.fd, int64(i)*int64(m.stride)+int64(m.room[i]), int64(more)); err != nil {
			return nil, fmt.Errorf("%d bytes of shared memory: %w", more, err)
		}
		m.room[i] = n
	}
	return m.b[i*m.stride:][:n:n], nil
}

// Close frees the memory, when no goroutine of this process uses its slots. Mappings of other
// processes remain. nil is allowed.
func (m *Region) Close() {
	if m == nil {
		return
	}
	unmap(m.b)
	memfd.Close(m.fd)
	m.b, m.fd = nil, -1
}

// View is memory that another process writes. The methods are not safe for concurrent use;
// slices of slots are.
type View struct {
	shape
	b    []byte
	room []int // mapped bytes by slot, which the writer cannot remove
}

// view maps another process's memory.
func view(fd int, s shape) (*View, error) {
	if !s.valid() {
		return nil, fmt.Errorf("shared memory of %d slots of %d bytes: want up to %d of up to %d, %d together, and whole pages", s.slots, s.stride, maxSlots, maxStride, maxSpan)
	}
	if err := memfd.Check(fd, s.bytes(), memfd.ReadOnly); err != nil {
		return nil, err
	}
	b, err := mapped(fd, int(s.bytes()), false)
	if err != nil {
		return nil, err
	}
	return &View{s, b, make([]int, s.slots)}, nil
}

// Slots returns the number of slots.
func (v *View) Slots() int { return v.slots }

// Slot returns the first n bytes of a slot, which are read-only and may change at any time. It
// fails for an invalid slot, or without memory.
func (v *View) Slot(i, n int) ([]byte, error) {
	if err := v.check(i, n); err != nil {
		return nil, err
	}
	b := v.b[i*v.stride:][:n:n]
	if n > v.room[i] {
		if err := populate(b); err != nil {
			return nil, fmt.Errorf("%d bytes of slot %d of shared memory: %w", n, i, err)
		}
		v.room[i] = n
	}
	return b, nil
}

// Close unmaps the memory, when no goroutine uses its slots. nil is allowed.
func (v *View) Close() {
	if v != nil {
		unmap(v.b)
		v.b = nil
	}
}

// header is sent with a descriptor. Its encoding:
//
//	offset bytes
//	0      16    key
//	16     4     slots
//	20     4     stride in bytes
type header struct {
	key Key
	shape
}

const cardSize = 24

const maxText = 512

// Key identifies a connection at the socket.
type Key [16]byte

// Name is the name of a socket; zeros: none.
type Name [16]byte

func (c header) encode() []byte {
	b := binary.LittleEndian.AppendUint32(c.key[:], uint32(c.slots))
	return binary.LittleEndian.AppendUint32(b, uint32(c.stride))
}

func decode(b []byte) (c header, err error) {
	if len(b) != cardSize {
		return c, errors.New("what came with the memory is none of this protocol")
	}
	return header{Key(b), shape{int(binary.LittleEndian.Uint32(b[16:])), int(binary.LittleEndian.Uint32(b[20:]))}}, nil
}
