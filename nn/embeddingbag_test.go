package nn

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/golden"
	"github.com/ringo-ml/ringo/internal/simd"
)

// keyOfRow is a key that RowOf gives a row.
func keyOfRow(row int32, rows int) uint64 {
	for key := uint64(0); ; key++ {
		if RowOf(key, rows) == row {
			return key
		}
	}
}

// bagged is a model of bags of several lengths in slots over a table, and its naive twin.
type bagged struct {
	ps    *Params
	tab   *Table
	rest  *Tensor
	bags  Bags
	pool  Pooling
	steps int
	c     []float32
}

func newBagged(t *testing.T, slots, rows, dim int, pool Pooling, steps int, rest bool) *bagged {
	const n = 70 // more than a part has
	r := rand.New(rand.NewPCG(uint64(rows), uint64(dim)))
	m := &bagged{ps: NewParams(3), pool: pool, steps: steps, bags: Bags{Offsets: []int32{0, 3}, N: n}}
	m.bags.Keys = []uint64{0, 0, math.MaxUint64} // of a slot that nobody asks for, whose other bags are empty
	for range n - 1 {
		m.bags.Offsets = append(m.bags.Offsets, 3)
	}
	m.bags.Keys = append(m.bags.Keys, 0, math.MaxUint64, 0)
	m.bags.Offsets = append(m.bags.Offsets, 6)
	for range slots*n - 1 {
		for range r.IntN(30) * r.IntN(2) {
			m.bags.Keys = append(m.bags.Keys, uint64(r.IntN(1+2*rows)))
		}
		m.bags.Offsets = append(m.bags.Offsets, int32(len(m.bags.Keys)))
	}
	m.bags = m.bags.Slots(1, 1+slots)
	m.tab = m.ps.NewTable("table", UniformRows(1), rows, dim)
	width := max(1, steps) * slots * dim
	if rest {
		m.rest = NewTensor(n, 3)
		copy(m.rest.Data, random(r, 3*n))
		m.rest.needs = true
		width += 3
	}
	m.c = random(r, n*width)
	if err := m.ps.Arrange(func(t *Tape) *Tensor { return t.dot(m.look(t), m.c) }); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *bagged) look(t *Tape) *Tensor {
	if m.steps > 0 {
		return t.EmbeddingSequence(m.bags, m.tab, m.steps)
	}
	return t.EmbeddingBag(m.bags, m.tab, m.pool, m.rest)
}

// naive computes the result and the table's dense gradient, one float after the other.
func (m *bagged) naive() (y, grad []float32) {
	n, dim, slots := m.bags.N, m.tab.Dim, m.bags.Len()
	y, grad = make([]float32, len(m.c)), make([]float32, m.tab.Rows*dim)
	cols := len(m.c) / n
	for i := range slots * n {
		slot, s := i/n, i%n
		keys := m.bags.Keys[m.bags.Offsets[i]:m.bags.Offsets[i+1]]
		if m.steps > 0 {
			keys = keys[max(0, len(keys)-m.steps):]
		}
		for k, key := range keys {
			row := int(RowOf(key, m.tab.Rows)) * dim
			at, scale := s*cols+slot*dim, m.pool.scale(int32(len(keys)))
			if m.steps > 0 {
				at, scale = s*cols+k*dim, 1
			}
			for c := range dim {
				y[at+c] += m.tab.Data[row+c]
				if k == len(keys)-1 {
					y[at+c] *= scale
				}
				grad[row+c] += float32(scale * m.c[at+c])
			}
		}
	}
	if m.rest != nil {
		for s := range n {
			copy(y[(s+1)*cols-3:][:3], m.rest.Data[s*3:])
		}
	}
	return y, grad
}

