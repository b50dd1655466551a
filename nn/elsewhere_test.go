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
		held.Hold(lent, nil)
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
		func() { whole.Hold(make([]float32, dim), nil) },
		func() { held.Hold(make([]float32, dim+1), nil) },
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

// Tables by keys whose rows lie elsewhere give the bits of those that have them, each with the rows of the slots that it reads.
func TestKeysElsewhere(t *testing.T) {
	const n, rows, dim, steps = 5, 4096, 3, 2
	registries := [2]*Params{NewParams(1), NewParams(1)}
	registries[1].TablesElsewhere()
	var c []float32
	forward := func(tape *Tape, ps *Params, bags Bags) *Tensor {
		all, last := ps.Tables()[0], ps.Tables()[1]
		x := tape.EmbeddingBag(bags.Slots(0, 2), all, SqrtPool, tape.Reshape(tape.EmbeddingSequence(bags.Slots(2, 3), last, steps), bags.N, steps*dim))
		x = tape.EmbeddingBag(bags.Slots(1, 3).Slots(1, 2), all, MeanPool, x)
		return tape.dot(x, c)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, ps := range registries {
		ps.NewTable("all", UniformRows(1), rows, dim)
		ps.NewTable("last", UniformRows(1), rows, dim)
		ps.New("unused", Zeros, 1)
		c = random(r, 3*dim+steps*dim)
		if err := ps.Arrange(func(tape *Tape) *Tensor { return forward(tape, ps, Bags{Offsets: make([]int32, 4), N: 1}) }); err != nil {
			t.Fatal(err)
		}
	}
	whole, held := registries[0].Tables(), registries[1].Tables()
	if !slices.Equal(held[0].Slots, []int{-1, -1, -1}) || !slices.Equal(held[1].Slots, []int{0, 0, steps}) {
		t.Fatalf("looked up by %v and %v", held[0].Slots, held[1].Slots)
	}
	c = random(r, n*(3*dim+steps*dim))
	tape := NewTape(TapeConfig{})
	defer tape.Close()
	pass := func(ps *Params, bags Bags) (loss float32) {
		tape.Reset()
		y := forward(tape, ps, bags)
		loss = y.Data[0]
		tape.Backward(y, func(int) {})
		return loss
	}
	for round := range 4 {
		bags := Bags{Offsets: []int32{0}, N: n}
		for range 3 * n {
			for range r.IntN(5) * min(round, 1) { // the first time there are none
				bags.Keys = append(bags.Keys, r.Uint64N(40))
			}
			bags.Offsets = append(bags.Offsets, int32(len(bags.Keys)))
		}
		var numbers [2][]int32 // the rows' in the whole tables
		for i := range held {
			at, lent := make([]int32, len(bags.Keys)), []float32{}
			for k, key := range bags.Keys {
				row := RowOf(key, rows)
				at[k] = int32(slices.Index(numbers[i], row))
				if at[k] < 0 {
					at[k] = int32(len(numbers[i]))
					numbers[i] = append(numbers[i], row)
					lent = append(lent, whole[i].Data[int(row)*dim:][:dim]...)
				}
			}
			held[i].Hold(lent, at)
		}
		if a, b := pass(registries[0], bags), pass(registries[1], bags); a != b {
			t.Errorf("%v, held %v", a, b)
		}
		for i := range held {
			ids, grads := whole[i].Grad()
			at, grads2 := held[i].Grad()
			if len(ids) != len(at) || round > 0 && len(ids) == 0 {
				t.Fatalf("%d rows have a gradient, %d held", len(ids), len(at))
			}
			for k, place := range at {
				was := slices.Index(ids, numbers[i][place])
				if was < 0 || !slices.Equal(grads[was*dim:][:dim], grads2[k*dim:][:dim]) {
					t.Errorf("round %d, table %d: row %d has another gradient", round, i, numbers[i][place])
				}
			}
		}
	}
	defer func() {
		if _, is := recover().(*ShapeError); !is {
			t.Error("a slot that Arrange has not seen is looked up")
		}
	}()
	tape.Reset()
	tape.EmbeddingBag(Bags{Keys: []uint64{1}, Offsets: []int32{0, 0, 1}, N: 1}.Slots(0, 2), held[1], SumPool, nil)
}
