package collectives

import (
	"bytes"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bytesview"
)

// The data of a benchmark are small integers, with exact sums and products in every type and order,
// so that results are compared bit by bit. The data repeat after period values and differ between
// ranks and successive calls (the salt), to detect stale data and data of other ranks.
const (
	period   = 5
	blockLen = period * 1024 // maximum length of one copy
	salts    = 2
	// summed is the maximum number of ranks with non-neutral operands, for exact sums in bfloat16.
	summed = 51
)

func operandOf(op collective.ReduceOp, rank, i, salt int) int64 {
	v := (i + 2*rank + salt) % period
	switch {
	case op == collective.Prod && v == 0 && rank < 8:
		return 2
	case op == collective.Prod:
		return 1
	case rank >= summed && op != collective.Min && op != collective.Max:
		return 0
	}
	return int64(v + 1)
}

// reducedOf returns value i of the reduction over all ranks, before a mean's division.
func reducedOf(op collective.ReduceOp, ranks, i, salt int) int64 {
	out := operandOf(op, 0, i, salt)
	for r := 1; r < ranks; r++ {
		v := operandOf(op, r, i, salt)
		switch op {
		case collective.Min:
			out = min(out, v)
		case collective.Max:
			out = max(out, v)
		case collective.Prod:
			out *= v
		default:
			out += v
		}
	}
	return out
}

// number converts integers to values of T.
type number[T collective.Number] struct {
	of   func(int64) T
	mean func(sum int64, n int) T // nil: T has no mean
}

// block is the values of a salt, repeated.
type block[T collective.Number] []T

func newBlock[T collective.Number](value func(i int) T) block[T] {
	b := make(block[T], blockLen+period)
	for i := range b {
		b[i] = value(i % period)
	}
	return b
}

// operandBlocks returns a rank's operands by salt.
func operandBlocks[T collective.Number](as number[T], op collective.ReduceOp, rank int) (out [salts]block[T]) {
	for salt := range out {
		out[salt] = newBlock(func(i int) T { return as.of(operandOf(op, rank, i, salt)) })
	}
	return out
}

// reducedBlocks returns the reductions by salt.
func reducedBlocks[T collective.Number](as number[T], op collective.ReduceOp, ranks int) (out [salts]block[T]) {
	for salt := range out {
		out[salt] = newBlock(func(i int) T {
			v := reducedOf(op, ranks, i, salt)
			if op == collective.Mean {
				return as.mean(v, ranks)
			}
			return as.of(v)
		})
	}
	return out
}

func (b block[T]) fill(x []T, first int) {
	from := b[first%period:][:blockLen]
	for len(x) > blockLen {
		copy(x, from)
		x = x[blockLen:]
	}
	copy(x, from)
}

// wrong counts the values of x that differ from b's from index first on; at is the first one in x.
func (b block[T]) wrong(x []T, first int) (count, at int) {
	from := b[first%period:][:blockLen]
	for done := 0; done < len(x); done += blockLen {
		part := x[done:min(len(x), done+blockLen)]
		if bytes.Equal(bytesview.Bytes(part), bytesview.Bytes(from[:len(part)])) {
			continue
		}
		for i := range part {
			if !bytes.Equal(bytesview.Bytes(part[i:i+1]), bytesview.Bytes(from[i:i+1])) {
				if count == 0 {
					at = done + i
				}
				count++
			}
		}
	}
	return count, at
}
