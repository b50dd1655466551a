// Package message is what trainers and heter-trainers say to each other, as frames of package wire over a transport.Link. All
// integers are little-endian.
//
//	trainer                  heter-trainer
//	Hello             ->
//	                  <-     Welcome, or Failure
//	Micro             ->                          numbered 1, 2, 3, … by connection
//	                  <-     Done                 in any order, one for each Micro
//	Placed            ->                          a Micro that lies in memory that both have
//	                  <-     SharedResult         in place of a Done
//	End               ->                          of a step, when each of its Micros is Done
//	                  <-     Commit               the parameters have moved
//	                  <-     RetryEnd             the step's end is to be said again, with those who are there
//	Ask               ->
//	                  <-     Values               of the part's parameters, or of what its optimizer keeps
//	Put               ->                          values to begin with
//	                  <-     Taken
//	Heartbeat         <->    Heartbeat            where nothing else is said
//	Where             ->                          of another heter-trainer, in place of a Hello
//	                  <-     Here                 the last one of this connection
//	Goodbye           ->                          the last one of who leaves in good order
//	Failure           <->    Failure              the last one of who fails
//
// A Micro is a Head, the tensors that cross one after the other as their code stores them, the labels and the targets; Done is a Head,
// the part's output as float32, and the gradients that come back. How long they are follows from the number of samples: a frame of
// another length, or with more samples than the Welcome allows, is refused before memory is made for it.
//
// Where the trainer has the part's parameters (Hello.Stateless) it Puts those that the Micros
// behind them are to be computed with, all of them in pieces one after the other, of which none is
// Taken. It may say the End when the last Micro of a step was sent, and the answer to that are the
// Values of the sum of gradients of all Micros since the last End, in pieces as well. There is no
// Commit, and nothing to Ask. An empty Put says that they lie in the first slot of the trainer's
// memory (package internal/heter/sharedmem), where they stay as they are while Micros are under
// way. The heter-trainer may leave the sum in the last slot of its own then, and say so with empty
// Values: it writes there only for an End, and the trainer says the next one when it has read the
// sum.
package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/wire"
)

// protocol is the version of all layouts of this package.
const protocol = 8

// The types of frames.
const (
	TypeHello        wire.Type = wire.FirstFree + 64 + iota // who connects
	TypeWelcome                                             // what it may send
	TypeMicroBatch                                          // a micro-batch
	TypeDone                                                // its results
	TypeEnd                                                 // of a trainer's step
	TypeAsk                                                 // for values of parameters
	TypeValues                                              // these
	TypeHeartbeat                                           // nothing: a sign of life
	TypeGoodbye                                             // nothing
	TypeFailure                                             // a text: why the connection is of no use any more
	TypeCommit                                              // a step's number
	TypeAgain                                               // who is lost
	TypePut                                                 // values
	TypeTaken                                               // these are where they belong
	TypeWhere                                               // the name of a meeting
	TypeHere                                                // where its first member listens: a rendezvous.Endpoint; empty: it has not said so yet
	TypePlaced                                              // a micro-batch in shared memory
	TypeSharedResult                                        // its results, there
)

var typeNames = map[wire.Type]string{
	TypeHello: "hello", TypeWelcome: "welcome", TypeMicroBatch: "micro-batch", TypeDone: "done", TypeEnd: "end of a step",
	TypeAsk: "ask", TypeValues: "values", TypeHeartbeat: "heartbeat", TypeGoodbye: "goodbye", TypeFailure: "failure",
	TypeCommit: "commit", TypeAgain: "again", TypePut: "put", TypeTaken: "taken", TypeWhere: "where", TypeHere: "here",
	TypePlaced: "placed micro-batch", TypeSharedResult: "placed done",
}

// Name is a type's name in errors.
func Name(t wire.Type) string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return t.String()
}

// ErrMalformed: what came is no message, or not one that may come.
var ErrMalformed = errors.New("malformed")

// Malformed is an error around ErrMalformed.
func Malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}

const (
	// OtherPart begins the Failure of a heter-trainer that has another part than the first trainer that has come to it.
	OtherPart = "this heter-trainer has another part of a model"
	// ReplacementPrefix begins the Failure of a heter-trainer in the place of one that others have
	// lost, to a trainer that takes it for the first there.
	ReplacementPrefix = "this heter-trainer stands in for one that is lost"
	// MaxText is the longest text of a Failure in bytes.
	MaxText = message.MaxText
	// MaxValues is how many values one Ask may want, and one Put have.
	MaxValues = 1 << 20
	// MaxWhere is the longest name of a meeting in bytes, and MaxHere the longest notice.
	MaxWhere, MaxHere = 256, 4 << 10
	// maxTrainers bounds how many trainers, or heter-trainers, a job has.
	maxTrainers = 1 << 12
)

var le = binary.LittleEndian

// Hello is the first message of a connection. As it is sent:
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
	Trainer, Trainers int // which of how many connects
	Index, Count      int // whom it takes the other end for, of how many heter-trainers
	Code              message.Code
	// Joining says that the trainer has lost a heter-trainer of that Index: this one stands in for
	// it, and is given the part's state by others.
	Joining bool
	// Stateless says that the trainer has the part's parameters, and lends them.
	Stateless bool
	Hash      [32]byte // of the part: heter.Cut.Hash
	// About says what the model is built for, such as the shape of samples: the first trainer's is what the part is made by, and that of
	// others must be the same.
	About []byte
}

const helloSize = 32 + 32

// maxAbout is the longest Hello.About in bytes.
const maxAbout = 256 << 10

