// Package sharedmem has memory that a trainer and a heter-trainer of one host share beside their
// link: one for each direction, which one of them writes and the other one can only read.
//
// That they are on one host is not assumed of addresses, but shown: a heter-trainer listens at a socket without a file, of a random name, and says
// it over the link, with a key for this connection. Where the trainer finds the socket, they prove to each other that they hold the job's ticket,
// and hand each other their memory's descriptors. No file, and no descriptor beyond one of each end's own memory, is left, and the
// memory goes with the last process that has it mapped, however that ends.
//
// # Who may do what
//
// Memory is sealed by who made it: it never gets shorter, and nobody else can write to it, whoever has its descriptor. So a reader is not killed by
// what the writer does to the file, a trainer may send to another heter-trainer what one had that is lost, and nothing that a lost one still does, or
// a hostile one, changes what others read. A reader does not trust the content: it may change while it is looked at.
//
// Room is set aside before a slot is written for the first time, and before it is read the pages are there: where there is no memory any more the caller gets
// an error, and not a signal.
package sharedmem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/ringo-ml/ringo/internal/memfd"
)

// Limits of memory: addresses, which take no memory before they are used.
const (
	maxSlots  = 1 << 10
	maxStride = 1<<30 + 1<<20
	maxSpan   = 64 << 30
)

// Supported says whether processes can share memory on this system at all.
const Supported = memfd.Supported

// shape is how memory is divided.
type shape struct {
	slots, stride int
}

func (s shape) bytes() int64 { return int64(s.slots) * int64(s.stride) }

func (s shape) valid() bool {
	return s.slots >= 1 && s.slots <= maxSlots && s.stride >= 1 && s.stride <= maxStride && s.stride%os.Getpagesize() == 0 && s.bytes() <= maxSpan
}

// errSlot: a slot that there is not.
func (s shape) check(i, n int) error {
	if i < 0 || i >= s.slots || n < 0 || n > s.stride {
		return fmt.Errorf("%d bytes of slot %d of shared memory: it has %d slots of %d bytes", n, i, s.slots, s.stride)
	}
	return nil
}

// Region is what this process alone writes. One goroutine at a time uses a slot.
type Region struct {
	shape
	fd   int
	b    []byte
	room []int // bytes of each slot that are set aside
}

// New makes memory of so many slots, or as many as there are addresses for, of size bytes each.
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

// Slots is how many there are.
func (m *Region) Slots() int { return m.slots }

// Fits tells whether a slot is so large.
func (m *Region) Fits(n int) bool { return n <= m.stride }

// Slot is the first n bytes of a slot, which has room for them. Errors: there is no such slot, or no memory for it.
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

// Close gives it back, when nobody here uses slots of it any more. Others keep what they have mapped. nil is none.
func (m *Region) Close() {
	if m == nil {
		return
	}
	unmap(m.b)
	memfd.Close(m.fd)
	m.b, m.fd = nil, -1
}

// View is memory that another process writes. One goroutine uses it, others what it has of slots.
type View struct {
	shape
	b    []byte
	room []int // bytes of each slot that are there, which their writer cannot take back
}

// view maps what another process has made.
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

// Slots is how many there are.
func (v *View) Slots() int { return v.slots }

// Slot is the first n bytes of a slot, which may only be read, and change at any time. Errors: there is no such slot, or no memory for it.
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

// Close gives it back, when nobody uses slots of it any more. nil is none.
func (v *View) Close() {
	if v != nil {
		unmap(v.b)
		v.b = nil
	}
}

// header goes with a descriptor. As it is sent:
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

// maxText is the longest reason why there is no memory.
const maxText = 512

// Key is by what a connection is known at the socket.
type Key [16]byte

// Name is a socket's; zeros: there is none.
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