// Bags and sequences have the bits of the naive twin, forward and backward, at every level and on any number of threads; two lookups in
// one table add up.
func TestEmbeddingBag(t *testing.T) {
	for _, k := range simd.Levels() {
		for _, threads := range []int{1, 2, 5} {
			tape := NewTape(TapeConfig{Kernels: k, Threads: threads})
			for _, c := range []struct {
				slots, rows, dim, steps int
				pool                    Pooling
				rest                    bool
			}{{1, 5, 1, 0, SumPool, false}, {3, 100, 10, 0, MeanPool, true}, {4, 7, 33, 0, SqrtPool, true}, {2, 3000, 16, 0, SumPool, true}, {1, 50, 8, 4, SumPool, false},
				{13, 3000, 16, 0, MeanPool, true}, {13, 40, 10, 0, SqrtPool, true}} {
				m := newBagged(t, c.slots, c.rows, c.dim, c.pool, c.steps, c.rest)
				if n := m.bags.Offsets[len(m.bags.Offsets)-1] - m.bags.Offsets[0]; c.slots > 10 && n < 5000 {
					t.Fatalf("%d keys, which are merged in too few parts", n)
				}
				want, grad := m.naive()
				for range 2 { // once with memory that was used
					tape.Reset()
					y := m.look(tape)
					tape.Backward(tape.dot(y, m.c), func(int) {})
					at := fmt.Sprintf("%s, %d threads, %+v", k.Name(), threads, c)
					if !slices.Equal(y.Data, want) {
						t.Fatalf("%s: other sums", at)
					}
					ids, rows := m.tab.Grad()
					all := make([]float32, len(grad))
					for i, id := range ids {
						copy(all[int(id)*c.dim:][:c.dim], rows[i*c.dim:])
					}
					if !slices.Equal(all, grad) || !slices.IsSorted(ids) {
						t.Fatalf("%s: other gradients", at)
					}
				}
			}
			tape.Close()
		}
	}
}

// A bag of a million keys is a bag; a batch without a key has zeros.
func TestEmbeddingBagExtremes(t *testing.T) {
	m := newBagged(t, 1, 5, 3, MeanPool, 0, false)
	tape := NewTape(TapeConfig{})
	defer tape.Close()
	const many = 1_000_000
	m.tab.Data[4*3] = 0.25
	y := tape.EmbeddingBag(Bags{Keys: slices.Repeat([]uint64{keyOfRow(4, 5)}, many), Offsets: []int32{0, many, many}, N: 2}, m.tab, SumPool, nil)
	if y.Data[0] != many/4 || y.Data[3] != 0 {
		t.Errorf("got %v and %v, want %v and 0", y.Data[0], y.Data[3], many/4)
	}
	tape.Reset()
	y = tape.EmbeddingBag(Bags{Offsets: []int32{0, 0, 0}, N: 2}, m.tab, MeanPool, nil)
	tape.Backward(tape.dot(y, make([]float32, 6)), func(int) {})
	if ids, _ := m.tab.Grad(); len(ids) > 0 || slices.Max(y.Data) != 0 || slices.Min(y.Data) != 0 {
		t.Errorf("no keys: rows %v, sums %v", ids, y.Data)
	}
}

// PyTorch's EmbeddingBag: the same sums and gradients, of empty bags and of one of 1,000 too.
func TestGoldenBags(t *testing.T) {
	found := 0
	golden.Each(t, "testdata/golden", func(t *testing.T, f *golden.File) {
		if f.Op != "embeddingbag" {
			return
		}
		found++
		shape := f.Array("table").Shape
		bags := Bags{Offsets: f.Ints("offsets"), N: len(f.Ints("offsets")) - 1}
		for _, id := range f.Ints("ids") {
			bags.Keys = append(bags.Keys, keyOfRow(id, shape[0]))
		}
		eachTape(t, func(t *testing.T, tape *Tape) {
			g := &goldenCase{File: f, ps: NewParams(1)}
			tab := g.ps.NewTable("table", UniformRows(1), shape[0], shape[1])
			g.init("table")(nil, tab.Data)
			g.train(t, tape, func(t *Tape) *Tensor { return t.EmbeddingBag(bags, tab, Pooling(f.Attr("pooling")), nil) })
			touched, rows := tab.Grad()
			all := make([]float32, shape[0]*shape[1])
			for i, id := range touched {
				copy(all[int(id)*shape[1]:], rows[i*shape[1]:(i+1)*shape[1]])
			}
			g.Compare(t, "dtable", all)
		})
	})
	if found != 3 {
		t.Errorf("%d files, want 3", found)
	}
}

