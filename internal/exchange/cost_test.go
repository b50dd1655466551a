package exchange

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/compress"
)

const volumeLen = 100_000

// volume is what the busiest of size ranks sends for a vector of which each has k
// entries at independent places, and the sum at most `most`, when borders are settled.
func volume(t *testing.T, algorithm string, size, k, most int) int {
	sent := make([]int64, size)
	onRanks(t, size, Config{Algorithm: algorithm}, func(e *GroupReducer, rank int) error {
		rng := rand.New(rand.NewPCG(uint64(rank), uint64(k)))
		op := &Request{X: make([]float32, volumeLen), Sparse: &compress.Sparse{}, MaxEntries: most}
		for range 2 {
			op.Sparse.Reset(volumeLen)
			for _, at := range places(rng, volumeLen, k) {
				op.Sparse.Append(int(at), float32(rng.NormFloat64()))
			}
			if err := do(e, op); err != nil {
				return err
			}
		}
		sent[rank] = op.Sent.Bytes
		return nil
	})
	return int(slices.Max(sent))
}

// What is sent is what the formulas say, within 3 %, and docs/costs.md shows both;
// where it does not, the failing test prints the table that it must have.
func TestVolume(t *testing.T) {
	if raceDetector {
		t.Skip("bytes do not depend on timing")
	}
	var b strings.Builder
	b.WriteString("| N | density | chosen | allgather | split | split, at most k | dense |\n|---|---|---|---|---|---|---|\n")
	for _, density := range []float64{0.01, 0.05} {
		for _, size := range []int{2, 4, 8, 16, 64, 200} {
			k := int(density * volumeLen)
			s := even(size, volumeLen, k)
			fmt.Fprintf(&b, "| %d | %v | %s |", size, density, Choose(s))
			for i, algorithm := range []string{AllGather, Split, Split, Dense} {
				if s.Most = 0; i == 2 {
					s.Most = k
				}
				want := s.Cost(algorithm).Bytes + 8*frameWords*(size-1)                                  // the gathering of the frames comes first
				if algorithm == AllGather && s.Entries > s.Len || algorithm == Dense && density > 0.01 { // the same as before
					fmt.Fprintf(&b, " (%s) |", kilobytes(want))
					continue
				}
				got := volume(t, algorithm, size, k, s.Most)
				if math.Abs(float64(got-want)) > 0.03*float64(want) {
					t.Errorf("%s over %d ranks at density %v, at most %d: %d bytes, the formula says %d", algorithm, size, density, s.Most, got, want)
				}
				fmt.Fprintf(&b, " %s, %s |", kilobytes(got), kilobytes(want))
			}
			b.WriteString("\n")
		}
	}
	doc, err := os.ReadFile("../../docs/costs.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), b.String()) {
		t.Errorf("docs/costs.md differs from what is measured, its table must be\n%s", b.String())
	}
}

func kilobytes(n int) string { return fmt.Sprintf("%.1f", float64(n)/1000) }
