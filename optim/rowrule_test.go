package optim

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
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

func (t *rowTable) clone() *rowTable {
	c := *t
	c.data, c.state = slices.Clone(t.data), nil
	for _, s := range t.state {
		c.state = append(c.state, slices.Clone(s))
	}
	return &c
}

func (t *rowTable) equal(o *rowTable) bool {
	return slices.Equal(t.data, o.data) && slices.EqualFunc(t.state, o.state, slices.Equal[[]float32])
}

// newRowTable is a table of random weights.
func newRowTable(rule RowRule, r *rand.Rand, rows, dim int) *rowTable {
	t := &rowTable{rule: rule, dim: dim}
	t.grow(random(r, rows*dim))
	return t
}

// shuffledRows are some of the rows in any order.
func shuffledRows(r *rand.Rand, rows int) []int32 {
	ids := drawRows(r, rows)
	r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids
}

// eachRowRule runs f for every rule that has a name, and a bounded one.
func eachRowRule(t *testing.T, f func(t *testing.T, rule RowRule)) {
	for _, name := range RowRules() {
		rule, err := NewRowRule(name, 0.1)
		if err != nil {
			t.Fatal(err)
		}
		if rule.Name() != name {
			t.Errorf("rule %q calls itself %q", name, rule.Name())
		}
		t.Run(name, func(t *testing.T) { f(t, rule) })
	}
	t.Run("bounded", func(t *testing.T) { f(t, &Bounded{RowRule: NewAdagradRows(0.1), Bound: 0.5}) })
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
		{
			&FTRLRows{LR: 0.1, Beta: 0.5, L1: 0.1, L2: 0.2, Initial: 0.1},
			func() RowOptimizer { return &FTRL{LR: 0.1, Beta: 0.5, L1: 0.1, L2: 0.2, Initial: 0.1} },
		},
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
				ids := shuffledRows(r, have)
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

// rowRuleTwins are rules in float64 on one row: its weights, the parts of its
// state, and its gradient, scaled.
var rowRuleTwins = []struct {
	rule RowRule
	twin func(p []float64, s [][]float64, g []float64)
}{
	{&MomentumRows{LR: 0.1, Momentum: 0.9}, func(p []float64, s [][]float64, g []float64) {
		for j := range p {
			s[0][j] = 0.9*s[0][j] + g[j]
			p[j] -= 0.1 * s[0][j]
		}
	}},
	{&RowWiseAdagrad{LR: 0.05, Initial: 3}, func(p []float64, s [][]float64, g []float64) {
		rate, sum := 0.05*math.Sqrt(3/(3+s[0][0])), 0.0
		for j := range p {
			p[j] -= rate * g[j]
			sum += g[j] * g[j]
		}
		s[0][0] += sum / float64(len(p))
	}},
	{&AdamRows{LR: 0.1, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.02}, func(p []float64, s [][]float64, g []float64) {
		t := 1.0 // how often the row was updated, from what its last update left
		if s[2][0] > 0 {
			t += math.Round(math.Log(1-s[2][0]) / math.Log(0.9))
		}
		for j := range p {
			p[j] -= 0.1 * 0.02 * p[j]
			moments := []float64{s[0][j], s[1][j]}
			adamTwin(&p[j], moments, g[j], int(t))
			s[0][j], s[1][j] = moments[0], moments[1]
		}
		s[2][0], s[2][1] = 1-math.Pow(0.9, t), 1-math.Pow(0.999, t)
	}},
	{&FTRLRows{LR: 0.1, Beta: 1, L1: 0.1, L2: 0.2}, func(p []float64, s [][]float64, g []float64) {
		for j := range p {
			state := []float64{s[0][j], s[1][j]}
			ftrlTwin(&p[j], state, g[j])
			s[0][j], s[1][j] = state[0], state[1]
		}
	}},
}

// ftrlTwin is the paper's algorithm 1 with alpha 0.1, beta 1, l1 0.1, l2 0.2,
// from any weight. s[0] is the paper's z times alpha.
func ftrlTwin(p *float64, s []float64, g float64) {
	const alpha, beta, l1, l2 = 0.1, 1, 0.1, 0.2
	z, n := s[0]/alpha, s[1]
	if z == 0 && *p != 0 {
		z = -*p*((beta+math.Sqrt(n))/alpha+l2) - math.Copysign(l1, *p)
	}
	sigma := (math.Sqrt(n+g*g) - math.Sqrt(n)) / alpha
	z += g - sigma**p
	n += g * g
	*p = 0
	if math.Abs(z) > l1 {
		*p = -(z - math.Copysign(l1, z)) / ((beta+math.Sqrt(n))/alpha + l2)
	}
	s[0], s[1] = z*alpha, n
}

func TestRowRulesAgainstTwins(t *testing.T) {
	for _, c := range rowRuleTwins {
		for _, dim := range []int{1, 5, 16, 19} {
			const rows, scale = 20, 0.5
			r := rand.New(rand.NewPCG(53, uint64(dim)))
			table := newRowTable(c.rule, r, rows, dim)
			want := widened(table.data)
			var state [][]float64
			for _, s := range table.state {
				state = append(state, widened(s))
			}
			for range 12 {
				ids := shuffledRows(r, rows)
				g := random(r, len(ids)*dim)
				table.update(ids, g, scale)
				for i, id := range ids {
					var parts [][]float64
					for k, p := range c.rule.Parts(dim) {
						parts = append(parts, state[k][int(id)*p.Width:][:p.Width])
					}
					row := widened(g[i*dim:][:dim])
					for j := range row {
						row[j] *= scale
					}
					c.twin(want[int(id)*dim:][:dim], parts, row)
				}
			}
			near(t, c.rule.Name()+" weight", table.data, want)
			for k, p := range c.rule.Parts(dim) {
				near(t, c.rule.Name()+" "+p.Name, table.state[k], state[k])
			}
		}
	}
}

// A row's bits do not depend on the other rows of its calls, nor on how many
// goroutines there are; rows that no call names stay, state and all.
func TestRowsAreOnTheirOwn(t *testing.T) {
	eachRowRule(t, func(t *testing.T, rule RowRule) {
		const rows, dim = 700, 9 // more than a kernel's call has
		r := rand.New(rand.NewPCG(55, 56))
		whole := newRowTable(rule, r, rows, dim)
		single, shared, before := whole.clone(), whole.clone(), whole.clone()
		for range 3 {
			ids := shuffledRows(r, rows-1) // never the last
			g := random(r, len(ids)*dim)
			kept := slices.Clone(g)
			whole.update(ids, g, 0.5)
			for i := range ids {
				single.update(ids[i:i+1], g[i*dim:][:dim], 0.5)
			}
			var wait sync.WaitGroup
			for lo := 0; lo < len(ids); lo += 100 {
				hi := min(len(ids), lo+100)
				wait.Go(func() { shared.update(ids[lo:hi], g[lo*dim:hi*dim], 0.5) })
			}
			wait.Wait()
			if !slices.Equal(g, kept) {
				t.Error("gradients were changed")
			}
		}
		if !whole.equal(single) || !whole.equal(shared) {
			t.Error("a row's bits depend on the others of its call")
		}
		if whole.equal(before) {
			t.Error("nothing moved")
		}
		if !slices.Equal(whole.data[(rows-1)*dim:], before.data[(rows-1)*dim:]) {
			t.Error("a row without a gradient moved")
		}
		for k, p := range rule.Parts(dim) {
			if !slices.Equal(whole.state[k][(rows-1)*p.Width:], before.state[k][(rows-1)*p.Width:]) {
				t.Errorf("%s of a row without a gradient moved", p.Name)
			}
		}
	})
}

func TestRowRulesAllocateNothing(t *testing.T) {
	eachRowRule(t, func(t *testing.T, rule RowRule) {
		r := rand.New(rand.NewPCG(57, 58))
		table := newRowTable(rule, r, 600, 5)
		ids := shuffledRows(r, 600)
		g := random(r, len(ids)*5)
		if n := testing.AllocsPerRun(10, func() { table.update(ids, g, 1) }); n != 0 {
			t.Errorf("an update makes %v allocations", n)
		}
	})
}

// Every rule has a rate that can be set, and names all its bad settings.
func TestRowRuleSettings(t *testing.T) {
	eachRowRule(t, func(t *testing.T, rule RowRule) {
		if err := rule.Validate(); err != nil {
			t.Error(err)
		}
		rated := rule.(Rated)
		if rated.SetLR(0.25); rated.CurrentLR() != 0.25 {
			t.Errorf("the rate is %v", rated.CurrentLR())
		}
		r := rand.New(rand.NewPCG(59, 60))
		table := newRowTable(rule, r, 3, 4)
		for i := range table.data {
			table.data[i] /= 4
		}
		before := slices.Clone(table.data)
		rated.SetLR(0)
		if table.update([]int32{2, 0}, random(r, 8), 1); !slices.Equal(table.data, before) {
			t.Error("rate 0 moved weights")
		}
		defer func() {
			if recover() == nil {
				t.Error("rate -1 was accepted")
			}
		}()
		rated.SetLR(-1)
	})
	if _, err := NewRowRule("adagard", 1); err == nil || !strings.Contains(err.Error(), `"adagard"`) || !strings.Contains(err.Error(), "adagrad-rowwise") {
		t.Errorf("an unknown rule: %v", err)
	}
}

// Every bad setting is in the one error.
func TestRowRulesValidate(t *testing.T) {
	bad := NewClickRows(-1)
	bad.Rule.Initial, bad.Bound, bad.RateTimes = 0, -2, -7
	bad.Policy = ClickPolicy{NoClick: -3, Click: math.NaN(), ExtendAt: -4, Decay: 1.5, DeleteBelow: -5, ColdAfter: -6}
	worthless := NewClickRows(1)
	worthless.Policy.NoClick, worthless.Policy.Click = 0, 0
	for rule, want := range map[RowRule][]string{
		&SGDRows{LR: -1}: {"sgd", "learning rate -1"},
		&MomentumRows{LR: math.NaN(), Momentum: 1}:                             {"momentum", "learning rate NaN", "momentum 1"},
		&AdagradRows{LR: -2, Initial: -3}:                                      {"adagrad", "learning rate -2", "initial sum -3", "eps 0"},
		&RowWiseAdagrad{}:                                                      {"adagrad-rowwise", "learning rate 0", "initial sum 0"},
		&AdamRows{Beta1: 1, Beta2: -1}:                                         {"adam", "learning rate 0", "beta1 1", "beta2 -1", "eps 0"},
		&AdamRows{LR: 1, Eps: 1, WeightDecay: 1}:                               {"adamw", "product below 1"},
		&FTRLRows{L1: -1, L2: -2, Initial: -3}:                                 {"ftrl", "learning rate 0", "beta 0", "l1 -1", "l2 -2", "initial sum -3"},
		&Bounded{RowRule: &SGDRows{LR: -1}, Bound: math.Inf(1)}:                {"bound +Inf", "learning rate -1"},
		&Bounded{RowRule: &SGDRows{LR: 1}, Bound: math.SmallestNonzeroFloat64}: {"bound"},
		bad:       {"click", "learning rate -1", "initial sum 0", "bound -2", "-3", "NaN", "-4", "1.5", "-5", "deletion 0", "-6", "times of the rate -7"},
		worthless: {"all scores would be 0"},
	} {
		err := rule.Validate()
		for _, s := range want {
			if err == nil || !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %v does not hold %q", rule.Name(), err, s)
			}
		}
	}
}

// Bounds cut what the rule leaves, in the rows that moved alone.
func TestBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(61, 62))
	free := newRowTable(&SGDRows{LR: 1}, r, 600, 7)
	free.data[3*7+2] = float32(math.NaN())
	cut := free.clone()
	cut.rule = &Bounded{RowRule: &SGDRows{LR: 1}, Bound: 0.75}
	ids := append([]int32{3}, 599, 4)
	for id := int32(10); id < 590; id++ {
		ids = append(ids, id)
	}
	g := random(r, len(ids)*7)
	free.update(ids, g, 1)
	cut.update(ids, g, 1)
	for _, id := range ids {
		for j, v := range free.data[int(id)*7:][:7] {
			free.data[int(id)*7+j] = min(max(v, -0.75), 0.75)
		}
	}
	for i, v := range free.data {
		if got := cut.data[i]; got != v && (got == got || v == v) {
			t.Fatalf("weight %d is %v, want %v", i, got, v)
		}
	}
}
