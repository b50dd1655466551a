package nn

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/rowinit"
)

// A row begins with the values that its number alone gives it: a table with fewer rows
// has the same ones, and so has whoever makes a row elsewhere.
func TestRowsBeginByNumber(t *testing.T) {
	few, many := NewParams(5).NewTable("table", UniformRows(0.5), 3, 4), NewParams(5).NewTable("table", UniformRows(0.5), 9, 4)
	if !slices.Equal(few.Data, many.Data[:12]) {
		t.Errorf("%v and %v", few.Data, many.Data[:12])
	}
	row := make([]float32, 4)
	begin, err := many.Init.Init()
	if err != nil {
		t.Fatal(err)
	}
	begin(row, rowinit.Row(many.Stream(), 7))
	if !slices.Equal(row, many.Data[28:32]) {
		t.Errorf("row 7 is %v, elsewhere %v", many.Data[28:32], row)
	}
	for name, other := range map[string]*Table{"seed": NewParams(6).NewTable("table", UniformRows(0.5), 3, 4), "name": NewParams(5).NewTable("tables", UniformRows(0.5), 3, 4)} {
		if slices.Equal(few.Data, other.Data) {
			t.Errorf("another %s gives the same values", name)
		}
	}
}

// A table whose rows lie elsewhere gives the values and gradients of one that has them all,
// pass by pass with the rows that the pass needs, by other numbers.
func TestTablesElsewhere(t *testing.T) {
	const n, each, rows, dim = 6, 5, 40, 3
	full := NewParams(1)
	whole := full.NewTable("table", UniformRows(1), rows, dim)
	part := NewParams(1)
	part.TablesElsewhere()
	held := part.NewTable("table", UniformRows(1), rows, dim)
	if held.Rows != rows || part.Count() != full.Count() {
		t.Errorf("%d rows, %d parameters; want %d and %d", held.Rows, part.Count(), rows, full.Count())
	}
	r := rand.New(rand.NewPCG(1, 2))
	c := random(r, n*each*dim)
	zeros := make([]int32, n*each)
	for _, ps := range []*Params{full, part} {
		weight := ps.New("w", Zeros, 1, dim)
		if err := ps.Arrange(func(tape *Tape) *Tensor {
			tape.EmbeddingTable(zeros, n, ps.Tables()[0], nil)
			return tape.dot(tape.Embedding(zeros, weight), c)
		}); err != nil {
			t.Fatal(err)
		}
	}
	tape := NewTape(TapeConfig{})
	defer tape.Close()
	pass := func(tab *Table, ids []int32) (y []float32, grad []float32, at []int32) {
		tape.Reset()
		out := tape.EmbeddingTable(ids, n, tab, nil)
		tape.Backward(tape.dot(out, c), func(int) {})
		at, grad = tab.Grad()
		return out.Data, grad, at
	}
	for range 4 {
		ids, mapped := make([]int32, n*each), make([]int32, n*each)
		var keys []int32
		var lent []float32
		for i := range ids {
			ids[i] = int32(r.IntN(rows))
			at := slices.Index(keys, ids[i])
			if at < 0 {
				at = len(keys)
				keys = append(keys, ids[i])
				lent = append(lent, whole.Data[int(ids[i])*dim:][:dim]...)
			}
			mapped[i] = int32(at)
		}
		held.Hold(lent)
		y, grad, at := pass(whole, ids)
		y, grad, at = slices.Clone(y), slices.Clone(grad), slices.Clone(at)
		y2, grad2, at2 := pass(held, mapped)
		if !slices.Equal(y, y2) || len(at) != len(at2) {
			t.Fatalf("looked up %v, held %v; %d and %d rows", y, y2, len(at), len(at2))
		}
		for i, key := range at {
			k := slices.Index(at2, int32(slices.Index(keys, key)))
			if k < 0 || !slices.Equal(grad[i*dim:][:dim], grad2[k*dim:][:dim]) {
				t.Errorf("gradient of row %d: %v, held %v", key, grad[i*dim:][:dim], grad2)
			}
		}
	}
	for _, bad := range []func(){
		func() { whole.Hold(make([]float32, dim)) },
		func() { held.Hold(nil) },
		func() { held.Hold(make([]float32, dim+1)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			bad()
		}()
	}
}
