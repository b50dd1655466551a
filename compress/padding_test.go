package compress

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// paddedParams are parameters whose places are whole cache lines, one of them of a single
// value, one empty, and one without padding.
func paddedParams() (params []Param, n int) {
	for i, values := range []int{10, 1, 0, 32, 300, 17} {
		params = append(params, Param{Name: fmt.Sprintf("p%d", i), Lo: n, Hi: n + values})
		n += (values + 15) / 16 * 16
	}
	return params, n
}

func TestLayoutValues(t *testing.T) {
	params, n := paddedParams()
	l, err := NewLayout(params, n)
	if err != nil {
		t.Fatal(err)
	}
	for lo := range n + 1 {
		for hi := lo; hi <= n; hi++ {
			want := 0
			for i := lo; i < hi; i++ {
				if _, ok := l.At(i); ok {
					want++
				}
			}
			if got := l.Values(lo, hi); got != want {
				t.Fatalf("[%d, %d) has %d values, want %d", lo, hi, got, want)
			}
		}
	}
}

// Every selection sends of an arena with padding what it sends of the same values without:
// as many, the same ones, zeros among them, and keeps the same.
func TestPaddingIsNotCounted(t *testing.T) {
	params, n := paddedParams()
	var dense []Param
	var place []int // in the padded arena, of the values one after the other
	for _, p := range params {
		dense = append(dense, Param{Name: p.Name, Lo: len(place), Hi: len(place) + p.Hi - p.Lo})
		for i := p.Lo; i < p.Hi; i++ {
			place = append(place, i)
		}
	}
	for _, ratio := range []float64{0.01, 0.1, 1} {
		for _, stage := range []Selector{TopK{ratio}, DLGS{Ratio: ratio, Every: 3}, Sampled{Ratio: ratio}, GaussianK{ratio}} {
			for _, v := range vectors[2:8] { // sums of them are exact: GaussianK's do not depend on the order
				chain, err := NewChain(stage)
				if err != nil {
					t.Fatal(err)
				}
				padded, err := chain.Bind(params, n, nil)
				if err != nil {
					t.Fatal(err)
				}
				plain, err := chain.Bind(dense, len(place), nil)
				if err != nil {
					t.Fatal(err)
				}
				comparePadded(t, stage.Name()+", "+v.name, v, padded, plain, place)
			}
		}
	}
}

func comparePadded(t *testing.T, what string, v vector, padded, plain *Compressor, place []int) {
	t.Helper()
	r, n := rand.New(rand.NewPCG(81, 82)), padded.Layout().Len()
	for step := range 7 {
		grads, spread := zeros(len(place)), zeros(n)
		v.fill(r, grads)
		for i, at := range place {
			spread[at] = grads[i]
		}
		var want, got Sparse
		if err := plain.Select(&want, 0, grads); err != nil {
			t.Fatal(err)
		}
		if err := padded.Select(&got, 0, spread); err != nil {
			t.Fatal(err)
		}
		for i, at := range want.Index {
			want.Index[i] = int32(place[at])
		}
		if !slices.Equal(got.Index, want.Index) || !slices.EqualFunc(got.Value, want.Value, same) {
			t.Fatalf("%s, step %d: %d entries are sent at %v, without padding %d at %v", what, step, got.Count(), got.Index, want.Count(), want.Index)
		}
		kept, rest := zeros(n), padded.Residual(0, n)
		for i, at := range place {
			kept[at] = plain.Residual(0, len(place))[i]
		}
		if !slices.EqualFunc(rest, kept, same) {
			t.Fatalf("%s, step %d: kept %v, without padding %v", what, step, rest, kept)
		}
	}
}
