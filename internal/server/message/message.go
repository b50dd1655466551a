// Package message is what trainers and parameter servers say to each other, as
// frames of package wire over a transport.Link. All integers are little-endian.
//
//	trainer                         server
//	Hello                    ->
//	                         <-     NeedSchema, if it has none yet
//	Schema                   ->
//	                         <-     Welcome, or Failure
//	PullRows, PullDense      ->                         numbered by the trainer
//	                         <-     Rows, Values, Failed     in any order
//	SetDense, PushRows,
//	PushDense, Clock, Leave  ->                         numbered 1, 2, 3, … by session
//	                         <-     Ack                      of all up to a number
//	Meet                     ->                         numbered by the trainer
//	                         <-     Met                      when all have come
//	Met                      ->                         what a new server may not know
//	Heartbeat                <->    Heartbeat           where nothing else is said
//	Goodbye                  <->    Goodbye, Failure    the last one
//
// From PullRows to Met a payload begins with a [Head] of 32 bytes. Behind it come
// the keys, 8 bytes each, and then the values, as their [Code] stores them. Where a table
// wants counts with the gradients of rows, they come before these, as float32 whatever the code. With the
// frame's own header of 32 bytes the values of an answer begin a multiple of 64 bytes
// from the frame's start, so that a server can gather rows of whole cache lines
// straight into what it sends.
//
// A length is checked twice before memory is made for it: that of the frame against
// the longest of its type, and then against the very length that its head implies.
package message

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/internal/wire"
)

// Protocol is the version of all layouts of this package.
const Protocol = 6

// The types of frames.
const (
	TypeHello      wire.Type = wire.FirstFree + iota // who connects; a Hello
	TypeSchema                                       // the schema as JSON, for a server that asked for it
	TypeWelcome                                      // a Welcome
	TypeNeedSchema                                   // nothing
	TypeFailure                                      // the connection is of no use, now and later; a Failure
	TypeHeartbeat                                    // nothing: a sign of life
	TypeGoodbye                                      // the last frame of who leaves in good order; a text

	TypePullRows  // keys
	TypePullDense // nothing
	TypeSetDense  // values: the first of an array
	TypePushRows  // keys, counts where the table wants them, and gradients
	TypePushDense // values: gradients
	TypeClock     // nothing
	TypeLeave     // nothing

	TypeRows   // values: the answer to PullRows, with its head
	TypeValues // values: the answer to PullDense, with its head
	TypeFailed // a text: the answer to a pull that failed, with its head
	TypeAck    // nothing: all changes up to the head's number are safe

	TypeGather   // bytes that a trainer brings to the meeting that is the head's step
	TypeGathered // Parts: what all have brought to it; from a trainer, how its last meeting ended

	TypeSave  // nothing: the server's part of a checkpoint of the whole job
	TypeSaved // nothing: the answer, with its head
)

var typeNames = map[wire.Type]string{
	TypeHello: "hello", TypeSchema: "schema", TypeWelcome: "welcome", TypeNeedSchema: "need schema",
	TypeFailure: "failure", TypeHeartbeat: "heartbeat", TypeGoodbye: "goodbye",
	TypePullRows: "pull of rows", TypePullDense: "pull of an array", TypeSetDense: "first values of an array",
	TypePushRows: "push of rows", TypePushDense: "push of an array", TypeClock: "clock", TypeLeave: "leave",
	TypeRows: "rows", TypeValues: "values", TypeFailed: "failed", TypeAck: "acknowledgement",
	TypeGather: "meeting", TypeGathered: "end of a meeting", TypeSave: "checkpoint of the job", TypeSaved: "number of a checkpoint",
}

// Name is a type's name in errors.
func Name(t wire.Type) string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return t.String()
}

// Sequenced tells whether frames of a type change a server's state, so that they
// are numbered by session, applied in order and exactly once, and acknowledged.
func Sequenced(t wire.Type) bool { return t >= TypeSetDense && t <= TypeLeave }

// headed tells whether the payload of a type begins with a Head.
func headed(t wire.Type) bool { return t >= TypePullRows && t <= TypeSaved }

