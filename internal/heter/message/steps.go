package message

import (
	"math"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// End ends a trainer's step at a heter-trainer. All heter-trainers receive it, even without
// micro-batches of the step: a step ends when all trainers have ended it everywhere, in the same
// Attempt and with the same Members. Its encoding:
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
	Count uint64  // micro-batches sent on this connection
	Rate  float64 // learning rate
	// Attempt is 1, plus the number of repetitions after losses of heter-trainers.
	Attempt int
	// Open makes earlier attempts void. Micro-batches of lost heter-trainers follow, and then the
	// final End.
	Open bool
	// Members has for each heter-trainer, by number, the incarnation (Welcome.Incarnation)
	// connected to the trainer; 0: lost.
	Members []uint64
}

const endSize = 32

// MaxEnd is the maximum End in bytes.
const MaxEnd = endSize + 8*maxTrainers

// Append appends e to b.
func (e End) Append(b []byte) []byte {
	b = le.AppendUint64(b, e.Step)
	b = le.AppendUint64(b, e.Count)
	b = le.AppendUint64(b, math.Float64bits(e.Rate))
	b = le.AppendUint32(b, uint32(e.Attempt))
	return appendLives(le.AppendUint32(b, uint32(asNumber(e.Open))), e.Members)
}

// ParseEnd decodes Append's encoding.
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

const maxAttempts = 1 << 10

// RetryEnd asks trainers to repeat the end of a step in another attempt, because a heter-trainer
// was lost before all had agreed. Its encoding:
//
//	offset bytes
//	0      8     Step
//	8      4     Attempt
//	12     8 each  Lost
type RetryEnd struct {
	Step    uint64
	Attempt int // minimum attempt of the next End
	// Lost are the incarnations known to be lost; perhaps none: trainers detect losses themselves.
	Lost []uint64
}

const againSize = 12

// MaxAgain is the maximum RetryEnd in bytes.
const MaxAgain = againSize + 8*maxTrainers

// Append appends a to b.
func (a RetryEnd) Append(b []byte) []byte {
	b = le.AppendUint64(b, a.Step)
	return appendLives(le.AppendUint32(b, uint32(a.Attempt)), a.Lost)
}

// ParseAgain decodes Append's encoding.
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

// CommitSize is the size of a Commit.
const CommitSize = 8

// Commit is the number of a step with updated parameters, which may not be undone.
type Commit uint64

// Append appends c to b.
func (c Commit) Append(b []byte) []byte { return le.AppendUint64(b, uint64(c)) }

// ParseCommit decodes Append's encoding.
func ParseCommit(b []byte) (Commit, error) {
	if len(b) != CommitSize || le.Uint64(b) == 0 {
		return 0, Malformed("a commit of % x, want the number of a step", b)
	}
	return Commit(le.Uint64(b)), nil
}

// Ask requests Count values of the stage's state from Lo, parameters first, after all steps before
// Step. The answer Values is the same, followed by the values as float32. A Put is like Values, and
// its answer like an Ask. Its encoding:
//
//	offset bytes
//	0      8     Step
//	8      8     Lo
//	16     8     Count
type Ask struct {
	Step      uint64
	Lo, Count int
}

// AskSize is the size of an Ask.
const AskSize = 24

// Append appends a to b.
func (a Ask) Append(b []byte) []byte {
	for _, v := range []uint64{a.Step, uint64(a.Lo), uint64(a.Count)} {
		b = le.AppendUint64(b, v)
	}
	return b
}

// ParseAsk decodes Append's encoding, for a state of the given number of values.
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

// ParsePiece decodes the head of a Put or Values of the given length, for a state of the given
// number of values.
func ParsePiece(head []byte, length, values int) (Ask, error) {
	a, err := ParseAsk(head, values)
	if err == nil && length != AskSize+4*a.Count {
		err = Malformed("%d values in %d bytes", a.Count, length)
	}
	return a, err
}
