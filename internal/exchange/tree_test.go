package exchange

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/ringo-ml/ringo/compress"
)

// A merge has the bits of adding both to zero, and no entry twice.
func TestMerge(t *testing.T) {
	onRanks(t, 1, Config{}, func(e *GroupReducer, _ int) error {
		rng := rand.New(rand.NewPCG(8, 8))
		for range 200 {
			n := 1 + rng.IntN(300)
			a, b := vector(rng, n, rng.IntN(n+1), 1, nil), vector(rng, n, rng.IntN(n+1), 2, nil)
			for _, s := range []*compress.Sparse{a, b} {
				for i := range s.Value {
					s.Value[i] += 0
				}
			}
			sum := e.merge(a, b)
			if err := sum.Validate(); err != nil {
				return err
			}
			if err := sameBits("sum", inOrder(n, []*compress.Sparse{sum}), inOrder(n, []*compress.Sparse{a, b})); err != nil {
				return err
			}
		}
		return nil
	})
}

// What a message holds is a vector that packs to the same message, or an error.
func FuzzUnpack(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0}, 5)
	f.Add([]byte{1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 128, 63}, 5)
	f.Add([]byte{1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 128, 63, 0, 0, 0, 0, 0, 0, 0, 0}, 4)
	f.Add([]byte{255, 255, 255, 127, 0, 0, 0, 0, 0, 0, 0, 0}, 5)
	f.Fuzz(func(t *testing.T, data []byte, n int) {
		entries := len(data) / 8
		if len(data) < 4 || n < 0 {
			return
		}
		frame := make([]int32, 1+2*entries)
		for i := range frame {
			if 4*i+4 <= len(data) {
				frame[i] = int32(binary.LittleEndian.Uint32(data[4*i:]))
			}
		}
		s, err := unpack(frame, n)
		if err != nil {
			return
		}
		var e GroupReducer
		again := e.pack(&s, entries)
		for i := range frame {
			if again[i] != frame[i] {
				t.Fatalf("word %d: %d became %d", i, frame[i], again[i])
			}
		}
	})
}
