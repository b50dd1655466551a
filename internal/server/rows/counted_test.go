package rows

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/rowinit"
	"github.com/ringo-ml/ringo/optim"
)

// Rows of a rule that counts begin with the first of their weights alone, wherever they are looked at, and
// are extended by their own key's when their counts say so: many of a group at once, in slabs and in
// one piece.
func TestCountedRows(t *testing.T) {
	for _, shift := range []uint{0, 10} {
		const dim, n = 5, 30_000
		rule := optim.NewClickRows(0.1)
		tb := newTable(t, Config{Dim: dim, Rule: rule, Init: rowinit.Uniform(1), shift: shift})
		if tb.PushDim() != dim+2 {
			t.Fatalf("a push has %d values for a row", tb.PushDim())
		}
		r := rand.New(rand.NewPCG(1, 2))
		keys := sequence(1<<40, n)
		whole := func(key uint64) []float32 {
			row := make([]float32, dim)
			tb.cfg.Init(row, rowinit.Row(tb.stream, key))
			return row
		}
		check := func(what string, get func(dst []float32), want func(i int) []float32) {
			t.Helper()
			dst := make([]float32, n*dim)
			get(dst)
			for i := range keys {
				if got, want := dst[i*dim:][:dim], want(i); !slices.Equal(got, want) {
					t.Fatalf("shift %d, %s: row %d is %v, want %v", shift, what, i, got, want)
				}
			}
		}
		begun := func(i int) []float32 { return []float32{whole(keys[i])[0], 0, 0, 0, 0} }
		peek := func(dst []float32) {
			_, err := tb.Peek(keys, dst, nil)
			must(t, err)
		}
		check("without a row", peek, begun)
		check("initial", func(dst []float32) {
			for i, key := range keys {
				tb.Initial(key, dst[i*dim:][:dim])
			}
		}, begun)
		check("made", func(dst []float32) { must(t, tb.Pull(keys, dst)) }, begun)
		grads := make([]float32, n*(dim+2))
		for i := range keys {
			for j := range dim {
				grads[i*(dim+2)+j] = r.Float32()
			}
			grads[i*(dim+2)+dim] = float32(100 * (i % 2)) // half of them are shown often enough
		}
		var once Once
		must(t, tb.PushOnce(0, 1, keys, grads, 1, &once))
		must(t, tb.PushOnce(0, 1, keys, grads, 1, &once))
		rows := make([][]float32, n)
		for i, key := range keys {
			w := begun(i)
			state := [][]float32{{0}, {0, 0, 0, 0}, {-1}}
			g := grads[i*(dim+2):][:dim+2]
			if due := rule.UpdateCounted(w, state, dim, []int32{0}, g, 1, nil); len(due) == 1 {
				rule.Extend(w, state, dim, 0, whole(key))
			} else if i%2 == 1 {
				t.Fatal("a row that was shown 100 times is not extended")
			}
			rows[i] = slices.Clone(w)
		}
		check("extended", peek, func(i int) []float32 { return rows[i] })
		if err := tb.Push(keys[:1], make([]float32, dim), 1); err == nil {
			t.Error("a push without counts was accepted")
		}
		if raceDetector {
			continue
		}
		some, g := keys[:2000], grads[:2000*(dim+2)]
		if n := testing.AllocsPerRun(20, func() { must(t, tb.Push(some, g, 1)) }); n != 0 {
			t.Errorf("a push makes %v allocations", n)
		}
	}
}
