package compress

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/simd"
)

// Sparse is a vector of Len values as a list of entries: Value[i] at Index[i], indices ascending.
// All other values are zero.
type Sparse struct {
	Len   int
	Index []int32
	Value []float32
}

// MaxLen is the largest length of a vector: indices are int32.
const MaxLen = math.MaxInt32

// Reset removes all entries and sets the length to n. It keeps the memory.
func (s *Sparse) Reset(n int) {
	s.Len, s.Index, s.Value = n, s.Index[:0], s.Value[:0]
}

// Count is the number of entries.
func (s *Sparse) Count() int { return len(s.Index) }

// Density is the share of present entries, 0 for an empty vector.
func (s *Sparse) Density() float64 { return float64(len(s.Index)) / float64(max(s.Len, 1)) }

// Append adds an entry after the last.
func (s *Sparse) Append(index int, value float32) {
	s.Index, s.Value = append(s.Index, int32(index)), append(s.Value, value)
}

// AddTo adds the entries to dst, which has Len values.
func (s *Sparse) AddTo(dst []float32) {
	dst, value := dst[:s.Len], s.Value[:len(s.Index)]
	for i, at := range s.Index {
		dst[at] += value[i]
	}
}

func (s *Sparse) entries(start int) simd.Entries {
	return simd.Entries{Index: s.Index[start:], Value: s.Value[start:]}
}

// Reserve allocates space for n more entries.
func (s *Sparse) Reserve(n int) {
	have := len(s.Index)
	if cap(s.Index) >= have+n && cap(s.Value) >= have+n {
		return
	}
	if s.Index != nil { // because lengths differ a little from step to step
		n += (have + n) / 8
	}
	index, value := make([]int32, have, have+n), make([]float32, have, have+n)
	copy(index, s.Index)
	copy(value, s.Value)
	s.Index, s.Value = index, value
}

// Validate reports invalid vectors: indices that do not ascend or are outside, and unequal lengths.
func (s *Sparse) Validate() error {
	if len(s.Index) != len(s.Value) || s.Len < 0 || s.Len > MaxLen {
		return fmt.Errorf("sparse vector of length %d has %d indices and %d values", s.Len, len(s.Index), len(s.Value))
	}
	before, wrong := int32(-1), int32(0)
	for _, at := range s.Index { // first without a branch; the second loop finds the error's place
		wrong |= at | (at - before - 1)
		before = at
	}
	if wrong >= 0 && int(before) < s.Len {
		return nil
	}
	before = -1
	for i, at := range s.Index {
		if at <= before || int(at) >= s.Len {
			return fmt.Errorf("sparse vector of length %d: entry %d has index %d, after %d", s.Len, i, at, before)
		}
		before = at
	}
	return nil
}

// fill lists all Len entries, adding zeros.
func (s *Sparse) fill() {
	have := len(s.Index)
	s.Reserve(s.Len - have)
	s.Index, s.Value = s.Index[:s.Len], s.Value[:s.Len]
	from := have - 1 // backward, so that no entry moves to the front
	for to := s.Len - 1; to >= 0; to-- {
		v := float32(0)
		if from >= 0 && int(s.Index[from]) == to {
			v = s.Value[from]
			from--
		}
		s.Index[to], s.Value[to] = int32(to), v
	}
}

// nan returns the place in s of the first NaN from entry start on, or -1.
func (s *Sparse) nan(start int) int {
	if simd.Host().MaxMagnitude(s.Value[start:]) <= simd.InfMagnitude {
		return -1
	}
	for i, v := range s.Value[start:] {
		if simd.Magnitude(v) > simd.InfMagnitude {
			return start + i
		}
	}
	return -1
}
