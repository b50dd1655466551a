package distopt

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/transport"
)

// rowSGD is SGD whose rows are updated as by Adagrad without its root: state
// that a stray update of a row would show in.
type rowSGD struct {
	optim.SGD
	sums [][]float32
}

func (r *rowSGD) BindTables(dims [][2]int) error {
	for _, d := range dims {
		r.sums = append(r.sums, make([]float32, d[0]*d[1]))
	}
	return nil
}

func (r *rowSGD) UpdateRows(table int, data []float32, ids []int32, grads []float32, scale float32) {
	dim := len(grads) / len(ids)
	for k, id := range ids {
		for j := range dim {
			at, g := int(id)*dim+j, float64(grads[k*dim+j])*float64(scale)
			r.sums[table][at] += float32(g * g)
			data[at] -= float32(r.LR * g / (1 + float64(r.sums[table][at])))
		}
	}
}

func (r *rowSGD) TableState(table int) []optim.State {
	return []optim.State{{Name: "sums", Data: r.sums[table]}}
}

// embeddings are two tables, of few and of many rows.
func embeddings() []Table {
	var out []Table
	for i, d := range [][2]int{{7, 3}, {500, 10}} {
		t := Table{Name: fmt.Sprintf("table%d", i), Rows: d[0], Dim: d[1], Data: make([]float32, d[0]*d[1])}
		gradient(t.Data, 2000, i, 0)
		out = append(out, t)
	}
	return out
}

