package tensornames

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// naivePlaces is Match and apply for one value at a time: it looks for the place with the
// same names.
func naivePlaces(was, now [][]Label, old, shape []int, values, own []float32) []float32 {
	out := slices.Clone(own)
	index := func(shape []int, visit func(i int, at []int)) {
		for i := range volumeOf(shape) {
			at, rest := make([]int, len(shape)), i
			for k := len(shape) - 1; k >= 0; k-- {
				at[k], rest = rest%shape[k], rest/shape[k]
			}
			visit(i, at)
		}
	}
	index(shape, func(i int, at []int) {
		fresh := 0 // axes along which the place has a name that the old tensor has not
		for k := range at {
			if now[k] != nil && !slices.Contains(was[k], now[k][at[k]]) {
				fresh++
			}
		}
		if fresh > 0 && fresh < len(at) {
			out[i] = 0
		}
		index(old, func(j int, before []int) {
			for k := range at {
				if now[k] == nil && at[k] != before[k] || now[k] != nil && now[k][at[k]] != was[k][before[k]] {
					return
				}
			}
			out[i] = values[j]
		})
	})
	return out
}

func volumeOf(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// A tensor is mapped as by a search for each of its values alone, whatever names were added,
// removed or moved.
func TestMatchAgreesWithSearch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	draw := func(n int) (out []Label) {
		for _, i := range r.Perm(9)[:n] {
			out = append(out, Label{Kind: ofColumn, Name: fmt.Sprint(i / 2), At: i % 2})
		}
		return out
	}
	for trial := range 300 {
		var was, now [][]Label
		var old, shape []int
		for range 1 + r.IntN(3) {
			a, b := 1+r.IntN(5), 1+r.IntN(5)
			x, y := draw(a), draw(b)
			if r.IntN(3) == 0 {
				b, x, y = a, nil, nil
			}
			was, now, old, shape = append(was, x), append(now, y), append(old, a), append(shape, b)
		}
		values, own := make([]float32, volumeOf(old)), make([]float32, volumeOf(shape))
		for i := range values {
			values[i] = float32(i)
		}
		for i := range own {
			own[i] = -float32(i + 1)
		}
		m, ok := Match(was, now, old, shape)
		if !ok {
			t.Fatalf("trial %d: %v and %v do not match", trial, old, shape)
		}
		got := slices.Clone(own)
		m.Apply(got, values)
		if want := naivePlaces(was, now, old, shape, values, own); !slices.Equal(got, want) {
			t.Fatalf("trial %d: %v to %v: %v, want %v", trial, old, shape, got, want)
		}
		if same := slices.Equal(got, values) && slices.Equal(old, shape); same == m.Moves() {
			t.Fatalf("trial %d: moves %v, but the values are %v of %v", trial, m.Moves(), got, values)
		}
	}
	if _, ok := Match([][]Label{nil}, [][]Label{nil}, []int{3}, []int{4}); ok {
		t.Error("an axis without names has another size")
	}
	if _, ok := Match([][]Label{{{Name: "a"}, {Name: "a"}}}, [][]Label{{{Name: "a"}}}, []int{2}, []int{1}); ok {
		t.Error("two places have one name")
	}
}
