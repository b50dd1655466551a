package optim

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// clickTwin is a row in float64 by the rule's definition: its first weight, and
// the others, which are there from when it is extended.
type clickTwin struct {
	w                          []float64
	sums                       [2]float64 // of the first weight, and of the others
	extended                   bool
	show, click, unseen, delta float64
}

// push moves what is there, and says whether the row is to be extended then.
func (c *clickTwin) push(g []float32, scale, show, click float64) (due bool) {
	part := func(w []float64, g []float32, sum *float64) {
		rate, squares := 0.05*math.Sqrt(3/(3+*sum)), 0.0
		for j := range w {
			d := scale * float64(g[j]) / max(show, 1)
			w[j] = min(10, max(-10, w[j]-rate*d))
			squares += d * d
		}
		*sum += squares / float64(len(w))
	}
	part(c.w[:1], g[:1], &c.sums[0])
	if c.extended {
		part(c.w[1:], g[1:], &c.sums[1])
	}
	c.show += show
	c.click += click
	c.delta += (show-click)*0.1 + click
	c.unseen = 0
	return !c.extended && len(c.w) > 1 && c.score() >= 10
}

func (c *clickTwin) score() float64 { return (c.show-c.click)*0.1 + c.click }

// Rows, statistics and extensions follow the rule over days of pushes and
// shrinking, and the decisions are the twin's.
func TestClickRowsAgainstTwin(t *testing.T) {
	for _, dim := range []int{1, 2, 8, 11} {
		const rows = 300
		r := rand.New(rand.NewPCG(81, uint64(dim)))
		rule := NewClickRows(0.01)
		rule.RateTimes = 5
		table := newRowTable(rule, r, rows, dim)
		initial := slices.Clone(table.data)
		twins := make([]clickTwin, rows)
		for i := range twins {
			rule.Begin(table.data[i*dim:][:dim])
			twins[i].w = widened(table.data[i*dim:][:dim])
		}
		var extended, deleted, within int
		for day := range 40 {
			ids := shuffledRows(r, rows-1) // the last is never seen
			width := dim + rule.Counts()
			g := random(r, len(ids)*width)
			for i := range g {
				g[i] *= 100 // some reach the bound
			}
			for i := range ids {
				shows := r.IntN(6) // none, too
				g[i*width+dim], g[i*width+dim+1] = float32(shows), float32(r.IntN(shows+1))
			}
			if err := rule.CheckCounts(dim, g); err != nil {
				t.Fatal(err)
			}
			due := rule.UpdateCounted(table.data, table.state, dim, ids, g, 2, nil)
			for i, id := range ids {
				twin, g := &twins[id], g[i*width:][:width]
				near := math.Abs(twin.score()+float64((g[dim]-g[dim+1])*0.1+g[dim+1])-10) < 1e-3
				want := twin.push(g[:dim], 2, float64(g[dim]), float64(g[dim+1]))
				got := slices.Contains(due, int32(i))
				if got != want && !near {
					t.Fatalf("day %d: a row with score %v is extended %v", day, twin.score(), got)
				}
				if !got {
					continue
				}
				extended++
				rule.Extend(table.data, table.state, dim, id, initial[int(id)*dim:][:dim])
				twin.extended = true
				copy(twin.w[1:], widened(initial[int(id)*dim+1:][:dim-1]))
			}
			for id := range int32(rows) {
				f, twin := ClickStatsOf(table.state[1], id), &twins[id]
				near(t, "figure", []float32{f.Show / 100, f.Click / 100, f.Unseen, f.Delta / 1000},
					[]float64{twin.show / 100, twin.click / 100, twin.unseen, twin.delta / 1000})
				if rule.Policy.Cold(f) != (twin.unseen >= 1) {
					t.Fatalf("day %d: cold %v after %v days", day, rule.Policy.Cold(f), twin.unseen)
				}
				f = rule.Policy.Age(f, 1)
				f.Put(table.state[1], id)
				twin.show, twin.click, twin.unseen = 0.98*twin.show, 0.98*twin.click, twin.unseen+1
				if s := twin.score(); math.Abs(s-0.8) > 1e-3 {
					if rule.Policy.Deletes(f) != (s < 0.8 || twin.unseen > 30) {
						t.Fatalf("score %v, unseen %v: deletes %v", s, twin.unseen, rule.Policy.Deletes(f))
					}
					if rule.Policy.Deletes(f) {
						deleted++
					}
				}
			}
			for i, twin := range twins {
				near(t, "weight", table.data[i*dim:][:dim], twin.w)
				if got, want := float64(table.state[0][i]), twin.sums[0]; math.Abs(got-want) > 1e-5*(1+want) {
					t.Fatalf("sum is %v, want %v", got, want)
				}
				if dim == 1 {
					continue
				}
				switch got, want := float64(table.state[2][i]), twin.sums[1]; {
				case !twin.extended && got != -1:
					t.Fatalf("the sum of an extension that is not there is %v", got)
				case twin.extended && math.Abs(got-want) > 1e-5*(1+want):
					t.Fatalf("sum of an extension is %v, want %v", got, want)
				case twin.extended && twin.score() < 10:
					within++ // and keeps it
				}
			}
		}
		if dim > 1 && (extended == 0 || within == 0) || deleted == 0 {
			t.Errorf("dim %d: %d extended, %d below that score since, %d deleted: all should occur", dim, extended, within, deleted)
		}
	}
}