// rowGradient is rank's gradient of a table in a step: ids ascending, each
// once, sometimes none.
func rowGradient(t Table, table, step, rank int) (ids []int32, rows []float32) {
	rnd := rand.New(rand.NewPCG(uint64(step*10+table), uint64(rank)))
	for range rnd.IntN(60) {
		ids = append(ids, int32(rnd.IntN(t.Rows)))
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	rows = make([]float32, len(ids)*t.Dim)
	for i := range rows {
		rows[i] = float32(rnd.NormFloat64())
	}
	return ids, rows
}

// The merged gradient is that of a map, summed in rank order, ascending.
func TestMerge(t *testing.T) {
	m := merger{kernels: simd.Host()}
	for size := range 9 {
		for step := range 40 {
			shape := Table{Rows: 1 + step*step, Dim: 1 + step%11}
			counts, ids, rows, want := make([]int, size), []int32(nil), []float32(nil), map[int32][]float32{}
			for r := range size {
				own, g := rowGradient(shape, 0, step, r)
				counts[r] = len(own)
				ids, rows = append(ids, own...), append(rows, g...)
				for k, id := range own {
					row := g[k*shape.Dim:][:shape.Dim]
					if sum, ok := want[id]; ok {
						for j := range sum {
							sum[j] += row[j]
						}
					} else {
						want[id] = slices.Clone(row)
					}
				}
			}
			gotIDs, gotRows := m.merge(shape.Dim, counts, ids, rows)
			if keys := slices.Sorted(maps.Keys(want)); !slices.Equal(gotIDs, keys) {
				t.Fatalf("%d ranks, step %d: ids %v, want %v", size, step, gotIDs, keys)
			}
			for k, id := range gotIDs {
				if row := gotRows[k*shape.Dim:][:shape.Dim]; !slices.Equal(row, want[id]) {
					t.Fatalf("%d ranks, step %d: row %d is %v, want %v", size, step, id, row, want[id])
				}
			}
		}
	}
}

// tableRun trains toy and embeddings for some steps on so many ranks and returns
// each rank's parameters, tables and row state.
func tableRun(t *testing.T, cfg Config, size, steps int) (params [][]float32, tables [][]Table, state []*rowSGD) {
	t.Helper()
	layers := toy()
	n := total(layers)
	params, tables, state = make([][]float32, size), make([][]Table, size), make([]*rowSGD, size)
	onRanks(t, size, func(g *collective.Group) error {
		grads, rank := make([]float32, n), g.Rank()
		params[rank], tables[rank], state[rank] = make([]float32, n), embeddings(), &rowSGD{SGD: testSGD}
		if rank > 0 {
			tables[rank][0].Data[5], tables[rank][1].Data[77] = 100, 100 // only rank 0's must survive
		}
		o, err := New(g, state[rank], layers, params[rank], grads, tables[rank], cfg)
		if err != nil {
			return err
		}
		if rank > 0 {
			state[rank].sums[1][3] = 100
		}
		if err := o.Broadcast(); err != nil {
			return err
		}
		order := []int{0, 1, 2, 3, 4, 5, 6}
		for step := range steps {
			backward(o, grads, step, rank, max(1, cfg.Accumulation), order)
			for i, tab := range tables[rank] {
				ids, rows := rowGradient(tab, i, step, rank)
				o.RowsReady(i, ids, rows)
			}
			if err := o.Step(); err != nil {
				return err
			}
			if x := o.Times(); x.Dense < 0 || x.Dense+x.Rows > x.Exposed || (x.Rows > 0) != (g.Size() > 1) {
				return fmt.Errorf("step %d: exposed %v, of which dense %v and rows %v", step, x.Exposed, x.Dense, x.Rows)
			}
		}
		return errors.Join(o.Sync(), o.Close())
	})
	return params, tables, state
}

// tableOracle trains the tables of one replica in float64 on the mean of all
// ranks' gradients. In step s the gradient is clipped by factor(s).
func tableOracle(size, steps, accumulation int, factor func(step int) float64) (data [][]float64, touched []map[int32]bool) {
	for i, tab := range embeddings() {
		p, sums, seen := make([]float64, len(tab.Data)), make([]float64, len(tab.Data)), map[int32]bool{}
		for k, v := range tab.Data {
			p[k] = float64(v)
		}
		for step := range steps {
			f := factor(step)
			for at, g := range meanRows(tab, i, size, step, accumulation) {
				g *= f
				seen[int32(at/tab.Dim)] = true
				sums[at] += g * g
				p[at] -= testSGD.LR * g / (1 + sums[at])
			}
		}
		data, touched = append(data, p), append(touched, seen)
	}
	return data, touched
}

// meanRows is the mean gradient of a table by place.
func meanRows(tab Table, table, size, step, accumulation int) map[int]float64 {
	mean := map[int]float64{}
	for rank := range size {
		ids, rows := rowGradient(tab, table, step, rank)
		for k, id := range ids {
			for j, g := range rows[k*tab.Dim:][:tab.Dim] {
				mean[int(id)*tab.Dim+j] += float64(g) / float64(size*accumulation)
			}
		}
	}
	return mean
}

// clipOracle gives the factor by which the row-sparse gradient, and with dense
// the dense one together with it, is clipped.
func clipOracle(size, accumulation int, clip float64, dense bool) func(step int) float64 {
	return func(step int) float64 {
		sum := 0.0
		if dense {
			for _, g := range meanGradient(total(toy()), size, step, accumulation) {
				sum += g * g
			}
		}
		for i, tab := range embeddings() {
			for _, g := range meanRows(tab, i, size, step, accumulation) {
				sum += g * g
			}
		}
		if norm := math.Sqrt(sum); clip > 0 && norm > clip {
			return clip / norm
		}
		return 1
	}
}

// However the ranks agree, their tables are what one worker's would be, bit by
// bit the same on all ranks, and a row that no rank touched is as it was. Tables
// do not differ under PartialUpdate either.
func TestTablesEqualOneReplica(t *testing.T) {
	const steps = 4
	for _, cfg := range []Config{
		{}, {Plan: PlanPerLayer}, {ClipNorm: 1.5}, {Accumulation: 3, ClipNorm: 0.5},
		{Strategy: PartialUpdate}, {Strategy: PartialUpdate, ClipNorm: 1},
		{Strategy: FP16}, {Strategy: TopK}, {Strategy: DLGS, Accumulation: 2},
	} {
		for _, size := range []int{1, 3} {
			params, tables, state := tableRun(t, cfg, size, steps)
			k := max(1, cfg.Accumulation)
			factor := clipOracle(size, k, cfg.ClipNorm, cfg.Strategy != PartialUpdate)
			want, touched := tableOracle(size, steps, k, factor)
			before := embeddings()
			for i := range before {
				for at, w := range want[i] {
					got := tables[0][i].Data[at]
					if math.Abs(float64(got)-w) > 1e-5 {
						t.Fatalf("%+v, %d ranks: table %d value %d is %v, want %v", cfg, size, i, at, got, w)
					}
					untouched := !touched[i][int32(at/before[i].Dim)]
					if untouched && (math.Float32bits(got) != math.Float32bits(before[i].Data[at]) || state[0].sums[i][at] != 0) {
						t.Fatalf("%+v, %d ranks: row %d of table %d moved from %v to %v", cfg, size, at/before[i].Dim, i, before[i].Data[at], got)
					}
				}
				for rank := range size {
					requireSameBits(t, tables[0][i].Data, tables[rank][i].Data, rank)
					requireSameBits(t, state[0].sums[i], state[rank].sums[i], rank)
				}
			}
			if len(touched[1]) == before[1].Rows || len(touched[0]) == 0 {
				t.Fatal("the test touches all rows, or none")
			}
			for rank := range size {
				requireSameBits(t, params[0], params[rank], rank)
			}
			if cfg.Strategy != "" {
				continue
			}
			dense := newOracle(make([]float32, len(params[0])))
			for step := range steps {
				mean, f := meanGradient(len(params[0]), size, step, k), factor(step)
				for i := range mean {
					mean[i] *= f
				}
				dense.step(mean, testSGD, 0)
			}
			dense.compare(t, fmt.Sprintf("%+v, %d ranks", cfg, size), params[0])
		}
	}
}

// Faults name the step and the table.
func TestTableFaults(t *testing.T) {
	layers := toy()
	n := total(layers)
	make1 := func(g *collective.Group, cfg Config) (*Optimizer, []float32) {
		grads := make([]float32, n)
		o, err := New(g, &rowSGD{SGD: testSGD}, layers, make([]float32, n), grads, embeddings(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		return o, grads
	}
	nan := float32(math.NaN())
	for _, c := range []struct {
		give func(o *Optimizer)
		want []string
	}{
		{func(o *Optimizer) { o.RowsReady(0, nil, nil) }, []string{"before the gradient of table table1"}},
		{func(o *Optimizer) { o.RowsReady(2, nil, nil) }, []string{"table 2 is not known", "2"}},
		{func(o *Optimizer) { o.RowsReady(0, nil, nil); o.RowsReady(0, nil, nil) }, []string{"table0", "twice"}},
		{func(o *Optimizer) { o.RowsReady(0, []int32{1, 1}, make([]float32, 6)) }, []string{"table0", "id 1 at 1 of 2", "ascending"}},
		{func(o *Optimizer) { o.RowsReady(0, []int32{7}, make([]float32, 3)) }, []string{"table0", "id 7", "0 to 6"}},
		{func(o *Optimizer) { o.RowsReady(0, []int32{-1}, make([]float32, 3)) }, []string{"id -1"}},
		{func(o *Optimizer) { o.RowsReady(0, []int32{1}, make([]float32, 4)) }, []string{"table0", "4 values for 1 rows of 3"}},
		{func(o *Optimizer) {
			o.RowsReady(0, []int32{1}, []float32{0, nan, 0})
			o.RowsReady(1, nil, nil)
		}, []string{"norm of the gradient is NaN", "table table0"}},
	} {
		ranks(t, 1, func(g *collective.Group) error {
			o, grads := make1(g, Config{ClipNorm: 1})
			backward(o, grads, 0, 0, 1, []int{0, 1, 2, 3, 4, 5, 6})
			c.give(o)
			err := o.Step()
			for _, w := range append(c.want, "step 0") {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("error %v does not contain %q", err, w)
				}
			}
			return nil
		})
	}
	ranks(t, 1, func(g *collective.Group) error {
		short := embeddings()
		short[1].Data = short[1].Data[1:]
		_, err := New(g, &rowSGD{SGD: testSGD}, layers, make([]float32, n), make([]float32, n), short, Config{})
		if err == nil || !strings.Contains(err.Error(), "table table1 has 4999 values for 500 rows of 10") {
			t.Errorf("a short table: %v", err)
		}
		_, err = New(g, plain{&optim.SGD{LR: 1}}, layers, make([]float32, n), make([]float32, n), short, Config{})
		if err == nil || !strings.Contains(err.Error(), "optimizer sgd cannot update the rows") {
			t.Errorf("an optimizer without rows: %v", err)
		}
		return nil
	})
}

// plain hides whatever else an optimizer can do.
type plain struct{ optim.Optimizer }

// Ranks whose tables differ are told by New.
func TestDifferentTables(t *testing.T) {
	layers := toy()
	n := total(layers)
	for what, edit := range map[string]func([]Table) []Table{
		"table 1 is none there, and table1 of 500 rows of 10 values on rank 0": func(t []Table) []Table { return t[:1] },
		"table 1 is table1 of 50 rows of 100 values there, and table1 of 500 rows of 10 values on rank 0": func(t []Table) []Table {
			t[1] = Table{Name: "table1", Rows: 50, Dim: 100, Data: t[1].Data}
			return t
		},
		"table 0 is other of ": func(t []Table) []Table { t[0].Name = "other"; return t },
	} {
		for rank, err := range ranks(t, 2, func(g *collective.Group) error {
			tabs := embeddings()
			if g.Rank() == 1 {
				tabs = edit(tabs)
			}
			_, err := New(g, &rowSGD{SGD: testSGD}, layers, make([]float32, n), make([]float32, n), tabs, Config{})
			return err
		}) {
			if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "rank 1 has another model than rank 0: ") {
				t.Errorf("%s, rank %d: %v", what, rank, err)
			}
		}
	}
}

// What another rank says of its rows is checked before memory or rows are touched.
func TestBadRowsOfAPeer(t *testing.T) {
	layers := toy()
	n := total(layers)
	for what, ids := range map[string][]int32{
		"says that it has 8 rows": {0, 1, 2, 3, 4, 5, 6, 7}, "ascend from 0 to below 7": {1, 7}, "do not ascend": {3, 2}, "the ids of rank 1": {-5, 2},
	} {
		for rank, err := range ranks(t, 2, func(g *collective.Group) error {
			o, err := New(g, &rowSGD{SGD: testSGD}, layers, make([]float32, n), make([]float32, n), embeddings(), Config{})
			if err != nil {
				return err
			}
			for l := range layers {
				o.GradReady(l)
			}
			o.RowsReady(0, nil, nil)
			o.RowsReady(1, nil, nil)
			if g.Rank() == 1 { // past its own checks
				o.tables.list[0].ids, o.tables.list[0].rows = ids, make([]float32, 3*len(ids))
			}
			return o.Step()
		}) {
			if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "table0") || !strings.Contains(err.Error(), "rank 1") {
				t.Errorf("%v, rank %d: %v", ids, rank, err)
			}
		}
	}
}

