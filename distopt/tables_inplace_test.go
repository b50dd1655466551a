package distopt

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// inArena copies x to the memory that a rank shares with the others.
func inArena[T int32 | float32](w *transport.SharedMemory, x []T) []T {
	to := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(w.Alloc(4*len(x))))), len(x))
	copy(to, x)
	return to
}

// placedRun trains embeddings on so many ranks; the gradients of those for which placed
// is true lie in their arenas.
func placedRun(t *testing.T, cfg Config, size, steps int, placed func(rank int) bool) [][]Table {
	t.Helper()
	tables, errs := make([][]Table, size), make(chan error, size)
	for _, m := range mem.NewShared(size, 1<<20) {
		rank := m.Rank()
		tables[rank] = embeddings()
		go func() {
			errs <- onMesh(m, func(g *collective.Group) error {
				return placedSteps(g, transport.SharedMemoryOf(m), cfg, tables[rank], steps, placed)
			})
		}()
	}
	var all []error
	for range size {
		all = append(all, <-errs)
	}
	if err := errors.Join(all...); err != nil {
		t.Fatal(err)
	}
	return tables
}

func placedSteps(g *collective.Group, w *transport.SharedMemory, cfg Config, tables []Table, steps int, placed func(rank int) bool) error {
	layers := toy()
	params, grads := make([]float32, total(layers)), make([]float32, total(layers))
	o, err := New(g, &rowSGD{SGD: testSGD}, layers, params, grads, tables, cfg)
	if err != nil {
		return err
	}
	every := true
	for r := range g.Size() {
		every = every && placed(r)
	}
	for step := range steps {
		backward(o, grads, step, g.Rank(), 1, []int{0, 1, 2, 3, 4, 5, 6})
		for i, tab := range tables {
			ids, rows := rowGradient(tab, i, step, g.Rank())
			if placed(g.Rank()) {
				ids, rows = inArena(w, ids), inArena(w, rows)
			}
			o.RowsReady(i, ids, rows)
		}
		if err := o.Step(); err != nil {
			return err
		}
		if g.Size() > 1 && every && !o.tables.inPlace() {
			return fmt.Errorf("step %d: gradients in arenas were gathered", step)
		}
	}
	return o.Close()
}

// Gradients that are read where they lie give the bits of those that are gathered, with
// any number of ranks, clipped or not, and also where one rank's are elsewhere.
func TestTablesInPlace(t *testing.T) {
	for _, size := range []int{1, 2, 3, 4} {
		for _, clip := range []float64{0, 0.5} {
			cfg := Config{ClipNorm: clip}
			want := placedRun(t, cfg, size, 6, func(int) bool { return false })
			for name, placed := range map[string]func(int) bool{
				"all":         func(int) bool { return true },
				"all but one": func(r int) bool { return r != size-1 },
			} {
				got := placedRun(t, cfg, size, 6, placed)
				for r := range got {
					for i := range got[r] {
						if !slices.Equal(got[r][i].Data, want[0][i].Data) {
							t.Errorf("%d ranks, clip %v, %s in arenas: table %d of rank %d differs", size, clip, name, i, r)
						}
					}
				}
			}
		}
	}
}

// What split and fold leave of two ranks' rows is what they are merged to.
func TestSplit(t *testing.T) {
	m, whole := merger{kernels: simd.Host()}, merger{kernels: simd.Host()}
	for trial := range 300 {
		rng := rand.New(rand.NewPCG(uint64(trial), 2))
		shape := Table{Rows: 1 + rng.IntN(1<<(trial%10)), Dim: 1 + rng.IntN(20)}
		own, ownRows := rowGradient(shape, 0, trial, 0)
		ids, rows := rowGradient(shape, 0, trial, 1)
		wantIDs, wantRows := whole.merge(shape.Dim, []int{len(own), len(ids)}, slices.Concat(own, ids), slices.Concat(ownRows, rows))
		before := slices.Clone(rows)
		restIDs, restRows := m.split(shape.Dim, own, ids, rows)
		m.fold(shape.Dim, ownRows)
		want, got := rowsByID(shape.Dim, wantIDs, wantRows), rowsByID(shape.Dim, own, ownRows)
		for id, row := range rowsByID(shape.Dim, restIDs, restRows) {
			if got[id] != nil {
				t.Fatalf("trial %d: id %d is in both parts", trial, id)
			}
			got[id] = row
		}
		if !maps.EqualFunc(got, want, slices.Equal) || !slices.IsSorted(restIDs) {
			t.Fatalf("trial %d: split to %v, merged to %v", trial, got, want)
		}
		if !slices.Equal(rows, before) {
			t.Fatalf("trial %d: the other rank's rows were changed", trial)
		}
	}
}

func rowsByID(dim int, ids []int32, rows []float32) map[int32][]float32 {
	out := map[int32][]float32{}
	for k, id := range ids {
		out[id] = rows[k*dim:][:dim]
	}
	return out
}
