package nn

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// lookups is a table and a dense parameter of the same values, and ids in them.
type lookups struct {
	n, each, rows, dim, rest int

	ps    *Params
	tab   *Table
	dense *Param
	x     *Tensor // beside the rows, nil when rest is 0
	c     []float32
}

func newLookups(t *testing.T, n, each, rows, dim, rest int) *lookups {
	t.Helper()
	m := &lookups{n: n, each: each, rows: rows, dim: dim, rest: rest, ps: NewParams(1)}
	m.tab = m.ps.NewTable("table", UniformRows(1), rows, dim)
	m.dense = m.ps.New("dense", Zeros, rows, dim)
	if rest > 0 {
		m.x = NewTensor(n, rest)
		copy(m.x.Data, random(rand.New(rand.NewPCG(3, 4)), n*rest))
		m.x.needs = true
	}
	m.c = random(rand.New(rand.NewPCG(5, 6)), n*(each*dim+rest))
	ids := make([]int32, n*each)
	err := m.ps.Arrange(func(t *Tape) *Tensor {
		t.EmbeddingTable(ids, n, m.tab, m.x)
		return t.dot(t.Embedding(ids, m.dense), m.c)
	})
	if err != nil {
		t.Fatal(err)
	}
	copy(m.dense.Data, m.tab.Data)
	return m
}

// ids draws ids, of which many come often, and sometimes the last row.
func (m *lookups) ids(r *rand.Rand) []int32 {
	ids := make([]int32, m.n*m.each)
	for i := range ids {
		ids[i] = int32(r.IntN(m.rows) * r.IntN(2))
		if r.IntN(20) == 0 {
			ids[i] = int32(m.rows - 1)
		}
	}
	return ids
}

// naive adds the gradient rows of ids to a dense gradient, in order.
func (m *lookups) naive(grad []float32, ids []int32) {
	cols := m.each*m.dim + m.rest
	for i, id := range ids {
		from := m.c[i/m.each*cols+i%m.each*m.dim:]
		for j := range m.dim {
			grad[int(id)*m.dim+j] += from[j]
		}
	}
}

var lookupCases = [][5]int{{5, 3, 7, 4, 2}, {130, 26, 5000, 10, 13}, {1, 1, 1, 1, 0}, {3, 67, 5_000_000, 1, 0}, {70, 2, 40, 200, 5}}

func TestEmbeddingTable(t *testing.T) {
	for _, c := range lookupCases {
		m := newLookups(t, c[0], c[1], c[2], c[3], c[4])
		r := rand.New(rand.NewPCG(7, 8))
		for _, threads := range []int{1, 3} {
			tape := NewTape(TapeConfig{Threads: threads})
			want, seen := make([]float32, m.rows*m.dim), map[int32]bool{}
			for micro := range 3 { // two Backwards of one step, then a step of its own
				if micro == 2 {
					clear(want)
					clear(seen)
				}
				ids := m.ids(r)
				tape.Reset()
				y := tape.EmbeddingTable(ids, m.n, m.tab, m.x)
				m.checkLookup(t, ids, y.Data)
				ready := func(int) {}
				if micro == 0 {
					ready = nil
				}
				tape.Backward(tape.dot(y, m.c), ready)
				m.naive(want, ids)
				for _, id := range ids {
					seen[id] = true
				}
				m.checkRows(t, want, seen)
				if m.x != nil {
					m.checkRest(t)
				}
			}
			tape.Close()
		}
	}
}

func (m *lookups) checkLookup(t *testing.T, ids []int32, y []float32) {
	t.Helper()
	var want []float32
	for s := range m.n {
		for _, id := range ids[s*m.each:][:m.each] {
			want = append(want, m.tab.Data[int(id)*m.dim:][:m.dim]...)
		}
		if m.x != nil {
			want = append(want, m.x.Data[s*m.rest:][:m.rest]...)
		}
	}
	if !slices.Equal(y, want) {
		t.Fatalf("%+v: wrong rows", *m)
	}
}

// checkRows compares the row-sparse gradient with a dense one, bit by bit: the
// order of each sum is that of occurrence.
func (m *lookups) checkRows(t *testing.T, want []float32, seen map[int32]bool) {
	t.Helper()
	ids, rows := m.tab.Grad()
	if len(ids) != len(seen) || len(rows) != len(ids)*m.dim {
		t.Fatalf("%d ids and %d values, want %d rows of %d", len(ids), len(rows), len(seen), m.dim)
	}
	for i, id := range ids {
		if !seen[id] || i > 0 && ids[i-1] >= id {
			t.Fatalf("ids %v: want those looked up, ascending", ids)
		}
		if got := rows[i*m.dim:][:m.dim]; !slices.Equal(got, want[int(id)*m.dim:][:m.dim]) {
			t.Fatalf("row %d is %v, want %v", id, got, want[int(id)*m.dim:][:m.dim])
		}
	}
}