// Side is an end of a connection.
type Side int

// The two ends.
const (
	Trainer Side = iota
	Server
)

// String is "trainer" or "server".
func (s Side) String() string {
	if s == Trainer {
		return "trainer"
	}
	return "server"
}

// sends tells whether a side may send a type.
func (s Side) sends(t wire.Type) bool {
	switch {
	case t == TypeHeartbeat || t == TypeGoodbye || t == TypeGathered:
		return true
	case t == TypeHello || t == TypeSchema || t >= TypePullRows && t <= TypeLeave || t == TypeGather || t == TypeSave:
		return s == Trainer
	}
	return s == Server && (t >= TypeWelcome && t <= TypeFailure || t >= TypeRows && t <= TypeAck || t == TypeSaved)
}

const (
	// HeadSize is the length of a Head in bytes.
	HeadSize = 32
	// Front is the length of a frame before its keys or values.
	Front = wire.HeaderSize + HeadSize
	// KeySize is the length of a key in bytes.
	KeySize = 8
	// MaxText is the longest text of a failure or goodbye in bytes.
	MaxText = 1024
)

// Head says what a message is about. As it is sent:
//
//	offset bytes
//	0      8     Number
//	8      8     Step
//	16     8     At
//	24     4     Count
//	28     2     Table
//	30     1     Code
//	31     1     0
//
// What a type has no use for is zero.
type Head struct {
	Number uint64 // of the request, or of the change in its session
	Step   uint64 // of Meet and Met, which meeting; of Save and Saved, that of the run
	At     uint64 // the first value's place in its array; of Clock, the bits of the rate, a float64; of rows pulled, Peek, or twice the number of the oldest pull without an answer; of Rows, Peek or a step that all trainers had clocked before they were read; of Save, the oldest step to be kept; of Saved, the checkpoint's number
	Count  int    // keys; of arrays, values; of Failed, Meet and Met, bytes
	Table  int    // or array, by its place in the schema
	Code   Code   // of the values, or in which they shall come
}

// Peek, as the At of a pull of rows and of its answer, asks for rows as they are: none are made
// and nothing is counted.
const Peek = 1

// ErrMalformed: what came is no message, or not one that may come.
var ErrMalformed = errors.New("malformed")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}

// PutHead writes h to b. Its numbers must fit.
func PutHead(b *[HeadSize]byte, h Head) {
	le := binary.LittleEndian
	le.PutUint64(b[0:], h.Number)
	le.PutUint64(b[8:], h.Step)
	le.PutUint64(b[16:], h.At)
	le.PutUint32(b[24:], uint32(h.Count))
	le.PutUint16(b[28:], uint16(h.Table))
	b[30], b[31] = byte(h.Code), 0
}

// ParseHead reads what PutHead wrote. What it means is for [Limits.Check].
func ParseHead(b *[HeadSize]byte) (Head, error) {
	le := binary.LittleEndian
	if b[31] != 0 {
		return Head{}, malformed("a head that ends with %d", b[31])
	}
	return Head{
		Number: le.Uint64(b[0:]), Step: le.Uint64(b[8:]), At: le.Uint64(b[16:]),
		Count: int(le.Uint32(b[24:])), Table: int(le.Uint16(b[28:])), Code: Code(b[30]),
	}, nil
}

// PutFront writes the frame's header and h to the first Front bytes of a frame that
// is len(frame) bytes long.
func PutFront(frame []byte, t wire.Type, h Head) error {
	if err := wire.PutHeader((*[wire.HeaderSize]byte)(frame), wire.Header{Type: t, Length: len(frame) - wire.HeaderSize}); err != nil {
		return err
	}
	PutHead((*[HeadSize]byte)(frame[wire.HeaderSize:]), h)
	return nil
}

// AppendFrame appends a frame with a payload that has no head.
func AppendFrame(b []byte, t wire.Type, payload []byte) ([]byte, error) {
	var head [wire.HeaderSize]byte
	if err := wire.PutHeader(&head, wire.Header{Type: t, Length: len(payload)}); err != nil {
		return b, err
	}
	return append(append(b, head[:]...), payload...), nil
}
