// Package message defines the messages between trainers and heter-trainers, as frames of package
// wire over a transport.Link. All integers are little-endian.
//
//	trainer                  heter-trainer
//	Hello             ->
//	                  <-     Welcome, or Failure
//	Micro             ->                          numbered 1, 2, 3, … by connection
//	                  <-     Done                 in any order, one per Micro
//	Placed            ->                          a Micro in shared memory
//	                  <-     SharedResult         instead of a Done
//	End               ->                          of a step, after all Done
//	                  <-     Commit               the parameters are updated
//	                  <-     RetryEnd             repeat the end, with the remaining members
//	Ask               ->
//	                  <-     Values               of the stage's parameters and optimizer state
//	Put               ->                          initial values
//	                  <-     Taken
//	Heartbeat         <->    Heartbeat            when idle
//	Where             ->                          of another heter-trainer, instead of a Hello
//	                  <-     Here                 the last frame of this connection
//	Goodbye           ->                          the last frame of a normal end
//	Failure           <->    Failure              the last frame after an error
//
// A Micro is a Head, the encoded tensors of the cut, the labels and the targets; a Done is a Head,
// the stage's output as float32, and the encoded gradients. Their lengths follow from the number of
// samples: a frame of another length, or with more samples than the Welcome allows, is rejected
// before memory is allocated.
//
// If the trainer has the stage's parameters (Hello.Stateless), it sends Puts with the parameters
// for the following Micros, all of them in pieces, without an answer. It may send the End after the
// last Micro of a step; the answer is the gradient sum of all Micros since the last End as Values,
// in pieces. Commit and Ask are not used. An empty Put means that the parameters are in the first
// slot of the trainer's memory (package internal/heter/sharedmem), constant while Micros are in
// flight. The heter-trainer may then write the sum to the last slot of its memory, and send empty
// Values: only an End allows this write, and the trainer sends the next End after it has read the
// sum.
package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/wire"
)

// protocol is the version of all encodings of this package.
const protocol = 11

// Types of frames.
const (
	TypeHello        wire.Type = wire.FirstFree + 64 + iota // Hello of the connecting trainer
	TypeWelcome                                             // limits of the connection
	TypeMicroBatch                                          // a micro-batch
	TypeDone                                                // results
	TypeEnd                                                 // end of a trainer's step
	TypeAsk                                                 // request for values of parameters
	TypeValues                                              // requested values
	TypeHeartbeat                                           // heartbeat, empty
	TypeGoodbye                                             // empty
	TypeFailure                                             // text: permanent end
	TypeCommit                                              // number of a step
	TypeAgain                                               // lost members
	TypePut                                                 // values
	TypeTaken                                               // values were stored
	TypeWhere                                               // name of a rendezvous
	TypeHere                                                // the first member's rendezvous.Endpoint, or empty
	TypePlaced                                              // a micro-batch in shared memory
	TypeSharedResult                                        // results in shared memory
)

var typeNames = map[wire.Type]string{
	TypeHello: "hello", TypeWelcome: "welcome", TypeMicroBatch: "micro-batch", TypeDone: "done", TypeEnd: "end of a step",
	TypeAsk: "ask", TypeValues: "values", TypeHeartbeat: "heartbeat", TypeGoodbye: "goodbye", TypeFailure: "failure",
	TypeCommit: "commit", TypeAgain: "again", TypePut: "put", TypeTaken: "taken", TypeWhere: "where", TypeHere: "here",
	TypePlaced: "placed micro-batch", TypeSharedResult: "placed done",
}

// Name returns a type's name for errors.
func Name(t wire.Type) string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return t.String()
}

// ErrMalformed is the error of invalid or unexpected data.
var ErrMalformed = errors.New("malformed")

// Malformed returns an error that wraps ErrMalformed.
func Malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}

const (
	// OtherPart starts the Failure of a heter-trainer with another stage than its first trainer.
	OtherPart = "this heter-trainer has another part of a model"
	// ReplacementPrefix starts a replacement's Failure to a trainer that expects the original.
	ReplacementPrefix = "this heter-trainer stands in for one that is lost"
	// MaxText is the maximum text of a Failure in bytes.
	MaxText = message.MaxText
	// MaxValues is the maximum number of values per Ask and Put.
	MaxValues = 1 << 20
	// MaxWhere is the maximum name of a rendezvous in bytes, and MaxHere the maximum Here.
	MaxWhere, MaxHere = 256, 4 << 10
	// maxTrainers is the maximum number of trainers, and of heter-trainers.
	maxTrainers = 1 << 12
)

var le = binary.LittleEndian

