package trainer

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
)

// geo is the local copy that a trainer has of the parameters: all dense ones, and the rows touched
// since the last exchange, numbered in order of their first use.
type geo struct {
	copies float32 // number of trainers; the server adds each change divided by copies
	stale  bool    // the dense values differ from the servers'
	base   []float32
	deltas []float32 // buffer

	groups []copied
	tables []copies
}

// copied has the rows of a group of tables.
type copied struct {
	unique keyIndex
	begun  int // number of received rows
	tables []int
}

// copies has the copies of a table's rows, numbered as in the group.
type copies struct {
	rule    optim.RowRule
	dim     int
	parts   []optim.RowPart
	weights []float32
	from    []float32   // values from the servers
	state   [][]float32 // state by part

	rowState *rows.Table // state of all rows ever touched, as weights; nil without state
	values   []float32   // buffer in the layout of rowState
	missing  []int32     // buffer
}

func newGeo(cfg Config, all []group) (*geo, error) {
	g := &geo{copies: float32(cfg.Copies), stale: true, base: make([]float32, len(cfg.Values)), groups: make([]copied, len(all)), tables: make([]copies, len(cfg.Lookups))}
	for i, group := range all {
		g.groups[i].tables = group.tables
	}
	for i, s := range cfg.Schema.Sparse {
		if err := g.tables[i].open(s, cfg.Lookups[i].Rows); err != nil {
			return nil, errors.Join(fmt.Errorf("ps: trainer: copies of table %q: %w", s.Name, err), g.close())
		}
	}
	return g, nil
}

// open starts without copies. most is the number of possible rows, 0 for any.
func (c *copies) open(s schema.Sparse, most int) (err error) {
	if c.rule, err = s.Rule.Rows(); err != nil {
		return err
	}
	c.dim, c.parts = s.Dim, c.rule.Parts(s.Dim)
	c.state = make([][]float32, len(c.parts))
	var initial []float32
	for _, p := range c.parts {
		for range p.Width {
			initial = append(initial, p.Initial)
		}
	}
	if len(initial) == 0 {
		return nil
	}
	c.rowState, err = rows.New(rows.Config{
		Name: s.Name, Dim: len(initial), Rule: &optim.SGDRows{LR: 1}, MaxRows: most,
		Init: func(dst []float32, _ uint64) { copy(dst, initial) },
	})
	return err
}

func (g *geo) close() (err error) {
	for i := range g.tables {
		if kept := g.tables[i].rowState; kept != nil {
			err = errors.Join(err, kept.Close())
		}
	}
	return err
}

func (g *geo) setRate(rate float64) {
	for i := range g.tables {
		if r, ok := g.tables[i].rule.(optim.Rated); ok {
			r.SetLR(rate)
		}
	}
}

// take sets the base of deltas to values received from the servers.
func (g *geo) take(values []float32) {
	copy(g.base, values)
	g.stale = false
}

// extend adds n new rows after the begun ones, and returns the slice for their weights. Slices
// returned before stay valid.
func (c *copies) extend(begun, n int) (weights []float32) {
	c.weights, c.from = grown(c.weights[:begun*c.dim], n*c.dim), grown(c.from[:begun*c.dim], n*c.dim)
	for i, p := range c.parts {
		c.state[i] = grown(c.state[i][:begun*p.Width], n*p.Width)
	}
	return c.weights[begun*c.dim:]
}

// begin turns received rows into copies.
func (g *geo) begin() error {
	for i := range g.groups {
		own := &g.groups[i]
		keys := own.unique.keys[own.begun:]
		for _, table := range own.tables {
			if err := g.tables[table].begin(own.begun, keys); err != nil {
				return err
			}
		}
		own.begun += len(keys)
	}
	return nil
}

// begin turns received rows into copies, with the state of their last use.
func (c *copies) begin(first int, keys []uint64) (err error) {
	copy(c.from[first*c.dim:], c.weights[first*c.dim:])
	if c.rowState == nil || len(keys) == 0 {
		return nil
	}
	width := c.rowState.Dim()
	c.values = grown(c.values[:0], len(keys)*width)
	if c.missing, err = c.rowState.Peek(keys, c.values, c.missing[:0]); err != nil {
		return fmt.Errorf("ps: trainer: the state of %d rows: %w", len(keys), err)
	}
	at := c.values
	for i := range keys {
		for k, p := range c.parts {
			at = at[copy(c.state[k][(first+i)*p.Width:][:p.Width], at):]
		}
	}
	return nil
}

// keep saves the state of all rows, and drops them.
func (c *copies) keep(keys []uint64) error {
	if c.rowState != nil && len(keys) > 0 {
		c.values = c.values[:0]
		for i := range keys {
			for k, p := range c.parts {
				c.values = append(c.values, c.state[k][i*p.Width:][:p.Width]...)
			}
		}
		if _, err := c.rowState.Import(keys, c.values, nil, true); err != nil {
			return fmt.Errorf("ps: trainer: keeping the state of %d rows: %w", len(keys), err)
		}
	}
	c.weights, c.from = c.weights[:0], c.from[:0]
	for k := range c.state {
		c.state[k] = c.state[k][:0]
	}
	return nil
}

func (c *copies) move(at []int32, grads []float32) {
	c.rule.UpdateRows(c.weights, c.state, c.dim, at, grads, 1)
}

// pushDeltas sends the changes of the copies, and drops the rows.
func (g *geo) pushDeltas(session *client.Session, step uint64, values []float32) error {
	if g.stale {
		return nil // unchanged: not pulled since the last exchange
	}
	for i := range g.groups {
		own := &g.groups[i]
		keys := own.unique.keys[:own.begun]
		for _, table := range own.tables {
			c, n := &g.tables[table], len(keys)*g.tables[table].dim
			if len(keys) > 0 {
				if err := session.PushRows(table, step, keys, g.delta(c.weights[:n], c.from)); err != nil {
					return err
				}
			}
			if err := c.keep(keys); err != nil {
				return err
			}
		}
		own.unique.begin()
		own.begun = 0
	}
	g.stale = true
	return session.PushDense(array, step, 0, g.delta(values, g.base))
}

// delta returns the change of each value since before, divided by the number of copies.
func (g *geo) delta(now, before []float32) []float32 {
	g.deltas = grown(g.deltas[:0], len(now))
	for i, v := range now {
		g.deltas[i] = (v - before[i]) / g.copies
	}
	return g.deltas
}
