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

// Memory is plain arrays as large as a table's rows and their state, without keys, to
// measure what memory allows.
type Memory struct {
	dim    int
	rows   int
	rule   optim.RowRule
	data   []float32
	state  [][]float32
	ids    []int32 // batches of rows, different ones in each
	batch  int
	dist   Dist // of ids
	unique set
	dst    []float32
	grads  []float32
	at     uint32 // where the chase goes on
}

// Rates are how many rows a second one thread reaches that does nothing else.
type Rates struct {
	// Chase copies one row after the other, each at a place that the one before says, all
	// over the array: what the latency of memory allows.
	Chase float64
	// Gather copies rows of places that are known beforehand, many at a time: what
	// pulling could be at most. They are as often asked for as keys are.
	Gather float64
	// Update applies the rule to such rows: what pushing could be at most.
	Update float64
}

// maxMemory bounds the arrays in bytes.
const maxMemory = 1 << 30

// NewMemory makes arrays for a table of so many rows, of fewer where they would take
// more than 1 GiB together. Draw says what is asked of them.
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

// Draw draws batches of about a million rows together, of small arrays of each row a few
// times, with the skew of a distribution of keys. Batches are of an eighth of the rows at
// most, or shortened to that. What was drawn last is not drawn again.
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
			// Ranks are scattered over the rows; that some share one makes no difference.
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

// Measure takes the time d for each of the rates of what Draw has drawn.
func (m *Memory) Measure(ctx context.Context, d time.Duration) (Rates, error) {
	m.link()
	r := Rates{Chase: m.rate(ctx, d, m.chase)}
	for i := range m.data { // the links are no weights
		m.data[i] = 0
	}
	r.Gather = m.rate(ctx, d, m.gather)
	r.Update = m.rate(ctx, d, m.update)
	return r, context.Cause(ctx)
}

// rate calls f for batch after batch.
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

// link writes to each row's first value which row comes next. Up to the largest power
// of two the rows are one circle: a linear congruential sequence of full period (Hull
// and Dobell 1962).
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
