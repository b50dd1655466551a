package optim

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// rowTwins are the twins that take tables.
func rowTwins(t *testing.T, f func(t *testing.T, w ruleTwin)) {
	for _, name := range []string{"sgd", "adagrad", "adam", "ftrl"} {
		t.Run(name, func(t *testing.T) { f(t, ruleTwins[name]) })
	}
}

// Rows that a step uses follow the rule; the others and their state keep their
// bits.
func TestRowsAgainstTwins(t *testing.T) {
	rowTwins(t, func(t *testing.T, w ruleTwin) {
		const rows, dim, scale = 40, 10, 0.5
		r := rand.New(rand.NewPCG(11, 12))
		o := w.make()
		if err := o.BindTables([][2]int{{3, 5}, {rows, dim}}); err != nil {
			t.Fatal(err)
		}
		data := random(r, rows*dim)
		want := widened(data)
		state := make([][]float64, len(data))
		for i := range state {
			state[i] = make([]float64, len(o.TableState(1)))
		}
		for step := 1; step <= 5; step++ {
			ids := drawRows(r, rows)
			g := random(r, len(ids)*dim)
			before, partsBefore := slices.Clone(data), partsOf(o.TableState(1))
			o.BeginStep()
			o.UpdateRows(1, data, ids, g, scale)
			for i, id := range ids {
				for j := range dim {
					at := int(id)*dim + j
					w.rule(&want[at], state[at], scale*float64(g[i*dim+j]), step, false)
				}
			}
			near(t, "value", data, want)
			untouched(t, "value", ids, dim, data, before)
			for k, s := range o.TableState(1) {
				part := make([]float64, len(data))
				for i := range part {
					part[i] = state[i][k]
				}
				near(t, s.Name, s.Data, part)
				untouched(t, s.Name, ids, dim, s.Data, partsBefore[k])
			}
		}
	})
}

func drawRows(r *rand.Rand, rows int) (ids []int32) {
	for id := range rows {
		if r.IntN(2) == 0 {
			ids = append(ids, int32(id))
		}
	}
	return ids
}

func partsOf(states []State) (out [][]float32) {
	for _, s := range states {
		out = append(out, slices.Clone(s.Data))
	}
	return out
}

func untouched(t *testing.T, what string, ids []int32, dim int, got, before []float32) {
	t.Helper()
	for id := range len(got) / dim {
		if !slices.Contains(ids, int32(id)) && !slices.Equal(got[id*dim:][:dim], before[id*dim:][:dim]) {
			t.Fatalf("%s: row %d was not used and moved", what, id)
		}
	}
}

// A table all of whose rows are used moves as an arena of its values does.
func TestAllRowsAreAnArena(t *testing.T) {
	rowTwins(t, func(t *testing.T, w ruleTwin) {
		const rows, dim = 13, 7
		r := rand.New(rand.NewPCG(13, 14))
		dense, sparse := boundTo(t, w, rows*dim), w.make()
		if err := sparse.BindTables([][2]int{{rows, dim}}); err != nil {
			t.Fatal(err)
		}
		p := random(r, rows*dim)
		q := slices.Clone(p)
		var ids []int32
		for id := range rows {
			ids = append(ids, int32(id))
		}
		for range 4 {
			g := random(r, rows*dim)
			dense.BeginStep()
			dense.Update(0, p, g, 0.3)
			sparse.BeginStep()
			sparse.UpdateRows(0, q, ids, g, 0.3)
		}
		if !slices.Equal(p, q) {
			t.Error("the bits differ")
		}
	})
}

func TestBindTables(t *testing.T) {
	rowTwins(t, func(t *testing.T, w ruleTwin) {
		o, dims := w.make(), [][2]int{{4, 3}, {2, 1}}
		if err := o.BindTables(dims); err != nil {
			t.Fatal(err)
		}
		data, ids, g := make([]float32, 12), []int32{1, 3}, []float32{1, 2, 3, 4, 5, 6}
		o.BeginStep()
		o.UpdateRows(0, data, ids, g, 1)
		before := partsOf(o.TableState(0))
		if err := o.BindTables(slices.Clone(dims)); err != nil {
			t.Error(err)
		}
		for i, s := range o.TableState(0) {
			if !slices.Equal(s.Data, before[i]) {
				t.Errorf("binding again changed %s", s.Name)
			}
		}
		if o.BindTables([][2]int{{4, 3}}) == nil {
			t.Error("bound to two sets of tables")
		}
		if n := testing.AllocsPerRun(10, func() { o.BeginStep(); o.UpdateRows(0, data, ids, g, 1) }); n != 0 {
			t.Errorf("an update makes %v allocations", n)
		}
		err := w.make().BindTables([][2]int{{0, 3}, {1, 1}, {5, -1}, {math.MaxInt32 + 1, 1}})
		for _, want := range []string{"table 0 of 0 rows by 3", "table 2 of 5 rows by -1", "table 3 of 2147483648 rows"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not hold %q", err, want)
			}
		}
	})
}

// What would move rows that a step did not use is refused, with all else.
func TestTablesRefuse(t *testing.T) {
	for o, want := range map[RowOptimizer][]string{
		&SGD{LR: -1, Momentum: 0.9, WeightDecay: 0.01}: {"learning rate -1", "momentum 0.9", "weight decay 0.01", "table 0"},
		&Adagrad{LR: 1, WeightDecay: 0.02}:             {"eps 0", "weight decay 0.02", "table 0"},
		NewAdamW(1):                                    {"weight decay 0.01", "table 0"},
	} {
		err := o.BindTables([][2]int{{0, 1}})
		for _, s := range want {
			if err == nil || !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %v does not hold %q", o.Name(), err, s)
			}
		}
	}
	momentum := &SGD{LR: 1, Momentum: 0.9, WeightDecay: 0.1}
	if err := momentum.BindTables(nil); err != nil {
		t.Errorf("no tables: %v", err)
	}
}