// Hello is the first message of a connection. Its encoding:
//
//	offset bytes
//	0      4     protocol
//	4      4     Trainer
//	8      4     Trainers
//	12     4     Index
//	16     4     Count
//	20     4     Code
//	24     4     Joining, 0 or 1
//	28     4     Stateless, 0 or 1
//	32     32    Hash
//	64           About
type Hello struct {
	Trainer, Trainers int // number of this trainer, and of all trainers
	Index, Count      int // number of the expected heter-trainer, and of all
	Code              message.Code
	// Joining reports that the trainer has lost the heter-trainer with this Index: the receiver is
	// a replacement, and gets the stage's state from other heter-trainers.
	Joining bool
	// Stateless reports that the trainer has the stage's parameters, and sends them.
	Stateless bool
	Hash      [32]byte // heter.Cut.Hash of the stage
	// About describes the model, such as the samples' shape: the first makes the stage, all are
	// equal.
	About []byte
}

const helloSize = 32 + 32

// MaxAbout is the maximum Hello.About in bytes.
const MaxAbout = 4 << 20

// MaxHello is the maximum Hello in bytes.
const MaxHello = helloSize + MaxAbout

// Append appends h to b.
func (h Hello) Append(b []byte) []byte {
	for _, v := range []int{protocol, h.Trainer, h.Trainers, h.Index, h.Count, int(h.Code), asNumber(h.Joining), asNumber(h.Stateless)} {
		b = le.AppendUint32(b, uint32(v))
	}
	return append(append(b, h.Hash[:]...), h.About...)
}

// ParseHello decodes Append's encoding.
func ParseHello(b []byte) (h Hello, err error) {
	if len(b) < helloSize || len(b) > MaxHello {
		return h, Malformed("a hello of %d bytes, want %d to %d", len(b), helloSize, MaxHello)
	}
	if v := le.Uint32(b); v != protocol {
		return h, Malformed("protocol %d, this end speaks %d: give all the same program", v, protocol)
	}
	at := func(i int) int { return int(le.Uint32(b[4*i:])) }
	h = Hello{Trainer: at(1), Trainers: at(2), Index: at(3), Count: at(4), Code: message.Code(at(5)), Joining: at(6) == 1, Stateless: at(7) == 1, Hash: [32]byte(b[32:]), About: b[helloSize:]}
	if h.Trainers < 1 || h.Trainers > maxTrainers || h.Trainer >= h.Trainers || h.Count < 1 || h.Count > maxTrainers || h.Index >= h.Count || at(5) > 255 || !h.Code.Valid() || at(6) > 1 || at(7) > 1 {
		return h, Malformed("a hello of trainer %d of %d to heter-trainer %d of %d, with values in code %d", h.Trainer, h.Trainers, h.Index, h.Count, at(5))
	}
	return h, nil
}

func asNumber(is bool) int {
	if is {
		return 1
	}
	return 0
}

// Welcome answers a Hello, with the heter-trainer's limits for this connection. Encoding:
//
//	offset bytes
//	0      4     Micros
//	4      4     Samples
//	8      4     Bytes
//	12     4     Values
//	16     4     Heartbeat in ms
//	20     4     Silence in ms
//	24     4     State
//	28     8     Incarnation
//	36     16    ShmSocket
//	52     16    Key
//	68     4     Start
//	72     4     Precision: 0: without BF16, 1: with BF16, 2: with BF16 and AMX
//	76     8     Precision.Times[0] in ns
//	84     8     Precision.Times[1] in ns
type Welcome struct {
	Micros  int // maximum micro-batches in flight
	Samples int // maximum per micro-batch
	Bytes   int // maximum bytes of micro-batches in flight, except a single one
	Values  int // length of the parameters' arena
	State   int // Values and the optimizer state: heter.Device.State
	// Incarnation is a random number of this process, never 0, to detect a replacement.
	Incarnation uint64
	// Heartbeat is the interval of heartbeats of each end, Silence the limit for a silent peer.
	Heartbeat, Silence time.Duration
	// ShmSocket is the name of a socket where a trainer of the same host exchanges shared memory,
	// with a Key: see package internal/heter/sharedmem. Zero: none.
	ShmSocket, Key [16]byte
	Start          heter.Start
	Precision      heter.Precision
}

const welcomeSize = 92

// Append appends w to b.
func (w Welcome) Append(b []byte) []byte {
	for _, v := range []int{w.Micros, w.Samples, w.Bytes, w.Values, int(w.Heartbeat.Milliseconds()), int(w.Silence.Milliseconds()), w.State} {
		b = le.AppendUint32(b, uint32(v))
	}
	b = le.AppendUint64(b, w.Incarnation)
	b = le.AppendUint32(append(append(b, w.ShmSocket[:]...), w.Key[:]...), uint32(w.Start))
	b = le.AppendUint32(b, uint32(asNumber(w.Precision.BF16)+asNumber(w.Precision.AMX)))
	return le.AppendUint64(le.AppendUint64(b, uint64(w.Precision.Times[0])), uint64(w.Precision.Times[1]))
}