// A rank that leaves while the others wait for its rows is named, with the step.
func TestLostPeerOfTables(t *testing.T) {
	var before sync.WaitGroup
	before.Add(2)
	layers := toy()
	n := total(layers)
	errs := ranks(t, 3, func(g *collective.Group) error {
		grads, tabs := make([]float32, n), embeddings()
		o, err := New(g, &rowSGD{SGD: testSGD}, layers, make([]float32, n), grads, tabs, Config{})
		if err != nil {
			return err
		}
		for step := range 3 {
			backward(o, grads, step, g.Rank(), 1, []int{0, 1, 2, 3, 4, 5, 6})
			if step == 2 && g.Rank() == 1 {
				before.Wait()
				return &transport.LostError{Rank: 1, Reason: "pulled the plug"}
			}
			for i, tab := range tabs {
				ids, rows := rowGradient(tab, i, step, g.Rank())
				o.RowsReady(i, ids, rows)
			}
			if err := o.Step(); err != nil {
				return err
			}
			if step == 1 && g.Rank() != 1 {
				before.Done()
			}
		}
		return nil
	})
	for _, rank := range []int{0, 2} {
		if errs[rank] == nil || !strings.Contains(errs[rank].Error(), "step 2") || !strings.Contains(errs[rank].Error(), "pulled the plug") {
			t.Errorf("rank %d: %v", rank, errs[rank])
		}
	}
}