// MaxHello is the longest Hello in bytes.
const MaxHello = helloSize + maxAbout

// Append appends h to b.
func (h Hello) Append(b []byte) []byte {
	for _, v := range []int{protocol, h.Trainer, h.Trainers, h.Index, h.Count, int(h.Code), asNumber(h.Joining), asNumber(h.Stateless)} {
		b = le.AppendUint32(b, uint32(v))
	}
	return append(append(b, h.Hash[:]...), h.About...)
}

// ParseHello reads what Append wrote.
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

// Welcome is the answer to a Hello: what the heter-trainer will take on this connection. As it is sent:
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
type Welcome struct {
	Micros  int // most micro-batches under way on the connection
	Samples int // most of a micro-batch
	Bytes   int // most bytes of micro-batches under way, unless it is one
	Values  int // of the part's parameters, as they lie in their arena
	State   int // of these and behind them what the optimizer keeps: heter.Device.State in one piece
	// Incarnation is a number of this process alone, by which it is told from one that has had its
	// place before; never 0.
	Incarnation uint64
	// Heartbeat is how often each end shows that it lives, and Silence after which the other one is taken for dead.
	Heartbeat, Silence time.Duration
	// ShmSocket is the name of a socket where a trainer of the same host gets memory that both
	// have, with a Key: see package internal/heter/sharedmem. Zero: there is none.
	ShmSocket, Key [16]byte
}

const welcomeSize = 68

// Append appends w to b.
func (w Welcome) Append(b []byte) []byte {
	for _, v := range []int{w.Micros, w.Samples, w.Bytes, w.Values, int(w.Heartbeat.Milliseconds()), int(w.Silence.Milliseconds()), w.State} {
		b = le.AppendUint32(b, uint32(v))
	}
	b = le.AppendUint64(b, w.Incarnation)
	return append(append(b, w.ShmSocket[:]...), w.Key[:]...)
}

// ParseWelcome reads what Append wrote.
func ParseWelcome(b []byte) (w Welcome, err error) {
	if len(b) != welcomeSize {
		return w, Malformed("a welcome of %d bytes, want %d", len(b), welcomeSize)
	}
	at := func(i int) int { return int(le.Uint32(b[4*i:])) }
	ms := func(i int) time.Duration { return time.Duration(at(i)) * time.Millisecond }
	w = Welcome{Micros: at(0), Samples: at(1), Bytes: at(2), Values: at(3), Heartbeat: ms(4), Silence: ms(5), State: at(6), Incarnation: le.Uint64(b[28:]), ShmSocket: [16]byte(b[36:]), Key: [16]byte(b[52:])}
	for i := range 7 {
		if at(i) < 1 || at(i) > math.MaxInt32 {
			return w, Malformed("a welcome with the number %d: want 1 to %d", at(i), math.MaxInt32)
		}
	}
	if w.State < w.Values || w.Incarnation == 0 {
		return w, Malformed("a welcome of life %d with %d values, and %d of these and the optimizer's", w.Incarnation, w.Values, w.State)
	}
	if w.Silence < 2*w.Heartbeat {
		return w, Malformed("a welcome with heartbeats every %v and a silence of %v", w.Heartbeat, w.Silence)
	}
	return w, nil
}

// HeadSize is the length of what a Micro and a Done begin with.
const HeadSize = 40

// Head is what a Micro or a Done begins with. What it has no use for is zero. As it is sent:
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
//	37     3     0
type Head struct {
	Number  uint64 // of the micro-batch, on its connection
	Step    uint64 // of a Micro, from 1 on
	Samples int
	Seed    float32 // of a Micro: see heter.MicroBatch
	Eval    bool    // of a Micro
	Loss    float32 // of a Done
	Terms   int
	Correct int
}

// Put writes h to b.
func (h Head) Put(b []byte) {
	clear(b[:HeadSize])
	le.PutUint64(b[0:], h.Number)
	le.PutUint64(b[8:], h.Step)
	le.PutUint32(b[16:], uint32(h.Samples))
	le.PutUint32(b[20:], math.Float32bits(h.Seed))
	le.PutUint32(b[24:], math.Float32bits(h.Loss))
	le.PutUint32(b[28:], uint32(h.Terms))
	le.PutUint32(b[32:], uint32(h.Correct))
	if h.Eval {
		b[36] = 1
	}
}

// ParseHead reads what Put wrote.
func ParseHead(b []byte) (h Head, err error) {
	if len(b) < HeadSize {
		return h, Malformed("a head of %d bytes, want %d", len(b), HeadSize)
	}
	if b[36] > 1 || b[37]|b[38]|b[39] != 0 {
		return h, Malformed("a head that ends with % x", b[36:HeadSize])
	}
	h = Head{
		Number: le.Uint64(b[0:]), Step: le.Uint64(b[8:]), Samples: int(le.Uint32(b[16:])),
		Seed: math.Float32frombits(le.Uint32(b[20:])), Loss: math.Float32frombits(le.Uint32(b[24:])),
		Terms: int(le.Uint32(b[28:])), Correct: int(le.Uint32(b[32:])), Eval: b[36] == 1,
	}
	if h.Number == 0 || h.Samples < 1 {
		return h, Malformed("micro-batch %d of %d samples: want a number and samples from 1 on", h.Number, h.Samples)
	}
	return h, nil
}

// Renumber gives a Micro in b, as Layout.Micro wrote it, another number.
func Renumber(b []byte, number uint64) { le.PutUint64(b, number) }
