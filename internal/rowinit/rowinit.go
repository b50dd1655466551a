// Package rowinit computes the initial weights of sparse tables' rows from the table's seed and
// name and the row's key alone. A row's initial values are the same in every process, order of
// creation and number of threads: a trainer's local table and the servers' shards agree.
package rowinit

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Spec names an initialiser, for files and messages. The zero value is zeros.
type Spec struct {
	// Name is "zeros" (or empty), "constant" or "uniform".
	Name string `json:"name,omitempty"`
	// Value is the constant, or the limit of values drawn from [-Value, Value).
	Value float64 `json:"value,omitempty"`
}

// Init is the initialiser.
func (s Spec) Init() (Init, error) {
	switch s.Name {
	case "", "zeros":
		if s.Value != 0 {
			return nil, fmt.Errorf("initial weights of zeros with a value of %s: want none, or constant or uniform", quantity.Exact(s.Value))
		}
		return Constant(0), nil
	case "constant", "uniform":
		v := float32(s.Value)
		if math.IsNaN(s.Value) || math.IsInf(float64(v), 0) {
			return nil, fmt.Errorf("initial weights %s of %s: want a finite float32", s.Name, quantity.Exact(s.Value))
		}
		if s.Name == "constant" {
			return Constant(v), nil
		}
		if v < 0 {
			return nil, fmt.Errorf("initial weights uniform up to %s: want a limit from 0", quantity.Exact(s.Value))
		}
		return Uniform(v), nil
	}
	return nil, fmt.Errorf("initial weights %q are not known: use zeros, constant or uniform", s.Name)
}

// Init writes a row's initial weights, from the stream alone. Many goroutines call an Init in
// parallel, often with locks held.
type Init func(dst []float32, stream uint64)

// Constant begins all weights with v.
func Constant(v float32) Init {
	return func(dst []float32, _ uint64) {
		for i := range dst {
			dst[i] = v
		}
	}
}

// Uniform draws weights from [-limit, limit), in 2^24 steps, by SplitMix64 (Steele, Lea and Flood
// 2014), a generator with only a counter as state.
func Uniform(limit float32) Init {
	return func(dst []float32, stream uint64) {
		for i := range dst {
			stream += golden
			u := float32(Mix(stream)>>40) * (1.0 / (1 << 23)) // exact, in [0, 2)
			dst[i] = (u - 1) * limit
		}
	}
}

// golden is 2^64 divided by the golden ratio, odd.
const golden = 0x9e3779b97f4a7c15

// Mix is the finaliser of SplitMix64 (Stafford's variant 13): one-to-one, with every result bit
// dependent on every bit of x.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Table is a table's part of streams.
func Table(seed uint64, name string) uint64 {
	h := Mix(seed + golden)
	for _, c := range []byte(name) {
		h = Mix(h ^ uint64(c) + golden)
	}
	return h
}

// Row is the stream of a key of a table.
func Row(table, key uint64) uint64 { return Mix(table ^ Mix(key+golden)) }
