package rows

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ringo-ml/ringo/optim"
)

// testRule is a rule with state parts, whose bits depend on the gradients' order:
// value j of a row moves by the scaled gradient and by what its state was.
type testRule struct{ widths []int }

func (testRule) Name() string    { return "test" }
func (testRule) Validate() error { return nil }

func (r testRule) Parts(int) (out []optim.RowPart) {
	for i, w := range r.widths {
		out = append(out, optim.RowPart{Name: fmt.Sprint("part", i), Width: w, Initial: float32(i) + 0.5})
	}
	return out
}

func (r testRule) UpdateRows(data []float32, state [][]float32, dim int, ids []int32, grads []float32, scale float32) {
	for i, id := range ids {
		w, g := data[int(id)*dim:][:dim], grads[i*dim:][:dim]
		sum := float32(0)
		for k, width := range r.widths {
			s := state[k][int(id)*width:][:width]
			for j := range s {
				s[j] = 0.5*s[j] + g[j%dim]
				sum += s[j]
			}
		}
		for j := range w {
			w[j] -= scale*g[j] + 0.25*sum
		}
	}
}

// adder adds scaled gradients: no order of updates changes sums of small integers.
var adder = testRule{}

func newTable(t testing.TB, cfg Config) *Table {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "t"
	}
	if cfg.Dim == 0 {
		cfg.Dim = 4
	}
	if cfg.Rule == nil {
		cfg.Rule = adder
	}
	if cfg.MaxRows == 0 {
		cfg.MaxRows = 1 << 17
	}
	tb, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tb.Close(); err != nil {
			t.Error(err)
		}
	})
	return tb
}

// drawKeys draws n different keys of a set that holds the extremes, runs of
// neighbours and keys that differ in upper bits only.
func drawKeys(r *rand.Rand, n int) []uint64 {
	seen := map[uint64]bool{}
	var out []uint64
	for len(out) < n {
		key := drawKey(r)
		if !seen[key] {
			seen[key] = true
			out = append(out, key)
		}
	}
	return out
}

func drawKey(r *rand.Rand) uint64 {
	x := r.Uint64N(400)
	switch r.IntN(3) {
	case 0:
		return x
	case 1:
		return ^x
	}
	return x << 48
}

func randomValues(r *rand.Rand, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(r.NormFloat64())
	}
	return out
}

func sequence(from uint64, n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = from + uint64(i)
	}
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// walkAll walks in pieces of about most rows.
func walkAll(t testing.TB, tb *Table, most int, visit func(*Row) Verdict) {
	t.Helper()
	var at Cursor
	for more := true; more; {
		var err error
		if at, more, err = tb.Walk(at, most, visit); err != nil {
			t.Fatal(err)
		}
	}
}