// Rows that lie elsewhere are not looked up by keys.
func TestBagsOfATableElsewhere(t *testing.T) {
	ps := NewParams(1)
	ps.TablesElsewhere()
	tab := ps.NewTable("table", UniformRows(1), 10, 2)
	defer func() {
		if err, _ := recover().(error); !errors.As(err, new(*ShapeError)) {
			t.Errorf("%v", err)
		}
	}()
	NewTape(TapeConfig{}).EmbeddingBag(Bags{Keys: []uint64{1}, Offsets: []int32{0, 1}, N: 1}, tab, SumPool, nil)
}

// BenchmarkEmbeddingBag adds up bags of 20 keys of a table that no cache holds, and makes the gradient of its rows: bench/torch/bags.py
// does the same by PyTorch. The limit is what it takes to touch every cache line of these rows, one thread, and no more: the bandwidth that random
// rows of such a width allow.
func BenchmarkEmbeddingBag(b *testing.B) {
	const n, each = 4096, 20
	for _, dim := range []int{16, 64, 128} {
		rows := 64 << 20 / dim
		ps := NewParams(1)
		tab := ps.NewTable("table", RowInit{}, rows, dim)
		r := rand.New(rand.NewPCG(1, 2))
		batches := make([]Bags, 20)
		for i := range batches {
			batches[i] = Bags{N: n, Offsets: []int32{0}}
			for range n {
				for range each {
					batches[i].Keys = append(batches[i].Keys, r.Uint64())
				}
				batches[i].Offsets = append(batches[i].Offsets, int32(len(batches[i].Keys)))
			}
		}
		c := make([]float32, n*dim)
		loss := func(t *Tape, bags Bags) *Tensor { return t.dot(t.EmbeddingBag(bags, tab, SumPool, nil), c) }
		if err := ps.Arrange(func(t *Tape) *Tensor { return loss(t, batches[0]) }); err != nil {
			b.Fatal(err)
		}
		at := make([][]int32, len(batches))
		for i, bags := range batches {
			for _, key := range bags.Keys {
				at[i] = append(at[i], RowOf(key, rows)*int32(dim))
			}
		}
		b.Run(fmt.Sprintf("dim=%d/limit", dim), func(b *testing.B) {
			i, sum := 0, float32(0)
			for b.Loop() {
				sum += touch(tab.Data, at[i%len(at)], dim)
				i++
			}
			key := float64(b.Elapsed().Nanoseconds()) / float64(i*n*each)
			b.ReportMetric(key, "ns/key")
			b.ReportMetric(float64(4*dim)/key, "GB/s")
			b.ReportMetric(0, "ns/op")
			if sum != 0 {
				b.Error("rows are not as they were made")
			}
		})
		tape := NewTape(TapeConfig{})
		for _, backward := range []bool{false, true} {
			b.Run(fmt.Sprintf("dim=%d/backward=%v", dim, backward), func(b *testing.B) {
				i := 0
				var took time.Duration
				for b.Loop() {
					tape.Reset()
					start := time.Now()
					y := tape.EmbeddingBag(batches[i%len(batches)], tab, SumPool, nil)
					if backward {
						l := tape.dot(y, c)
						start = time.Now()
						tape.Backward(l, func(int) {})
					}
					took += time.Since(start)
					i++
				}
				key := float64(took.Nanoseconds()) / float64(i*n*each)
				b.ReportMetric(key, "ns/key")
				b.ReportMetric(float64(4*dim)/key, "GB/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// touch reads a value of each cache line of rows that begin at some places.
func touch(data []float32, at []int32, dim int) (sum float32) {
	for _, a := range at {
		for i := a; i < a+int32(dim); i += 64 / 4 {
			sum += data[i]
		}
	}
	return sum
}
