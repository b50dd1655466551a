package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ringo-ml/ringo/internal/rowinit"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/shard"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/schema"
)

// anyPull is the id of pulls that do not come again.
var anyPull rows.PullID

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mixed has tables and arrays of odd sizes, with rules that have state, one that
// counts steps, and one that wants counts.
func mixed() schema.Schema {
	return schema.Schema{
		Sparse: []schema.Sparse{
			{Name: "items", Dim: 16, Rule: schema.Rule{Name: "adagrad", LR: 0.1}, Init: schema.Init{Name: "uniform", Value: 0.5}, Seed: 3},
			{Name: "users", Dim: 5, Rule: schema.Rule{Name: "momentum", LR: 0.05}, Init: schema.Init{Name: "constant", Value: 1}},
			{Name: "clicks", Dim: 6, Rule: schema.Rule{Name: "click", LR: 0.1, Settings: map[string]float64{"extend_at": 3}}, Init: schema.Init{Name: "uniform", Value: 0.5}},
		},
		Dense: []schema.Dense{
			{Name: "net", Len: 1003, Rule: schema.Rule{Name: "adam", LR: 0.01}},
			{Name: "bias", Len: 37, Rule: schema.Rule{Name: "sgd", LR: 0.1, Settings: map[string]float64{"momentum": 0.9}}},
		},
	}
}

// whole has a table and an array whose rule is subtraction, so that whole numbers below
// 2^24 come out exact in any order.
func whole(dim int) schema.Schema {
	one := schema.Rule{Name: "sgd", LR: 1}
	return schema.Schema{
		Sparse: []schema.Sparse{{Name: "counts", Dim: dim, Rule: one}},
		Dense:  []schema.Dense{{Name: "sums", Len: 40, Rule: one}},
	}
}

// newShard makes the tables of servers, with deltas.
func newShard(_ int, c rows.Config) (Table, error) {
	return shard.New(shard.Config{Rows: c, Deltas: true})
}

func open(t testing.TB, c Config, s schema.Schema) *Engine {
	t.Helper()
	if c.MaxRows == 0 {
		c.MaxRows = 1 << 21
	}
	e, err := Open(c, s)
	must(t, err)
	t.Cleanup(func() { _ = e.Close() }) // a second time where the test has
	return e
}

// client is one session's: it numbers its changes, and makes some of them twice.
type client struct {
	t       testing.TB
	e       *Engine
	session int
	seq     uint64
	step    uint64 // under way
	rng     *rand.Rand
	last    Ticket
}

func newClient(t testing.TB, e *Engine, session int) *client {
	last, err := e.Join(session, e.Last(session)+1, 0)
	must(t, err)
	return &client{t: t, e: e, session: session, seq: last, step: e.sessions[session].clock + 1, rng: rand.New(rand.NewPCG(uint64(session), 5))}
}

// change makes the next change, now and then again.
func (c *client) change(make func(seq uint64) (Ticket, error)) {
	c.t.Helper()
	c.seq++
	for again := true; again; again = c.rng.IntN(8) == 0 {
		ticket, err := make(c.seq)
		if err != nil {
			c.t.Errorf("session %d: change %d: %v", c.session, c.seq, err)
			return
		}
		c.last = ticket
	}
}

func (c *client) rows(table int, keys []uint64, grads []float32) {
	c.change(func(seq uint64) (Ticket, error) { return c.e.PushRows(c.session, seq, table, c.step, keys, grads) })
}

func (c *client) dense(array, lo int, grads []float32) {
	c.change(func(seq uint64) (Ticket, error) { return c.e.PushDense(c.session, seq, array, c.step, lo, grads) })
}

func (c *client) set(array, lo int, values []float32) {
	c.change(func(seq uint64) (Ticket, error) { return c.e.SetDense(c.session, seq, array, lo, values) })
}

func (c *client) clock(rate float64) {
	c.change(func(seq uint64) (Ticket, error) { return c.e.Clock(c.session, seq, c.step, rate) })
	c.step++
}

func (c *client) leave() {
	c.change(func(seq uint64) (Ticket, error) { return c.e.Leave(c.session, seq) })
}

// begin gives all arrays of a server initial values.
func (c *client) begin(initial [][]float32) {
	for i, d := range c.e.dense {
		for lo := d.lo; lo < d.hi; {
			n := min(d.hi-lo, 1+c.rng.IntN(100))
			c.set(i, lo, initial[i][lo:lo+n])
			lo += n
		}
	}
}

// initials are values for arrays.
func initials(s schema.Schema) (out [][]float32) {
	rng := rand.New(rand.NewPCG(9, 9))
	for _, d := range s.Dense {
		values := make([]float32, d.Len)
		for i := range values {
			values[i] = rng.Float32()
		}
		out = append(out, values)
	}
	return out
}

// grads are a trainer's gradients of a step: what it pushes to a table or an array.
type grads struct {
	keys   []uint64
	values []float32
}

// draw makes gradients for every table and array, of keys below most.
func draw(s schema.Schema, rng *rand.Rand, most int) (out []grads) {
	value := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	for _, t := range s.Sparse {
		keys, width := distinct(rng, rng.IntN(most), most), t.Dim+t.Counts()
		g := grads{keys, value(len(keys) * width)}
		for i := t.Dim; i < len(g.values) && width > t.Dim; i += width {
			shows := rng.IntN(6)
			g.values[i], g.values[i+1] = float32(shows), float32(rng.IntN(shows+1))
		}
		out = append(out, g)
	}
	for _, d := range s.Dense {
		out = append(out, grads{nil, value(d.Len)})
	}
	return out
}