// The decisions at their limits, by the numbers of the usual policy.
func TestClickPolicy(t *testing.T) {
	p := NewClickPolicy()
	for _, c := range []struct {
		f                      ClickStats
		score                  float32
		extends, deletes, cold bool
	}{
		{ClickStats{}, 0, false, true, false},
		{ClickStats{Show: 8}, 0.8, false, false, false},
		{ClickStats{Show: 7.9}, 0.79, false, true, false},
		{ClickStats{Show: 1, Click: 1}, 1, false, false, false},
		{ClickStats{Show: 10, Click: 10}, 10, true, false, false},
		{ClickStats{Show: 100, Click: 0}, 10, true, false, false},
		{ClickStats{Show: 99, Click: 0, Unseen: 1}, 9.9, false, false, true},
		{ClickStats{Show: 1000, Click: 10, Unseen: 30}, 109, true, false, true},
		{ClickStats{Show: 1000, Click: 10, Unseen: 31}, 109, true, true, true},
	} {
		if got := p.Score(c.f); math.Abs(float64(got-c.score)) > 1e-5 {
			t.Errorf("%+v: score %v, want %v", c.f, got, c.score)
		}
		if p.Extends(c.f) != c.extends || p.Deletes(c.f) != c.deletes || p.Cold(c.f) != c.cold {
			t.Errorf("%+v: extends %v, deletes %v, cold %v", c.f, p.Extends(c.f), p.Deletes(c.f), p.Cold(c.f))
		}
	}
	f := p.Age(ClickStats{Show: 100, Click: 50, Unseen: 2, Delta: 7}, 2)
	if want := (ClickStats{Show: 100 * float32(0.98*0.98), Click: 50 * float32(0.98*0.98), Unseen: 4, Delta: 7}); f != want {
		t.Errorf("two days make %+v, want %+v", f, want)
	}
	if p.Age(f, 0) != f || p.Age(f, -1) != f {
		t.Error("no day changed statistics")
	}
	if got := (ClickStats{Show: 1, Click: 2, Unseen: 3, Delta: 4}).Based(); got != (ClickStats{Show: 1, Click: 2, Unseen: 3}) {
		t.Errorf("a base left %+v", got)
	}
	part := make([]float32, 3*ClickStatsLen)
	f.Put(part, 1)
	if ClickStatsOf(part, 1) != f || ClickStatsOf(part, 0) != (ClickStats{}) || ClickStatsOf(part, 2) != (ClickStats{}) {
		t.Errorf("statistics are %v in their part", part)
	}
}

