package optim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// clickTwin is a row in float64 by the rule's definition.
type clickTwin struct {
	w                          []float64
	sum                        float64
	show, click, unseen, delta float64
}

func (c *clickTwin) push(g []float32, scale, show, click float64) {
	rate, squares := 0.05*math.Sqrt(3/(3+c.sum)), 0.0
	for j := range c.w {
		d := scale * float64(g[j]) / max(show, 1)
		c.w[j] = min(10, max(-10, c.w[j]-rate*d))
		squares += d * d
	}
	c.sum += squares / float64(len(c.w))
	c.show += show
	c.click += click
	c.delta += (show-click)*0.1 + click
	c.unseen = 0
}

func (c *clickTwin) score() float64 { return (c.show-c.click)*0.1 + c.click }

// Rows, figures and extensions follow the rule over days of pushes and
// shrinking, and the decisions are the twin's.
func TestClickRowsAgainstTwin(t *testing.T) {
	for _, dim := range []int{1, 8, 11} {
		const rows = 300
		r := rand.New(rand.NewPCG(81, uint64(dim)))
		rule := NewClickRows(0.05)
		table := newRowTable(rule, r, rows, dim)
		twins := make([]clickTwin, rows)
		for i := range twins {
			twins[i].w = widened(table.data[i*dim:][:dim])
		}
		var extended, deleted int
		for day := range 40 {
			ids := shuffledRows(r, rows-1) // the last is never seen
			shows, clicks := make([]float32, len(ids)), make([]float32, len(ids))
			for i := range ids {
				shows[i] = float32(r.IntN(6)) // none, too
				clicks[i] = float32(r.IntN(int(shows[i]) + 1))
			}
			g := random(r, len(ids)*dim)
			for i := range g {
				g[i] *= 100 // some reach the bound
			}
			rule.UpdateClicks(table.data, table.state, dim, ids, g, shows, clicks, 2)
			for i, id := range ids {
				twins[id].push(g[i*dim:][:dim], 2, float64(shows[i]), float64(clicks[i]))
			}
			for id := range int32(rows) {
				f, twin := FiguresOf(table.state[1], id), &twins[id]
				near(t, "figure", []float32{f.Show / 100, f.Click / 100, f.Unseen, f.Delta / 1000},
					[]float64{twin.show / 100, twin.click / 100, twin.unseen, twin.delta / 1000})
				if s := twin.score(); math.Abs(s-10) > 1e-3 && rule.Policy.Extends(f) != (s > 10) {
					t.Fatalf("score %v: extends %v", s, rule.Policy.Extends(f))
				} else if s > 10 {
					extended++
				}
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
			for i := range twins {
				near(t, "weight", table.data[i*dim:][:dim], twins[i].w)
				if got, want := float64(table.state[0][i]), twins[i].sum; math.Abs(got-want) > 1e-5*(1+want) {
					t.Fatalf("sum is %v, want %v", got, want)
				}
			}
		}
		if extended == 0 || deleted == 0 {
			t.Errorf("%d extended, %d deleted: both should occur", extended, deleted)
		}
	}
}

// The decisions at their limits, by the numbers of the usual policy.
func TestClickPolicy(t *testing.T) {
	p := NewClickPolicy()
	for _, c := range []struct {
		f                      Figures
		score                  float32
		extends, deletes, cold bool
	}{
		{Figures{}, 0, false, true, false},
		{Figures{Show: 8}, 0.8, false, false, false},
		{Figures{Show: 7.9}, 0.79, false, true, false},
		{Figures{Show: 1, Click: 1}, 1, false, false, false},
		{Figures{Show: 10, Click: 10}, 10, true, false, false},
		{Figures{Show: 100, Click: 0}, 10, true, false, false},
		{Figures{Show: 99, Click: 0, Unseen: 1}, 9.9, false, false, true},
		{Figures{Show: 1000, Click: 10, Unseen: 30}, 109, true, false, true},
		{Figures{Show: 1000, Click: 10, Unseen: 31}, 109, true, true, true},
	} {
		if got := p.Score(c.f); math.Abs(float64(got-c.score)) > 1e-5 {
			t.Errorf("%+v: score %v, want %v", c.f, got, c.score)
		}
		if p.Extends(c.f) != c.extends || p.Deletes(c.f) != c.deletes || p.Cold(c.f) != c.cold {
			t.Errorf("%+v: extends %v, deletes %v, cold %v", c.f, p.Extends(c.f), p.Deletes(c.f), p.Cold(c.f))
		}
	}
	f := p.Age(Figures{Show: 100, Click: 50, Unseen: 2, Delta: 7}, 2)
	if want := (Figures{Show: 100 * float32(0.98*0.98), Click: 50 * float32(0.98*0.98), Unseen: 4, Delta: 7}); f != want {
		t.Errorf("two days make %+v, want %+v", f, want)
	}
	if p.Age(f, 0) != f || p.Age(f, -1) != f {
		t.Error("no day changed figures")
	}
	if got := (Figures{Show: 1, Click: 2, Unseen: 3, Delta: 4}).Based(); got != (Figures{Show: 1, Click: 2, Unseen: 3}) {
		t.Errorf("a base left %+v", got)
	}
	part := make([]float32, 3*FigureCount)
	f.Put(part, 1)
	if FiguresOf(part, 1) != f || FiguresOf(part, 0) != (Figures{}) || FiguresOf(part, 2) != (Figures{}) {
		t.Errorf("figures are %v in their part", part)
	}
}

// Extensions move as the rows that they extend would, with a sum of their own.
func TestClickExtensions(t *testing.T) {
	const rows, dim = 30, 9
	r := rand.New(rand.NewPCG(83, 84))
	rule := NewClickRows(0.05)
	base := newRowTable(rule, r, rows, dim)
	ext := rowTable{data: slices.Clone(base.data)}
	for _, p := range rule.ExtensionParts(dim) {
		ext.state = append(ext.state, slices.Repeat([]float32{p.Initial}, rows*p.Width))
	}
	for range 4 {
		ids := shuffledRows(r, rows)
		g, shows := random(r, len(ids)*dim), make([]float32, len(ids))
		for i := range shows {
			shows[i] = float32(1 + r.IntN(3))
		}
		rule.UpdateClicks(base.data, base.state, dim, ids, g, shows, nil, 1)
		rule.UpdateExtensions(ext.data, ext.state, dim, ids, g, shows, 1)
	}
	if !slices.Equal(base.data, ext.data) || !slices.Equal(base.state[0], ext.state[0]) {
		t.Error("extensions move otherwise")
	}
	for i, f := range []func(){
		func() {
			rule.UpdateClicks(base.data, base.state, dim, []int32{1}, make([]float32, dim), []float32{}, nil, 1)
		},
		func() {
			rule.UpdateClicks(base.data, base.state, dim, []int32{1}, make([]float32, dim), nil, []float32{}, 1)
		},
		func() {
			rule.UpdateExtensions(ext.data, ext.state, dim, []int32{1}, make([]float32, dim), []float32{}, 1)
		},
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
	ids, g, shows := []int32{3, 1}, random(r, 2*dim), []float32{1, 2}
	if n := testing.AllocsPerRun(10, func() {
		rule.UpdateClicks(base.data, base.state, dim, ids, g, shows, shows, 1)
		rule.UpdateExtensions(ext.data, ext.state, dim, ids, g, shows, 1)
	}); n != 0 {
		t.Errorf("a push makes %v allocations", n)
	}
}

// Without ByShow gradients keep their size, and without a bound weights are
// free.
func TestClickOptions(t *testing.T) {
	plain, click := NewRowWiseAdagrad(50), NewClickRows(50)
	click.ByShow, click.Bound = false, 0
	r := rand.New(rand.NewPCG(85, 86))
	a := newRowTable(plain, r, 5, 6)
	b := &rowTable{rule: click, dim: 6}
	b.grow(a.data)
	g := random(r, 3*6)
	a.update([]int32{0, 4, 2}, g, 1)
	click.UpdateClicks(b.data, b.state, 6, []int32{0, 4, 2}, g, []float32{5, 6, 7}, nil, 1)
	if !slices.Equal(a.data, b.data) {
		t.Error("weights differ from the rule's")
	}
	if m := slices.Max(b.data); m <= 10 {
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