// distinct are n different keys below most, in no order.
func distinct(rng *rand.Rand, n, most int) []uint64 {
	keys := make([]uint64, 0, n)
	for _, k := range rng.Perm(most)[:n] {
		keys = append(keys, uint64(k)*0x9e3779b97f4a7c15)
	}
	return keys
}

// twin is what servers must come to: maps and whole arrays, moved one row at a time.
type twin struct {
	s     schema.Schema
	rules []optim.RowRule
	rows  []map[uint64][][]float32 // weights, then state by part
	fresh []*rows.Table            // for initial weights
	opts  []optim.Optimizer
	dense [][]float32
}

func newTwin(t testing.TB, s schema.Schema) *twin {
	w := &twin{s: s, dense: initials(s)}
	for _, x := range s.Sparse {
		rule, err := x.Rule.Rows()
		must(t, err)
		init, err := x.Init.Init()
		must(t, err)
		table, err := rows.New(rows.Config{Name: x.Name, Dim: x.Dim, Rule: rule, Init: init, Seed: x.Seed, MaxRows: 1})
		must(t, err)
		t.Cleanup(func() { _ = table.Close() })
		w.rules, w.rows, w.fresh = append(w.rules, rule), append(w.rows, map[uint64][][]float32{}), append(w.fresh, table)
	}
	for _, x := range s.Dense {
		opt, err := x.Rule.Dense()
		must(t, err)
		must(t, opt.Bind(x.Len))
		w.opts = append(w.opts, opt)
	}
	return w
}

// row is a key's row.
func (w *twin) row(table int, key uint64) [][]float32 {
	if r := w.rows[table][key]; r != nil {
		return r
	}
	x := w.s.Sparse[table]
	r := [][]float32{make([]float32, x.Dim)}
	if _, err := w.fresh[table].Peek([]uint64{key}, r[0], nil); err != nil {
		panic(err)
	}
	for _, p := range w.rules[table].Parts(x.Dim) {
		part := make([]float32, p.Width)
		for i := range part {
			part[i] = p.Initial
		}
		r = append(r, part)
	}
	w.rows[table][key] = r
	return r
}

func (w *twin) push(table int, key uint64, grad []float32, scale float32) {
	r := w.row(table, key)
	rule, ok := w.rules[table].(optim.CountedRule)
	if !ok {
		w.rules[table].UpdateRows(r[0], r[1:], len(grad), []int32{0}, grad, scale)
		return
	}
	x := w.s.Sparse[table]
	if due := rule.UpdateCounted(r[0], r[1:], x.Dim, []int32{0}, grad, 1, nil); len(due) > 0 { // sums are not divided
		init, err := x.Init.Init()
		if err != nil {
			panic(err)
		}
		initial := make([]float32, x.Dim)
		init(initial, rowinit.Row(rowinit.Table(x.Seed, x.Name), key))
		rule.Extend(r[0], r[1:], x.Dim, 0, initial)
	}
}

// step applies the mean of some trainers' gradients, added one after the other.
func (w *twin) step(all [][]grads) {
	scale := 1 / float32(len(all))
	for i := range w.s.Sparse {
		dim := w.s.Sparse[i].Dim + w.s.Sparse[i].Counts()
		sums := map[uint64][]float32{}
		for _, g := range all {
			for k, key := range g[i].keys {
				grad := g[i].values[k*dim:][:dim]
				if sum := sums[key]; sum != nil {
					for j := range sum {
						sum[j] += grad[j]
					}
				} else {
					sums[key] = append([]float32{}, grad...)
				}
			}
		}
		for key, sum := range sums {
			w.push(i, key, sum, scale)
		}
	}
	for i := range w.s.Dense {
		sum := append([]float32{}, all[0][len(w.s.Sparse)+i].values...)
		for _, g := range all[1:] {
			for j, v := range g[len(w.s.Sparse)+i].values {
				sum[j] += v
			}
		}
		w.opts[i].BeginStep()
		w.opts[i].Update(0, w.dense[i], sum, scale)
	}
}

func (w *twin) setLR(rate float64) {
	for _, r := range w.rules {
		r.(optim.Rated).SetLR(rate)
	}
	for _, o := range w.opts {
		o.SetLR(rate)
	}
}

// compare wants servers to hold the twin's bits.
func (w *twin) compare(t testing.TB, servers []*Engine) {
	t.Helper()
	for i, x := range w.s.Sparse {
		for key, r := range w.rows[i] {
			e := servers[schema.Owner(key, len(servers))]
			got := make([]float32, x.Dim)
			must(t, e.PullRows(anyPull, i, []uint64{key}, got))
			if !same(got, r[0]) {
				t.Errorf("table %s: key %d is %v, want %v", x.Name, key, got, r[0])
				return
			}
		}
	}
	for i, x := range w.s.Dense {
		got := make([]float32, x.Len)
		for _, e := range servers {
			d := e.dense[i]
			must(t, e.PullDense(i, d.lo, got[d.lo:d.hi]))
		}
		if !same(got, w.dense[i]) {
			t.Errorf("array %s differs: %v, want %v", x.Name, got[:4], w.dense[i][:4])
		}
	}
}

func same(a, b []float32) bool {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return len(a) == len(b)
}

// split cuts a trainer's gradients of a table over servers.
func split(g grads, dim, servers int) []grads {
	out := make([]grads, servers)
	for i, key := range g.keys {
		o := &out[schema.Owner(key, servers)]
		o.keys = append(o.keys, key)
		o.values = append(o.values, g.values[i*dim:][:dim]...)
	}
	return out
}

func name(format string, a ...any) string { return fmt.Sprintf(format, a...) }