// A steady step with tables allocates nothing, though the number of rows
// differs from step to step.
func TestTablesAllocateNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	layers := toy()
	n := total(layers)
	const steps = 50
	onRanks(t, 2, func(g *collective.Group) error {
		tabs := embeddings()
		o, err := New(g, &rowSGD{SGD: testSGD}, layers, make([]float32, n), make([]float32, n), tabs, Config{ClipNorm: 1})
		if err != nil {
			return err
		}
		var ids [2][20][]int32
		var rows [2][20][]float32
		for i := range tabs {
			for s := range 20 {
				ids[i][s], rows[i][s] = rowGradient(tabs[i], i, s, g.Rank())
			}
		}
		at := 0
		step := func() {
			for l := range layers {
				o.GradReady(l)
			}
			for i := range tabs {
				o.RowsReady(i, ids[i][at%20], rows[i][at%20])
			}
			at++
			if err := o.Step(); err != nil {
				t.Error(err)
			}
		}
		for range 20 {
			step()
		}
		if g.Rank() == 1 {
			for range steps + 1 {
				step()
			}
			return nil
		}
		if per := testing.AllocsPerRun(steps, step); per >= 1 {
			t.Errorf("%v allocations per step", per)
		}
		return nil
	})
}

func BenchmarkMerge(b *testing.B) {
	for _, size := range []int{2, 16} {
		b.Run(fmt.Sprintf("ranks=%d", size), func(b *testing.B) {
			shape := Table{Rows: 1000001, Dim: 10}
			rnd := rand.New(rand.NewPCG(1, 1))
			counts, all := make([]int, size), []int32(nil)
			for r := range size {
				ids := make([]int32, 512*26)
				for i := range ids {
					ids[i] = int32(rnd.IntN(shape.Rows))
				}
				slices.Sort(ids)
				ids = slices.Compact(ids)
				counts[r], all = len(ids), append(all, ids...)
			}
			rows := make([]float32, len(all)*shape.Dim)
			m := merger{kernels: simd.Host()}
			b.ReportAllocs()
			for b.Loop() {
				m.merge(shape.Dim, counts, all, rows)
			}
		})
	}
}
