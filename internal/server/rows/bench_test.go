package rows

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ringo-ml/ringo/internal/rowinit"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/internal/zipf"
	"github.com/ringo-ml/ringo/optim"
)

// benchRule is Adagrad with one accumulator per row, plainly.
type benchRule struct{}

func (benchRule) Name() string              { return "bench" }
func (benchRule) Validate() error           { return nil }
func (benchRule) Parts(int) []optim.RowPart { return []optim.RowPart{{Name: "sum", Width: 1}} }

func (benchRule) UpdateRows(data []float32, state [][]float32, dim int, ids []int32, grads []float32, scale float32) {
	sums := state[0]
	for i, id := range ids {
		w, g := data[int(id)*dim:][:dim], grads[i*dim:][:dim]
		sum := float32(0)
		for _, v := range g {
			sum += v * v
		}
		sums[id] += sum * scale * scale / float32(dim)
		rate := 0.05 * scale / float32(math.Sqrt(float64(sums[id])+1e-6))
		for j := range w {
			w[j] -= rate * g[j]
		}
	}
}

var benchSeq atomic.Uint64 // numbers of pushes, which must grow from one benchmark to the next

const (
	benchBatch   = 4096
	benchBatches = 256
)

// benchKeys are batches of different keys of n, as a client sends them.
func benchKeys(n int, s float64) [][]uint64 {
	r := rand.New(rand.NewPCG(1, 2))
	law, err := zipf.New(max(s, 1e-9), uint64(n)) // which rounds that to 0, where all are equally likely
	if err != nil {
		panic(err)
	}
	out := make([][]uint64, benchBatches)
	for i := range out {
		seen := make(map[uint64]bool, benchBatch)
		for len(out[i]) < benchBatch {
			key := rowinit.Mix(law.Draw(r.Uint64(), r.Uint64(), r.Uint64()))
			if !seen[key] {
				seen[key] = true
				out[i] = append(out[i], key)
			}
		}
	}
	return out
}

// BenchmarkTable is one batch after the other of 4096 rows of width 16, beside what
// memory gives: gathers of as many lines, one of an array as large as the index and
// one of the weights, of places known beforehand; for push these rows are updated
// and a float of state each.
func BenchmarkTable(b *testing.B) {
	for _, n := range []int{1 << 20, 10 << 20} {
		b.Run(fmt.Sprintf("rows=%dMi", n>>20), func(b *testing.B) {
			tb := newTable(b, Config{Dim: 16, Rule: benchRule{}, MaxRows: n})
			fill(b, tb, n)
			for _, s := range []float64{0, 0.99} {
				b.Run(fmt.Sprintf("zipf=%v", s), func(b *testing.B) { benchSkew(b, tb, benchKeys(n, s)) })
			}
		})
	}
}

func benchSkew(b *testing.B, tb *Table, keys [][]uint64) {
	bounds := placesOf(tb, keys)
	for _, goroutines := range []int{1, 2} {
		for _, op := range []string{"pull", "push", "push-once", "pull-bound", "push-bound"} {
			b.Run(fmt.Sprintf("goroutines=%d/%s", goroutines, op), func(b *testing.B) {
				benchTable(b, tb, op, keys, bounds, goroutines)
			})
		}
	}
}

// BenchmarkGrow is the first touch of rows, batch after batch of 4096, up to a
// million.
func BenchmarkGrow(b *testing.B) {
	for range b.N {
		tb := newTable(b, Config{Dim: 16, Rule: benchRule{}, MaxRows: 1 << 20})
		fill(b, tb, 1<<20)
		must(b, tb.Close())
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(1<<20), "ns/row")
}

func fill(b *testing.B, tb *Table, n int) {
	b.Helper()
	keys, x := make([]uint64, benchBatch), make([]float32, benchBatch*tb.Dim())
	for at := 0; at < n; at += benchBatch {
		for i := range keys {
			keys[i] = rowinit.Mix(uint64(at + i))
		}
		must(b, tb.Pull(keys, x))
	}
}

func benchTable(b *testing.B, tb *Table, op string, keys [][]uint64, bounds []places, goroutines int) {
	if tb.weights.flat == nil && strings.HasSuffix(op, "-bound") {
		b.Skip("the bound is for arrays of one slab")
	}
	workers(goroutines, func(g int) {
		x := make([]float32, benchBatch*tb.Dim())
		for i := range x {
			x[i] = 1e-3
		}
		o := Once{Create: true}
		for i := range b.N {
			at := (i + g*benchBatches/2) % benchBatches
			var err error
			switch op {
			case "pull":
				err = tb.Pull(keys[at], x)
			case "push":
				err = tb.Push(keys[at], x, 1)
			case "push-once":
				err = tb.PushOnce(g, benchSeq.Add(1), keys[at], x, 1, &o)
			default:
				bounds[at].gather(tb, x, op == "push-bound")
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchBatch/float64(goroutines), "ns/row")
}

// places are where a batch's keys are.
type places struct {
	lines []uint32
	rows  []int32
}

func placesOf(tb *Table, keys [][]uint64) []places {
	out := make([]places, len(keys))
	for i := range out {
		for _, key := range keys[i] {
			h := tb.index.hash(key)
			s := tb.index.segment(h)
			row, _ := tb.index.find(s, key, h)
			out[i].lines = append(out[i].lines, s.at(tb.index.home(s, h)))
			out[i].rows = append(out[i].rows, int32(row))
		}
	}
	return out
}

// gather reads what the batch needs, and nothing besides.
func (p places) gather(tb *Table, x []float32, update bool) {
	lines, dim := tb.index.arena.lines.flat, tb.Dim()
	sum, scratch := uint32(0), float32(0)
	for at := 0; at < len(p.rows); at += blockRows {
		rows := p.rows[at:min(len(p.rows), at+blockRows)]
		for _, n := range p.lines[at:][:len(rows)] {
			sum += lines[n].meta
		}
		if update {
			scratch += fetch(tb.weights, rows) + fetch(tb.state[0], rows)
			benchRule{}.UpdateRows(tb.weights.flat, [][]float32{tb.state[0].flat}, dim, rows, x[at*dim:][:len(rows)*dim], 1)
		} else {
			simd.Host().Lookup(x[at*dim:][:len(rows)*dim], tb.weights.flat, rows, dim)
		}
	}
	x[0] += float32(sum&1) + scratch*1e-30
}
