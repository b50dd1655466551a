package optim

import (
	"math/rand/v2"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// sizes are a small network's arena, which caches hold, and one that lies in
// memory.
var sizes = map[string]int{"431k": 431_104, "15M": 14_728_320}

// BenchmarkUpdate counts the bytes each rule reads and writes. A copy and a sum
// in place, which moves what descent without momentum does, are the machine's
// limits on the same arena.
func BenchmarkUpdate(b *testing.B) {
	for name, n := range sizes {
		r := rand.New(rand.NewPCG(21, 22))
		p, g := random(r, n), random(r, n)
		b.Run("copy/"+name, func(b *testing.B) {
			b.SetBytes(int64(4 * 2 * n))
			for b.Loop() {
				copy(p, g)
			}
		})
		b.Run("add/"+name, func(b *testing.B) {
			sum := random(r, n)
			b.SetBytes(int64(4 * 3 * n))
			for b.Loop() {
				simd.Host().Add(sum, g)
			}
		})
		for _, c := range []struct {
			name  string
			o     Optimizer
			moves int // values read and written
		}{
			{"sgd", &SGD{LR: 1e-3}, 3},
			{"momentum", &SGD{LR: 1e-3, Momentum: 0.9}, 5},
			{"adagrad", NewAdagrad(1e-3), 5},
			{"adamw", NewAdamW(1e-3), 7},
			{"ftrl", NewFTRL(1e-3), 7},
		} {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				if err := c.o.Bind(n); err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(4 * c.moves * n))
				c.o.BeginStep()
				c.o.Update(0, p, g, 1) // the system gives fresh state its memory now
				for b.Loop() {
					c.o.BeginStep()
					c.o.Update(0, p, g, 1)
				}
			})
		}
	}
}

// BenchmarkUpdateRows is the table of a click model: a million rows of ten
// values, of which a batch of 512 names some ten thousand, and all of 26 slots.
func BenchmarkUpdateRows(b *testing.B) {
	const rows, dim, used = 1_000_001, 10, 10_000
	r := rand.New(rand.NewPCG(23, 24))
	data, g := random(r, rows*dim), random(r, used*dim)
	var sets [16][]int32 // so that no batch's rows are still in the caches
	for i := range sets {
		for k := range used {
			sets[i] = append(sets[i], int32(k*(rows/used)+r.IntN(rows/used)))
		}
	}
	for _, o := range []RowOptimizer{&SGD{LR: 1e-3}, NewAdagrad(1e-3), &AdamW{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}} {
		b.Run(o.Name(), func(b *testing.B) {
			if err := o.BindTables([][2]int{{rows, dim}}); err != nil {
				b.Fatal(err)
			}
			i := 0
			for b.Loop() {
				o.BeginStep()
				o.UpdateRows(0, data, sets[i%len(sets)], g, 1)
				i++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/used, "ns/row")
		})
	}
}

// BenchmarkRowRules is a server's table: a million rows of 16 values, of which a
// batch names 8192 in random order.
func BenchmarkRowRules(b *testing.B) {
	const rows, dim, used = 1 << 20, 16, 8192
	r := rand.New(rand.NewPCG(25, 26))
	weights, g, order := random(r, rows*dim), random(r, used*dim), r.Perm(rows)
	for _, name := range RowRules() {
		b.Run(name, func(b *testing.B) {
			rule, err := NewRowRule(name, 1e-3)
			if err != nil {
				b.Fatal(err)
			}
			table := rowTable{rule: rule, dim: dim}
			table.grow(weights)
			ids, at := make([]int32, used), 0
			for b.Loop() {
				for i := range ids {
					ids[i] = int32(order[at%rows])
					at++
				}
				table.update(ids, g, 1)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/used, "ns/row")
		})
	}
}