func (m *lookups) checkRest(t *testing.T) {
	t.Helper()
	cols := m.each*m.dim + m.rest
	for i, g := range m.x.gradient() {
		if want := m.c[(i/m.rest+1)*cols-m.rest+i%m.rest]; g != want {
			t.Fatalf("rest[%d] has gradient %v, want %v", i, g, want)
		}
	}
}

func TestEmbedding(t *testing.T) {
	for _, c := range lookupCases[:2] {
		m := newLookups(t, c[0], c[1], c[2], c[3], 0)
		for _, k := range simd.Levels() {
			for threads := 1; threads <= 3; threads++ {
				r := rand.New(rand.NewPCG(9, 10))
				tape := NewTape(TapeConfig{Kernels: k, Threads: threads})
				want := make([]float32, m.rows*m.dim)
				for micro := range 2 {
					ids := m.ids(r)
					tape.Reset()
					y := tape.Embedding(ids, m.dense)
					m.checkLookup(t, ids, y.Data)
					m.naive(want, ids)
					var ready func(int)
					if micro == 1 {
						ready = func(int) {}
					}
					tape.Backward(tape.dot(y, m.c), ready)
					if !slices.Equal(m.dense.Grad, want) {
						t.Fatalf("%s, %d threads: wrong gradient", k.Name(), threads)
					}
				}
				tape.Close()
			}
		}
	}
}

func TestEmbeddingNamesAnIDThatIsNoRow(t *testing.T) {
	m := newLookups(t, 2, 2, 9, 3, 0)
	for _, id := range []int32{-1, 9} {
		for name, lookup := range map[string]func(t *Tape, ids []int32){
			"table": func(t *Tape, ids []int32) { t.EmbeddingTable(ids, 2, m.tab, nil) },
			"dense": func(t *Tape, ids []int32) { t.Embedding(ids, m.dense) },
		} {
			err := func() (err error) {
				defer func() { err, _ = recover().(error) }()
				lookup(NewTape(TapeConfig{}), []int32{0, 8, id, 1})
				return nil
			}()
			var index *IndexError
			if !errors.As(err, &index) || *index != (IndexError{Name: name, At: 2, ID: id, Rows: 9}) {
				t.Errorf("%s, id %d: %v", name, id, err)
			}
		}
	}
}

func TestEmbeddingDoesNotAllocate(t *testing.T) {
	m := newLookups(t, 40, 3, 5000, 10, 4)
	tape, other := NewTape(TapeConfig{}), NewTape(TapeConfig{})
	r := rand.New(rand.NewPCG(1, 2))
	ids := m.ids(r)
	c := m.c[:len(ids)*m.dim]
	ready := func(int) {}
	step := func() {
		tape.Reset()
		tape.Backward(tape.dot(tape.EmbeddingTable(ids, m.n, m.tab, m.x), m.c), ready)
		other.Reset()
		other.Backward(other.dot(other.Embedding(ids, m.dense), c), ready)
	}
	step()
	step()
	if n := testing.AllocsPerRun(5, step); n != 0 {
		t.Errorf("a steady step makes %v allocations, want 0", n)
	}
}

func BenchmarkEmbeddingTable(b *testing.B) {
	const n, each, rows, dim = 512, 26, 1_000_001, 10
	ps := NewParams(1)
	tab := ps.NewTable("table", UniformRows(1), rows, dim)
	r := rand.New(rand.NewPCG(1, 2))
	batches := make([][]int32, 50)
	for i := range batches {
		for range n * each {
			batches[i] = append(batches[i], int32(r.IntN(rows)))
		}
	}
	x, c := NewTensor(n, 13), make([]float32, n*(each*dim+13))
	loss := func(t *Tape, ids []int32) *Tensor { return t.dot(t.EmbeddingTable(ids, n, tab, x), c) }
	if err := ps.Arrange(func(t *Tape) *Tensor { return loss(t, batches[0]) }); err != nil {
		b.Fatal(err)
	}
	tape := NewTape(TapeConfig{})
	i := 0
	for b.Loop() {
		tape.Reset()
		l := loss(tape, batches[i%len(batches)])
		tape.Backward(l, func(int) {})
		i++
	}
}

// A step that looks up more different rows than all before allocates nothing.
func TestEmbeddingTableOfMoreRows(t *testing.T) {
	m := newLookups(t, 20, 3, 100, 4, 0)
	tape := NewTape(TapeConfig{})
	ready := func(int) {}
	ids := make([]int32, m.n*m.each)
	step := func() {
		tape.Reset()
		tape.Backward(tape.dot(tape.EmbeddingTable(ids, m.n, m.tab, nil), m.c), ready)
	}
	for range 3 {
		step()
	}
	more := int32(0)
	if n := testing.AllocsPerRun(5, func() {
		more += 7
		for i := range ids {
			ids[i] = int32(i) % more
		}
		step()
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