// ParseWelcome decodes Append's encoding.
func ParseWelcome(b []byte) (w Welcome, err error) {
	if len(b) != welcomeSize {
		return w, Malformed("a welcome of %d bytes, want %d", len(b), welcomeSize)
	}
	at := func(i int) int { return int(le.Uint32(b[4*i:])) }
	ms := func(i int) time.Duration { return time.Duration(at(i)) * time.Millisecond }
	w = Welcome{Micros: at(0), Samples: at(1), Bytes: at(2), Values: at(3), Heartbeat: ms(4), Silence: ms(5), State: at(6), Incarnation: le.Uint64(b[28:]), ShmSocket: [16]byte(b[36:]), Key: [16]byte(b[52:]), Start: heter.Start(b[68])}
	w.Precision = heter.Precision{BF16: at(18) > 0, AMX: at(18) == 2, Times: [2]time.Duration{time.Duration(le.Uint64(b[76:])), time.Duration(le.Uint64(b[84:]))}}
	for i := range 7 {
		if at(i) < 1 || at(i) > math.MaxInt32 {
			return w, Malformed("a welcome with the number %d: want 1 to %d", at(i), math.MaxInt32)
		}
	}
	if w.State < w.Values || w.Incarnation == 0 {
		return w, Malformed("a welcome of life %d with %d values, and %d of these and the optimizer's", w.Incarnation, w.Values, w.State)
	}
	if at(17) > int(heter.StartOwn) {
		return w, Malformed("a welcome with source %d of first values", at(17))
	}
	if at(18) > 2 || min(w.Precision.Times[0], w.Precision.Times[1]) < 0 {
		return w, Malformed("a welcome with precision %d and times %v", at(18), w.Precision.Times)
	}
	if w.Silence < 2*w.Heartbeat {
		return w, Malformed("a welcome with heartbeats every %v and a silence of %v", w.Heartbeat, w.Silence)
	}
	return w, nil
}

// HeadSize is the size of a Head in bytes.
const HeadSize = 48

// maxIndex limits Head.Index: float32 numbers below are exact.
const maxIndex = 1 << 24

// Head is the start of a Micro or a Done. Unused fields are zero. Its encoding:
//
//	offset bytes
//	0      8     Number
//	8      8     Step
//	16     4     Samples
//	20     4     Seed, the bits of a float32
//	24     4     Loss, the bits of a float32
//	28     4     Terms
//	32     4     Correct
//	36     1     Eval, 0 or 1
//	37     1     BF16, 0 or 1
//	38     2     0
//	40     4     Index
//	44     4     0
type Head struct {
	Number  uint64 // number of the micro-batch on its connection
	Step    uint64 // step of a Micro, from 1
	Index   int    // number of a Micro in its trainer's step: see heter.MicroBatch
	Samples int
	Seed    float32 // seed of a Micro: see heter.MicroBatch
	Eval    bool    // micro-batch of an evaluation
	BF16    bool    // micro-batch in bfloat16: see heter.MicroBatch
	Loss    float32 // loss in a Done
	Terms   int
	Correct int
}

// Put encodes h into b.
func (h Head) Put(b []byte) {
	clear(b[:HeadSize])
	le.PutUint64(b[0:], h.Number)
	le.PutUint64(b[8:], h.Step)
	le.PutUint32(b[16:], uint32(h.Samples))
	le.PutUint32(b[20:], math.Float32bits(h.Seed))
	le.PutUint32(b[24:], math.Float32bits(h.Loss))
	le.PutUint32(b[28:], uint32(h.Terms))
	le.PutUint32(b[32:], uint32(h.Correct))
	b[36], b[37] = byte(asNumber(h.Eval)), byte(asNumber(h.BF16))
	le.PutUint32(b[40:], uint32(h.Index))
}

// ParseHead decodes Put's encoding.
func ParseHead(b []byte) (h Head, err error) {
	if len(b) < HeadSize {
		return h, Malformed("a head of %d bytes, want %d", len(b), HeadSize)
	}
	if b[36] > 1 || b[37] > 1 || b[38]|b[39]|b[44]|b[45]|b[46]|b[47] != 0 {
		return h, Malformed("a head that ends with % x", b[36:HeadSize])
	}
	h = Head{
		Number: le.Uint64(b[0:]), Step: le.Uint64(b[8:]), Samples: int(le.Uint32(b[16:])),
		Seed: math.Float32frombits(le.Uint32(b[20:])), Loss: math.Float32frombits(le.Uint32(b[24:])),
		Terms: int(le.Uint32(b[28:])), Correct: int(le.Uint32(b[32:])), Eval: b[36] == 1, BF16: b[37] == 1,
		Index: int(le.Uint32(b[40:])),
	}
	if h.Number == 0 || h.Samples < 1 || h.Index >= maxIndex {
		return h, Malformed("micro-batch %d of %d samples, with index %d: want a number and samples from 1 on, and an index below %d", h.Number, h.Samples, h.Index, maxIndex)
	}
	return h, nil
}

// Renumber changes the number of an encoded Micro.
func Renumber(b []byte, number uint64) { le.PutUint64(b, number) }
