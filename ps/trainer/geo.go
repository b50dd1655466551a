package trainer

import (
	"fmt"

	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/rows"
)

// geo is a trainer's copies of parameters: all dense ones, and the rows that were touched since
// the last exchange, by number as they were touched.
type geo struct {
	copies float32 // of all trainers: what moves are divided by
	stale  bool    // the dense values are not what the servers had
	base   []float32
	moves  []float32 // room

	rule    optim.RowRule // nil: there is no table
	dim     int
	parts   []optim.RowPart
	seen    compacter   // the rows
	begun   int         // of them, those that have come
	weights []float32   // by row, as all that follows
	from    []float32   // what the servers had
	state   [][]float32 // by part

	kept    *rows.Table // the state of all rows ever touched, as weights; nil: they have none
	values  []float32   // room: states as kept has them
	missing []int32     // room
}

func newGeo(cfg Config) (*geo, error) {
	g := &geo{copies: float32(cfg.Copies), stale: true, base: make([]float32, len(cfg.Values))}
	if len(cfg.Schema.Sparse) == 0 {
		return g, nil
	}
	s := cfg.Schema.Sparse[table]
	var err error
	if g.rule, err = s.Rule.Rows(); err != nil {
		return nil, err
	}
	g.dim, g.parts = s.Dim, g.rule.Parts(s.Dim)
	g.state = make([][]float32, len(g.parts))
	width := 0
	for _, p := range g.parts {
		width += p.Width
	}
	if width == 0 {
		return g, nil
	}
	initial := make([]float32, 0, width)
	for _, p := range g.parts {
		for range p.Width {
			initial = append(initial, p.Initial)
		}
	}
	g.kept, err = rows.New(rows.Config{
		Name: s.Name, Dim: width, Rule: &optim.SGDRows{LR: 1}, MaxRows: cfg.Rows,
		Init: func(dst []float32, _ uint64) { copy(dst, initial) },
	})
	return g, err
}

func (g *geo) close() error {
	if g.kept == nil {
		return nil
	}
	return g.kept.Close()
}

func (g *geo) setRate(rate float64) {
	if r, ok := g.rule.(optim.Rated); ok {
		r.SetLR(rate)
	}
}

// take makes values that have come from the servers those that moves are counted from.
func (g *geo) take(values []float32) {
	copy(g.base, values)
	g.stale = false
}

// extend makes room for rows that were seen and have not come, and returns their keys, and where
// their weights go. What was handed out before stays as it is.
func (g *geo) extend() (keys []uint64, weights []float32) {
	keys = g.seen.keys[g.begun:]
	n := len(keys)
	g.weights, g.from = grown(g.weights, n*g.dim), grown(g.from, n*g.dim)
	for i, p := range g.parts {
		g.state[i] = grown(g.state[i], n*p.Width)
	}
	return keys, g.weights[g.begun*g.dim:]
}

// begin makes rows that have come copies: their state is what it was when they were last here.
func (g *geo) begin() (err error) {
	first, keys := g.begun, g.seen.keys[g.begun:]
	g.begun = len(g.seen.keys)
	copy(g.from[first*g.dim:], g.weights[first*g.dim:])
	if g.kept == nil || len(keys) == 0 {
		return nil
	}
	width := g.kept.Dim()
	g.values = grown(g.values[:0], len(keys)*width)
	if g.missing, err = g.kept.Peek(keys, g.values, g.missing[:0]); err != nil {
		return fmt.Errorf("ps: trainer: the state of %d rows: %w", len(keys), err)
	}
	at := g.values
	for i := range keys {
		for k, p := range g.parts {
			at = at[copy(g.state[k][(first+i)*p.Width:][:p.Width], at):]
		}
	}
	return nil
}

// keep remembers the state of all rows that are here.
func (g *geo) keep() error {
	if g.kept == nil || g.begun == 0 {
		return nil
	}
	g.values = g.values[:0]
	for i := range g.begun {
		for k, p := range g.parts {
			g.values = append(g.values, g.state[k][i*p.Width:][:p.Width]...)
		}
	}
	if _, err := g.kept.Import(g.seen.keys[:g.begun], g.values, nil, true); err != nil {
		return fmt.Errorf("ps: trainer: keeping the state of %d rows: %w", g.begun, err)
	}
	return nil
}

// move moves rows by gradients.
func (g *geo) move(at []int32, grads []float32) {
	g.rule.UpdateRows(g.weights, g.state, g.dim, at, grads, 1)
}

// share sends by how much copies have moved, and forgets the rows.
func (g *geo) share(session *client.Session, step uint64, values []float32) error {
	if g.stale {
		return nil // they have not come since they were sent
	}
	if g.begun > 0 {
		keys, n := g.seen.keys[:g.begun], g.begun*g.dim
		if err := session.PushRows(table, step, keys, g.moved(g.weights[:n], g.from)); err != nil {
			return err
		}
	}
	if err := g.keep(); err != nil {
		return err
	}
	g.seen.begin()
	g.begun, g.weights, g.from = 0, g.weights[:0], g.from[:0]
	for k := range g.state {
		g.state[k] = g.state[k][:0]
	}
	g.stale = true
	return session.PushDense(array, step, 0, g.moved(values, g.base))
}

// moved is the part of this trainer in what the values become: where one trainer has moved them, all of it.
func (g *geo) moved(now, before []float32) []float32 {
	g.moves = grown(g.moves[:0], len(now))
	for i, v := range now {
		g.moves[i] = (v - before[i]) / g.copies
	}
	return g.moves
}
