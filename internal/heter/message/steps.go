package message

import (
	"math"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// End ends a trainer's step at one heter-trainer. It goes to all of them, also to those that had
// none of the step's micro-batches: a step ends when all trainers have ended it everywhere, in one
// Attempt and with the same Members. As it is sent:
//
//	offset bytes
//	0      8     Step
//	8      8     Count
//	16     8     Rate, the bits of a float64
//	24     4     Attempt
//	28     4     Open, 0 or 1
//	32     8 each  Members
type End struct {
	Step  uint64
	Count uint64  // micro-batches that the trainer has sent on this connection so far
	Rate  float64 // by which the parameters move
	// Attempt is 1, and one more each time that the end is said again because a heter-trainer was lost.
	Attempt int
	// Open says that the attempts before are void, and that micro-batches of lost ones follow before this one is closed.
	Open bool
	// Members has for each heter-trainer, by number, the life (Welcome.Incarnation) that the
	// trainer is connected to; 0: it has lost it.
	Members []uint64
}

const endSize = 32

// MaxEnd is the longest End in bytes.
const MaxEnd = endSize + 8*maxTrainers

// Append appends e to b.
func (e End) Append(b []byte) []byte {
	b = le.AppendUint64(b, e.Step)
	b = le.AppendUint64(b, e.Count)
	b = le.AppendUint64(b, math.Float64bits(e.Rate))
	b = le.AppendUint32(b, uint32(e.Attempt))
	return appendLives(le.AppendUint32(b, uint32(asNumber(e.Open))), e.Members)
}

// ParseEnd reads what Append wrote.
func ParseEnd(b []byte) (e End, err error) {
	if len(b) < endSize || len(b) > MaxEnd {
		return e, Malformed("an end of a step of %d bytes, want %d to %d", len(b), endSize, MaxEnd)
	}
	open := le.Uint32(b[28:])
	e = End{Step: le.Uint64(b), Count: le.Uint64(b[8:]), Rate: math.Float64frombits(le.Uint64(b[16:])), Attempt: int(le.Uint32(b[24:])), Open: open == 1}
	if e.Step == 0 || !(e.Rate >= 0) || math.IsInf(e.Rate, 0) || e.Attempt < 1 || e.Attempt > maxAttempts || open > 1 {
		return e, Malformed("an end of step %d at the rate %s, attempt %d", e.Step, quantity.Exact(e.Rate), e.Attempt)
	}
	e.Members, err = parseLives(b[endSize:])
	return e, err
}

// maxAttempts bounds how often the end of one step is said.
const maxAttempts = 1 << 10

// RetryEnd asks trainers to say the end of a step again, in another attempt: a heter-trainer was
// lost before all had agreed. As it is sent:
//
//	offset bytes
//	0      8     Step
//	8      4     Attempt
//	12     8 each  Lost
type RetryEnd struct {
	Step    uint64
	Attempt int // of the End that is wanted, at least
	// Lost are the lives of those who are known to be lost; they may be none: trainers find out
	// themselves.
	Lost []uint64
}

const againSize = 12

// MaxAgain is the longest RetryEnd in bytes.
const MaxAgain = againSize + 8*maxTrainers

// Append appends a to b.
func (a RetryEnd) Append(b []byte) []byte {
	b = le.AppendUint64(b, a.Step)
	return appendLives(le.AppendUint32(b, uint32(a.Attempt)), a.Lost)
}

// ParseAgain reads what Append wrote.
func ParseAgain(b []byte) (a RetryEnd, err error) {
	if len(b) < againSize || len(b) > MaxAgain {
		return a, Malformed("an again of %d bytes, want %d to %d", len(b), againSize, MaxAgain)
	}
	a = RetryEnd{Step: le.Uint64(b), Attempt: int(le.Uint32(b[8:]))}
	if a.Step == 0 || a.Attempt < 1 || a.Attempt > maxAttempts {
		return a, Malformed("step %d again in attempt %d", a.Step, a.Attempt)
	}
	a.Lost, err = parseLives(b[againSize:])
	return a, err
}

func appendLives(b []byte, lives []uint64) []byte {
	for _, life := range lives {
		b = le.AppendUint64(b, life)
	}
	return b
}

func parseLives(b []byte) (lives []uint64, err error) {
	if len(b)%8 != 0 {
		return nil, Malformed("%d bytes of lives of heter-trainers", len(b))
	}
	for ; len(b) > 0; b = b[8:] {
		lives = append(lives, le.Uint64(b))
	}
	return lives, nil
}

// CommitSize is the length of a Commit.
const CommitSize = 8

// Commit says that the parameters have moved by a step, and may not be undone. It is the step's number.
type Commit uint64

// Append appends c to b.
func (c Commit) Append(b []byte) []byte { return le.AppendUint64(b, uint64(c)) }

// ParseCommit reads what Append wrote.
func ParseCommit(b []byte) (Commit, error) {
	if len(b) != CommitSize || le.Uint64(b) == 0 {
		return 0, Malformed("a commit of % x, want the number of a step", b)
	}
	return Commit(le.Uint64(b)), nil
}

// Ask asks for Count values of the part's state from Lo on, parameters first, as they are after all steps before Step. Values is the
// answer: the same, and the values as float32. A Put is like Values, and the answer like an Ask. As it is sent:
//
//	offset bytes
//	0      8     Step
//	8      8     Lo
//	16     8     Count
type Ask struct {
	Step      uint64
	Lo, Count int
}

// AskSize is the length of an Ask.
const AskSize = 24

// Append appends a to b.
func (a Ask) Append(b []byte) []byte {
	for _, v := range []uint64{a.Step, uint64(a.Lo), uint64(a.Count)} {
		b = le.AppendUint64(b, v)
	}
	return b
}

// ParseAsk reads what Append wrote, for a state of so many values.
func ParseAsk(b []byte, values int) (a Ask, err error) {
	if len(b) != AskSize {
		return a, Malformed("an ask of %d bytes, want %d", len(b), AskSize)
	}
	lo, n := le.Uint64(b[8:]), le.Uint64(b[16:])
	if n < 1 || n > MaxValues || lo > uint64(values) || n > uint64(values)-lo || le.Uint64(b) == 0 {
		return a, Malformed("an ask for %d values from %d on, of %d; at most %d at a time", n, lo, values, MaxValues)
	}
	return Ask{le.Uint64(b), int(lo), int(n)}, nil
}

// ParsePiece reads what a Put or Values of so many bytes begin with, of which each has as many values as it says, for a state of so many.
func ParsePiece(head []byte, length, values int) (Ask, error) {
	a, err := ParseAsk(head, values)
	if err == nil && length != AskSize+4*a.Count {
		err = Malformed("%d values in %d bytes", a.Count, length)
	}
	return a, err
}