// As a plain rule, a push is one show of rows that are whole from the beginning; shows and clicks
// that cannot be are found; and no push makes garbage.
func TestClickPlainAndCounted(t *testing.T) {
	const rows, dim = 30, 9
	r := rand.New(rand.NewPCG(83, 84))
	rule := NewClickRows(0.05)
	plain := newRowTable(rule, r, rows, dim)
	counted := plain.clone()
	for i := range rows {
		rule.Extend(counted.data, counted.state, dim, int32(i), plain.data[i*dim:][:dim])
	}
	ids := make([]int32, rows)
	for range 4 {
		g, wide := random(r, rows*dim), []float32(nil)
		for i := range rows {
			ids[i] = int32(i)
			wide = append(append(wide, g[i*dim:][:dim]...), 1, 0)
		}
		plain.update(ids, g, 0.5)
		if due := rule.UpdateCounted(counted.data, counted.state, dim, ids, wide, 0.5, nil); len(due) > 0 {
			t.Fatalf("rows %v are extended a second time", due)
		}
	}
	if !plain.equal(counted) {
		t.Error("one show each moves otherwise")
	}
	for _, counts := range [][2]float32{{-1, 0}, {1, -1}, {1, 2}, {float32(math.NaN()), 0}, {1, float32(math.NaN())}, {1 << 25, 0}, {float32(math.Inf(1)), 1}} {
		g := make([]float32, 2*(dim+2))
		g[2*dim+2], g[2*dim+3] = counts[0], counts[1]
		if err := rule.CheckCounts(dim, g); err == nil || !strings.Contains(err.Error(), "row 1 of the push has") {
			t.Errorf("%v: %v", counts, err)
		}
	}
	for i, f := range []func(){
		func() { rule.UpdateRows(plain.data, plain.state, dim, ids[:1], make([]float32, dim+2), 1) },
		func() { rule.UpdateCounted(plain.data, plain.state, dim, ids[:1], make([]float32, dim), 1, nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("case %d: no panic", i)
				}
			}()
			f()
		}()
	}
	g, due := slices.Repeat([]float32{1}, 2*(dim+2)), make([]int32, 0, 2)
	if n := testing.AllocsPerRun(10, func() {
		rule.UpdateCounted(counted.data, counted.state, dim, ids[:2], g, 1, due)
	}); n != 0 {
		t.Errorf("a push makes %v allocations", n)
	}
	if Counts(rule) != 2 || Counts(NewAdagradRows(1)) != 0 || len(rule.Parts(1)) != 2 || len(rule.Parts(2)) != 3 {
		t.Errorf("counts %d and %d, parts %v and %v", Counts(rule), Counts(NewAdagradRows(1)), rule.Parts(1), rule.Parts(2))
	}
}

// Without ByShow gradients keep their size, and without a bound weights are
// free.
func TestClickOptions(t *testing.T) {
	plain, click := NewRowWiseAdagrad(50), NewClickRows(25)
	click.ByShow, click.Bound, click.RateTimes = false, 0, 2
	r := rand.New(rand.NewPCG(85, 86))
	a := newRowTable(plain, r, 5, 1)
	b := &rowTable{rule: click, dim: 1}
	b.grow(a.data)
	g := random(r, 3)
	a.update([]int32{0, 4, 2}, g, 1)
	click.UpdateCounted(b.data, b.state, 1, []int32{0, 4, 2}, []float32{g[0], 5, 0, g[1], 6, 0, g[2], 7, 1}, 1, nil)
	if !slices.Equal(a.data, b.data) {
		t.Error("weights differ from the rule's")
	}
	if m := max(slices.Max(b.data), -slices.Min(b.data)); m <= 10 {
		t.Errorf("the largest weight is %v: a bound could not have shown", m)
	}
}

// Keys are admitted once they came often enough, and by their hash alone.
func TestAdmits(t *testing.T) {
	for _, c := range []struct {
		seen, count int
		hash        uint64
		share       float64
		want        bool
	}{
		{1, 1, math.MaxUint64, 1, true}, {2, 3, 0, 1, false}, {3, 3, 0, 1, true}, {9, 1, 0, 0, false},
		{1, 1, 1 << 62, 0.25, false}, {1, 1, 1<<62 - 1, 0.25, true}, {0, 0, 1 << 62, 0.26, true},
	} {
		if Admits(c.seen, c.count, c.hash, c.share) != c.want {
			t.Errorf("%+v: admitted %v", c, !c.want)
		}
	}
}
