package loadgen

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/ringo-ml/ringo/internal/hugepage"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Memory has plain arrays as large as a table's rows with state, to measure the memory's speed.
type Memory struct {
	dim    int
	rows   int
	rule   optim.RowRule
	data   []float32
	state  [][]float32
	ids    []int32 // batches of distinct rows
	batch  int
	dist   Dist // distribution of ids
	unique set
	dst    []float32
	grads  []float32
	at     uint32 // next row of chase
}

// Rates are the rows per second of a single thread without other work.
type Rates struct {
	// Chase copies single rows, each at a position stored in the previous one, all over the array:
	// the limit by memory latency.
	Chase float64
	// Gather copies many rows at known positions at a time: the limit of pulls. A row is copied as
	// often as its key is drawn.
	Gather float64
	// Update applies the rule to such rows: the limit of pushing.
	Update float64
}

const maxMemory = 1 << 30

// NewMemory returns arrays for a table of this number of rows, up to 1 GiB. Draw selects rows.
func NewMemory(t schema.Sparse, rows uint64) (*Memory, error) {
	rule, err := t.Rule.Rows()
	if err != nil {
		return nil, err
	}
	parts := rule.Parts(t.Dim)
	width := t.Dim
	for _, p := range parts {
		width += p.Width
	}
	m := &Memory{dim: t.Dim, rule: rule, rows: int(min(rows, uint64(maxMemory/4/width)))}
	m.data = hugepage.Floats(m.rows * t.Dim)
	for _, p := range parts {
		s := hugepage.Floats(m.rows * p.Width)
		for i := range s {
			s[i] = p.Initial
		}
		m.state = append(m.state, s)
	}
	return m, nil
}

// Draw draws batches of about a million rows in total, or each row of a small array a few times,
// with the skew of a distribution of keys. A batch has at most an eighth of the rows. A repetition
// of the last Draw has no effect.
func (m *Memory) Draw(d Dist, batch int) error {
	const most, each = 1 << 20, 8
	batch = max(1, min(batch, m.rows/each))
	if len(m.ids) > 0 && m.dist == d && m.batch == batch {
		return nil
	}
	r := rand.New(rand.NewPCG(1, 1))
	next, err := d.ranks(uint64(m.rows), r)
	if err != nil {
		return err
	}
	m.dist, m.batch = d, batch
	m.ids = m.ids[:0]
	for range max(1, min(most, 4*m.rows)/m.batch) {
		m.unique.reset(m.batch)
		for have := 0; have < m.batch; {
			// Ranks are scattered over the rows; collisions make no difference.
			if id := Key(next()) % uint64(m.rows); m.unique.add(id) {
				m.ids = append(m.ids, int32(id))
				have++
			}
		}
	}
	m.dst, m.grads = make([]float32, m.batch*m.dim), make([]float32, m.batch*m.dim)
	for i := range m.grads {
		m.grads[i] = 1e-3 * (r.Float32() - 0.5)
	}
	return nil
}

// Measure measures each of the rates for a time d, with the batches of Draw.
func (m *Memory) Measure(ctx context.Context, d time.Duration) (Rates, error) {
	m.link()
	r := Rates{Chase: m.rate(ctx, d, m.chase)}
	for i := range m.data { // links are no weights
		m.data[i] = 0
	}
	r.Gather = m.rate(ctx, d, m.gather)
	r.Update = m.rate(ctx, d, m.update)
	return r, context.Cause(ctx)
}

// rate calls f for batch after batch, and returns rows per second.
func (m *Memory) rate(ctx context.Context, d time.Duration, f func(ids []int32)) float64 {
	batches, done := len(m.ids)/m.batch, 0
	start := time.Now()
	for ; done == 0 || time.Since(start) < d && ctx.Err() == nil; done++ {
		f(m.ids[done%batches*m.batch:][:m.batch])
	}
	return float64(done*m.batch) / time.Since(start).Seconds()
}

func (m *Memory) gather(ids []int32) { simd.Host().Lookup(m.dst, m.data, ids, m.dim) }

func (m *Memory) update(ids []int32) { m.rule.UpdateRows(m.data, m.state, m.dim, ids, m.grads, 1) }

// link writes the next row to each row's first value. Up to the largest power of two the rows form
// a cycle: a linear congruential sequence of full period (Hull and Dobell 1962).
func (m *Memory) link() {
	mask := uint32(1)
	for int(2*mask) <= m.rows {
		mask *= 2
	}
	mask--
	for i := range mask + 1 {
		m.data[int(i)*m.dim] = math.Float32frombits((i*1664525 + 1013904223) & mask)
	}
	m.at = 0
}

// chase copies as many rows as a batch has.
func (m *Memory) chase([]int32) {
	at := m.at
	for i := range m.batch {
		to := m.dst[i*m.dim:][:m.dim]
		copy(to, m.data[int(at)*m.dim:][:m.dim])
		at = math.Float32bits(to[0])
	}
	m.at = at
}
