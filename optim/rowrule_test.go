package optim

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// rowTable is memory for a rule's rows, as a server holds it: arrays that grow.
type rowTable struct {
	rule  RowRule
	dim   int
	data  []float32
	state [][]float32
}

// grow appends new rows with these weights.
func (t *rowTable) grow(weights []float32) {
	t.data = append(t.data, weights...)
	for i, p := range t.rule.Parts(t.dim) {
		if i == len(t.state) {
			t.state = append(t.state, nil)
		}
		t.state[i] = append(t.state[i], slices.Repeat([]float32{p.Initial}, p.Width*len(weights)/t.dim)...)
	}
}

func (t *rowTable) update(ids []int32, grads []float32, scale float32) {
	t.rule.UpdateRows(t.data, t.state, t.dim, ids, grads, scale)
}

// A table that grows row by row has the bits of one whose rows were all there:
// rules know of a row only what is in its state.
func TestGrownTablesAreBound(t *testing.T) {
	for _, c := range []struct {
		rule  RowRule
		bound func() RowOptimizer
	}{
		{&SGDRows{LR: 0.1}, func() RowOptimizer { return &SGD{LR: 0.1} }},
		{&AdagradRows{LR: 0.1, Initial: 2, Eps: 1e-8}, func() RowOptimizer { return &Adagrad{LR: 0.1, Initial: 2, Eps: 1e-8} }},
	} {
		for _, dim := range []int{1, 7, 16, 33} {
			const rows = 30
			r := rand.New(rand.NewPCG(51, uint64(dim)))
			weights := random(r, rows*dim)
			want := slices.Clone(weights)
			o := c.bound()
			if err := o.BindTables([][2]int{{rows, dim}}); err != nil {
				t.Fatal(err)
			}
			table := rowTable{rule: c.rule, dim: dim}
			for have := 1; have <= rows; have++ {
				table.grow(weights[(have-1)*dim:][:dim])
				ids := drawRows(r, have)
				r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
				g := random(r, len(ids)*dim)
				table.update(ids, g, 0.5)
				o.BeginStep()
				o.UpdateRows(0, want, ids, g, 0.5)
			}
			if !slices.Equal(table.data, want) {
				t.Errorf("%s, dim %d: weights differ", c.rule.Name(), dim)
			}
			for i, s := range o.TableState(0) {
				p := c.rule.Parts(dim)[i]
				if p.Name != s.Name || !slices.Equal(table.state[i], s.Data) {
					t.Errorf("%s, dim %d: %s differs", c.rule.Name(), dim, p.Name)
				}
			}
		}
	}
}

// Every bad setting is in the one error.
func TestRowRulesValidate(t *testing.T) {
	for rule, want := range map[RowRule][]string{
		&SGDRows{LR: -1}:                          {"sgd", "learning rate -1"},
		&AdagradRows{LR: -2, Initial: -3}:         {"adagrad", "learning rate -2", "initial sum -3", "eps 0"},
		&AdagradRows{LR: 1, Initial: 0, Eps: 1e9}: nil,
		&SGDRows{LR: 1}:                           nil,
	} {
		err := rule.Validate()
		if (err == nil) != (want == nil) {
			t.Errorf("%s: %v", rule.Name(), err)
		}
		for _, s := range want {
			if err == nil || !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %v does not hold %q", rule.Name(), err, s)
			}
		}
	}
}
