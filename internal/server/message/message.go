// Package message defines the messages between trainers and parameter servers, as frames of package
// wire over a transport.Link. All integers are little-endian.
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
//	Gather                   ->                         numbered by the trainer
//	                         <-     Gathered                 when all have sent a Gather
//	Gathered                 ->                         for a restarted server
//	Save                     ->                         numbered by the trainer
//	                         <-     Saved, Failed            when the part is written
//	Heartbeat                <->    Heartbeat           when idle
//	Goodbye                  <->    Goodbye, Failure    the last frame
//
// From PullRows to Saved a payload begins with a [Head] of 32 bytes. The keys follow, 8 bytes
// each, and then the values, encoded by their [Code], in a push of an array possibly [Coded]. If
// a table needs counts with the gradients of rows, the counts precede the gradients, always as
// float32. With the frame's header of 32 bytes the values of an answer start at a multiple of 64
// bytes in the frame, so that a server can gather whole cache lines directly into it.
//
// A length is checked twice before memory is allocated: the frame's length against the maximum of
// the type, and then against the exact length for the head.
package message

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/internal/wire"
)

// Protocol is the version of all encodings of this package.
const Protocol = 7

// Types of frames.
const (
	TypeHello      wire.Type = wire.FirstFree + iota // Hello of the connecting trainer
	TypeSchema                                       // schema as JSON, requested by the server
	TypeWelcome                                      // Welcome
	TypeNeedSchema                                   // request for the schema, empty
	TypeFailure                                      // Failure: permanent end
	TypeHeartbeat                                    // heartbeat, empty
	TypeGoodbye                                      // last frame of a normal end, with a text

	TypePullRows  // keys
	TypePullDense // empty
	TypeSetDense  // initial values of an array
	TypePushRows  // keys, counts if the table needs them, and gradients
	TypePushDense // gradients
	TypeClock     // empty
	TypeLeave     // empty

	TypeRows   // values: the answer to PullRows, with its head
	TypeValues // values: the answer to PullDense, with its head
	TypeFailed // text: the answer to a failed pull, with its head
	TypeAck    // empty: all changes up to the head's number are durable

	TypeGather   // blob of a trainer in the gather of number Step
	TypeGathered // Parts of a gather; from a trainer, those of its last gather

	TypeSave  // empty: request for the server's part of a job checkpoint
	TypeSaved // empty: the answer, with its head
)

var typeNames = map[wire.Type]string{
	TypeHello: "hello", TypeSchema: "schema", TypeWelcome: "welcome", TypeNeedSchema: "need schema",
	TypeFailure: "failure", TypeHeartbeat: "heartbeat", TypeGoodbye: "goodbye",
	TypePullRows: "pull of rows", TypePullDense: "pull of an array", TypeSetDense: "first values of an array",
	TypePushRows: "push of rows", TypePushDense: "push of an array", TypeClock: "clock", TypeLeave: "leave",
	TypeRows: "rows", TypeValues: "values", TypeFailed: "failed", TypeAck: "acknowledgement",
	TypeGather: "meeting", TypeGathered: "end of a meeting", TypeSave: "checkpoint of the job", TypeSaved: "number of a checkpoint",
}

// Name returns a type's name for errors.
func Name(t wire.Type) string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return t.String()
}

// Sequenced reports whether frames of a type change a server's state: such frames are numbered by
// session, applied in order and exactly once, and acknowledged.
func Sequenced(t wire.Type) bool { return t >= TypeSetDense && t <= TypeLeave }

// headed reports whether the payload of a type begins with a Head.
func headed(t wire.Type) bool { return t >= TypePullRows && t <= TypeSaved }

// Side is an end of a connection.
type Side int

// The two ends.
const (
	Trainer Side = iota
	Server
)

// String returns "trainer" or "server".
func (s Side) String() string {
	if s == Trainer {
		return "trainer"
	}
	return "server"
}

// sends reports whether a side may send a type.
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
	// HeadSize is the size of a Head in bytes.
	HeadSize = 32
	// Front is the size of a frame before its keys or values.
	Front = wire.HeaderSize + HeadSize
	// KeySize is the size of a key in bytes.
	KeySize = 8
	// MaxText is the maximum size of a text in bytes.
	MaxText = 1024
)

// Head describes a message. Its encoding:
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
// Unused fields are zero. At depends on the type. For arrays At is the index of the first value, in
// a Clock the bits of the rate as a float64. In pulls of rows At is Peek, or twice the number of
// the oldest unanswered pull; in Rows Peek, or a step that all trainers had clocked before the
// read. In a Save At is the oldest step to keep, in a Saved the checkpoint's number.
type Head struct {
	Number uint64 // number of the request, or of the change in its session
	Step   uint64 // step of the run; in Gather and Gathered the number of the gather
	At     uint64 // see above
	Count  int    // keys, values of an array, or bytes of a text or blob
	Table  int    // index of the table or array in the schema
	Code   Code   // encoding of the values, sent or requested
}

// Peek, as the At of a pull of rows and its answer, creates and counts no rows.
const Peek = 1

// ErrMalformed is the error of invalid or unexpected data.
var ErrMalformed = errors.New("malformed")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}

// PutHead encodes h into b. The fields must fit.
func PutHead(b *[HeadSize]byte, h Head) {
	le := binary.LittleEndian
	le.PutUint64(b[0:], h.Number)
	le.PutUint64(b[8:], h.Step)
	le.PutUint64(b[16:], h.At)
	le.PutUint32(b[24:], uint32(h.Count))
	le.PutUint16(b[28:], uint16(h.Table))
	b[30], b[31] = byte(h.Code), 0
}

// ParseHead decodes PutHead's encoding. [Limits.Check] checks the fields.
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

// PutFront writes the frame's header and h to the first Front bytes of a frame.
func PutFront(frame []byte, t wire.Type, h Head) error {
	if err := wire.PutHeader((*[wire.HeaderSize]byte)(frame), wire.Header{Type: t, Length: len(frame) - wire.HeaderSize}); err != nil {
		return err
	}
	PutHead((*[HeadSize]byte)(frame[wire.HeaderSize:]), h)
	return nil
}

// AppendFrame appends a frame with the given payload, and without a Head.
func AppendFrame(b []byte, t wire.Type, payload []byte) ([]byte, error) {
	var head [wire.HeaderSize]byte
	if err := wire.PutHeader(&head, wire.Header{Type: t, Length: len(payload)}); err != nil {
		return b, err
	}
	return append(append(b, head[:]...), payload...), nil
}
