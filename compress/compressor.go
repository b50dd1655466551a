package compress

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/optim"
)

// Bucket is a range of the arena, [Lo, Hi), whose values are exchanged together,
// and selected from together: one threshold. Parts are places inside, ascending,
// where a selection of its own begins, as for a threshold per layer.
type Bucket struct {
	Lo, Hi int
	Parts  []int
}

// Compressor is a chain with its state for the parameters of a rank: residuals,
// velocities, thresholds. invariant[nothing-is-lost]: what a step sends and what it
// keeps are together its gradient and what was kept before, place by place, through
// every change of groups and of the chain. It is used by one goroutine at a time.
type Compressor struct {
	chain      *Chain
	layout     *Layout
	residual   *Memory // nil: nothing is kept
	transforms []Transformer
	work       *Workspace
	coder      *Coder
	groups     []Bucket
	picks      map[[2]int]Selection // by range
	parts      [][]part             // by group
	state      []optim.State
}

// residualName is the first part of residuals' names in checkpoints.
const residualName = "residual"

// part is a range [lo, hi) of the arena that is selected from by itself.
type part struct {
	lo, hi    int
	padded    bool      // some of its values are padding
	selection Selection // nil of a range without parameters, and of chains without one
}

// Bind makes the state of a chain for the parameters of an arena of n values.
// Nothing is kept yet, and there is one group, of all. pool may be nil.
func (c *Chain) Bind(params []Param, n int, pool Pool) (*Compressor, error) {
	l, err := NewLayout(params, n)
	if err != nil {
		return nil, err
	}
	b := &Compressor{chain: c, layout: l, work: NewWorkspace(pool), coder: c.NewCoder()}
	if c.Feedback() {
		b.residual = NewMemory(residualName, l)
	}
	for _, t := range c.transforms {
		b.transforms = append(b.transforms, t.Bind(l))
	}
	return b, b.SetGroups([]Bucket{{Lo: 0, Hi: n}})
}

// Change goes on with another chain, between steps: another ratio, as in a warm-up,
// or another strategy. What is kept stays; a chain without a selection adds it
// to its next gradients. Velocities stay where both chains correct momentum,
// thresholds do not: the first selections are exact.
func (c *Compressor) Change(chain *Chain) error {
	if c.residual == nil && chain.Feedback() {
		c.residual = NewMemory(residualName, c.layout)
	}
	var transforms []Transformer
	for _, t := range chain.transforms {
		made := t.Bind(c.layout)
		if m, ok := made.(*momentum); ok {
			for _, old := range c.transforms {
				if o, ok := old.(*momentum); ok {
					m.velocity = o.velocity
				}
			}
		}
		transforms = append(transforms, made)
	}
	c.chain, c.transforms, c.coder, c.picks = chain, transforms, chain.NewCoder(), nil
	return c.SetGroups(c.groups)
}

// SetGroups changes the groups, between steps. What is kept does not change. A
// range that was selected from before keeps its threshold; the first selection
// from any other is exact.
func (c *Compressor) SetGroups(groups []Bucket) error {
	var errs []error
	bounds := make([][]int, len(groups))
	for i, g := range groups {
		b := append(append([]int{g.Lo}, g.Parts...), g.Hi)
		for j := range b[1:] {
			if g.Lo < 0 || b[j+1] < b[j] || g.Hi > c.layout.length {
				errs = append(errs, fmt.Errorf("group %d: range [%d, %d) with parts at %v: want ascending places in an arena of %d values", i, g.Lo, g.Hi, g.Parts, c.layout.length))
				break
			}
		}
		bounds[i] = b
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	old := c.picks
	c.groups, c.parts, c.picks = append([]Bucket(nil), groups...), make([][]part, len(groups)), map[[2]int]Selection{}
	for i, b := range bounds {
		for j, lo := range b[:len(b)-1] {
			c.parts[i] = append(c.parts[i], c.pick(old, lo, b[j+1]))
		}
	}
	c.gatherState()
	return nil
}

// pick returns the part that is a range, with the selection that the range has, or
// had.
func (c *Compressor) pick(old map[[2]int]Selection, lo, hi int) part {
	at := [2]int{lo, hi}
	values := c.layout.Values(lo, hi)
	if values == 0 || c.chain.selector == nil {
		return part{lo: lo, hi: hi}
	}
	if c.picks[at] == nil {
		if c.picks[at] = old[at]; c.picks[at] == nil {
			c.picks[at] = c.chain.selector.Bind(values)
		}
	}
	return part{lo, hi, values < hi-lo, c.picks[at]}
}

func (c *Compressor) gatherState() {
	c.state = nil
	if c.residual != nil {
		c.state = append(c.state, c.residual.State()...)
	}
	for _, t := range c.transforms {
		c.state = append(c.state, t.State()...)
	}
	done := map[[2]int]bool{}
	for _, parts := range c.parts {
		for _, p := range parts {
			at := [2]int{p.lo, p.hi}
			if p.selection == nil || done[at] {
				continue
			}
			done[at] = true
			for _, s := range p.selection.State() {
				c.state = append(c.state, optim.State{Name: fmt.Sprintf("selection/%d:%d/%s", p.lo, p.hi, s.Name), Data: s.Data})
			}
		}
	}
}

// State returns what a checkpoint holds of this rank, as slices that may be read
// and overwritten between steps: residuals and velocities, named by parameter,
// such as "residual/conv1.weight", and thresholds, named by range, such as
// "selection/0:5000/threshold". Written back after the same SetGroups it
// continues a run with the same bits; with other groups, residuals alone
// continue it, and the first selections are exact.
func (c *Compressor) State() []optim.State { return c.state }

// Absorb takes over what another rank kept, its State, times factor: see
// [Inherited]. Thresholds are left alone. Residuals are an error where the chain keeps
// none: they would be lost.
func (c *Compressor) Absorb(states []optim.State, factor float32) error {
	var err error
	if c.residual != nil {
		err = c.residual.Absorb(states, factor)
	} else if i := slices.IndexFunc(states, func(s optim.State) bool { return strings.HasPrefix(s.Name, residualName+"/") }); i >= 0 {
		err = fmt.Errorf("compress: %s was handed over to chain %v, which keeps nothing: hand it over to a chain that does, and call Change then", states[i].Name, c.chain)
	}
	for _, t := range c.transforms {
		if m, ok := t.(*momentum); ok {
			err = errors.Join(err, m.velocity.Absorb(states, factor))
		}
	}
	return err
}

// Chain is the chain of the compressor.
func (c *Compressor) Chain() *Chain { return c.chain }

// Layout is the arena's; see [Layout.ClearPadding].
func (c *Compressor) Layout() *Layout { return c.layout }

// Residual is what is kept for the arena's values [lo, hi), or nil where the
// chain keeps nothing.
func (c *Compressor) Residual(lo, hi int) []float32 {
	if c.residual == nil {
		return nil
	}
	return c.residual.Range(lo, hi)
}

// Keep adds to what is kept for the arena's values from lo on, as what a sum lost in
// which they had a part. It does nothing where the chain keeps nothing.
func (c *Compressor) Keep(lo int, lost []float32) {
	if c.residual == nil {
		return
	}
	kept := c.residual.Range(lo, lo+len(lost))
	c.work.kernel().Add(kept, lost)
	c.layout.ClearPadding(lo, kept) // it is not in checkpoints
}

// Last tells about the last selection from a group's part; parts count from 0.
func (c *Compressor) Last(group, part int) Pick {
	if p := c.parts[group][part].selection; p != nil {
		return p.Last()
	}
	return Pick{}
}

func (c *Compressor) wrong(group int, grads []float32, what string, sparse bool) error {
	if group < 0 || group >= len(c.groups) {
		return fmt.Errorf("compress: %s of group %d: there are %d groups", what, group, len(c.groups))
	}
	if n := c.groups[group].Hi - c.groups[group].Lo; n != len(grads) {
		return fmt.Errorf("compress: %s of group %d: %d gradients were given, the group has %d values", what, group, len(grads), n)
	}
	if sparse != (c.chain.selector != nil) {
		return fmt.Errorf("compress: %s with %v: Select is for chains with a selection, Round for others", what, c.chain)
	}
	return nil
}

// Select makes s what this rank sends of a group: indices count from the group's
// Lo, and values are as others will decode them. The rest of gradient and
// residual is kept. grads are the group's gradients; transforms change them in
// place. The error is a *ValueError, or a call that does not fit the groups.
func (c *Compressor) Select(s *Sparse, group int, grads []float32) error {
	if err := c.wrong(group, grads, "Select", true); err != nil {
		return err
	}
	g := &c.groups[group]
	for _, t := range c.transforms {
		t.Apply(g.Lo, grads)
	}
	s.Reset(len(grads))
	for _, p := range c.parts[group] {
		if p.selection == nil {
			continue
		}
		start := len(s.Index)
		p.selection.Select(c.work, s, p.lo-g.Lo, c.residual.Range(p.lo, p.hi), grads[p.lo-g.Lo:p.hi-g.Lo])
		if last := p.selection.Last(); p.padded && last.Exact && last.Threshold == 0 {
			c.offPadding(s, start, g.Lo, p)
		}
	}
	if at := s.nan(0); at >= 0 {
		return c.named(&ValueError{Value: s.Value[at]}, g.Lo+int(s.Index[at]))
	}
	for _, t := range c.transforms {
		t.Sent(g.Lo, s.Index)
	}
	return c.roundEntries(s, g)
}

// offPadding makes the zeros that an exact selection has sent of a part, from entry start
// on, those of parameters: to a selection padding is like other zeros. It is called where
// fewer values than are sent are not zero, and costs a pass.
func (c *Compressor) offPadding(s *Sparse, start, groupLo int, p part) {
	zeros, residual := 0, c.residual.Range(p.lo, p.hi)
	for _, v := range s.Value[start:] {
		if v == 0 {
			zeros++
		}
	}
	putBack(residual, p.lo-groupLo, s.Index[start:], s.Value[start:])
	s.Index, s.Value = s.Index[:start], s.Value[:start]
	for _, param := range c.layout.within(p.lo, p.hi) {
		for at := max(param.Lo, p.lo); at < min(param.Hi, p.hi); at++ {
			v := residual[at-p.lo]
			if v == 0 && zeros == 0 {
				continue
			} else if v == 0 {
				zeros--
			}
			s.Append(at-groupLo, v)
			residual[at-p.lo] = 0
		}
	}
}

// roundEntries makes the values what others will decode, and keeps the rest.
func (c *Compressor) roundEntries(s *Sparse, g *Bucket) error {
	q := c.chain.quantiser
	if q.Code() == CodeFP32 {
		return nil
	}
	if q.Block() > 1 && q.Code() != CodeSign {
		if _, index := c.coder.layout(s); headerBytes+index+q.Size(len(s.Value)) > headerBytes+q.Size(s.Len) {
			s.fill() // blocks are of entries: what is sent dense must be rounded so
		}
	}
	w, residual := c.work, c.residual.Range(g.Lo, g.Hi)
	w.values = bytesview.Sized(w.values, roundBlock(q))
	for at := 0; at < len(s.Value); at += len(w.values) {
		x := s.Value[at:min(at+len(w.values), len(s.Value))]
		y, err := w.decoded(q, x)
		if err != nil {
			e, ok := err.(*ValueError)
			if !ok {
				return err
			}
			return c.named(e, g.Lo+int(s.Index[at+e.Index]))
		}
		for i, v := range x {
			residual[s.Index[at+i]] += v - y[i] // of what was selected it was zero
			x[i] = y[i]
		}
	}
	if q.Block() > 1 { // a zero that was selected may have become a value
		c.layout.ClearPadding(g.Lo, residual)
	}
	return nil
}

// roundBlock is how many values are rounded at a time: whole blocks that fit the
// nearest cache.
func roundBlock(q Quantiser) int { return (takeChunk + q.Block() - 1) / q.Block() * q.Block() }

// decoded is what others will decode of x. It is valid until the next call.
func (w *Workspace) decoded(q Quantiser, x []float32) ([]float32, error) {
	w.bytes = bytesview.Sized(w.bytes, q.Size(len(x)))
	if err := q.Encode(w.bytes, x); err != nil {
		return nil, err
	}
	y := w.values[:len(x)]
	return y, q.Decode(y, w.bytes)
}

// Round makes a group's gradients what others will decode of them. Where there
// is a residual it is added first, and the rest is kept. Payloads of ranges that
// begin at whole blocks of the code, counted from the group's Lo, have the same
// values. The error is a *ValueError, or a call that does not fit the groups.
func (c *Compressor) Round(group int, grads []float32) error {
	if err := c.wrong(group, grads, "Round", false); err != nil {
		return err
	}
	g, q, w := c.groups[group], c.chain.quantiser, c.work
	for _, t := range c.transforms {
		t.Apply(g.Lo, grads)
	}
	w.values = bytesview.Sized(w.values, roundBlock(q))
	for at := 0; at < len(grads); at += len(w.values) {
		x := grads[at:min(at+len(w.values), len(grads))]
		if err := c.roundDense(x, g.Lo+at); err != nil {
			return err
		}
	}
	return nil
}

func (c *Compressor) roundDense(x []float32, lo int) error {
	q, k, sum := c.chain.quantiser, c.work.kernel(), x
	if c.residual != nil {
		sum = c.residual.Range(lo, lo+len(x))
		k.Add(sum, x)
	}
	if q.Code() == CodeFP32 {
		if e, ok := reject(sum, simd.InfMagnitude+1, "fp32").(*ValueError); ok {
			return c.named(e, lo+e.Index)
		}
		if c.residual != nil { // of the chain before
			copy(x, sum)
			clear(sum)
		}
		return nil
	}
	y, err := c.work.decoded(q, sum)
	if e, ok := err.(*ValueError); ok {
		return c.named(e, lo+e.Index)
	} else if err != nil {
		return err
	}
	if c.residual != nil {
		k.Subtract(sum, y)
		c.layout.ClearPadding(lo, sum) // it is not in checkpoints
	}
	copy(x, y)
	return nil
}

// named completes an error with the parameter that holds a place of the arena.
func (c *Compressor) named(e *ValueError, at int) error {
	if p, ok := c.layout.At(at); ok {
		e.Param, e.Index = p.Name, at-p.Lo
	} else {
		e.Param, e.Index = "(padding)", at
	}
	return e
}

// Encode appends the payload of s, which Select gave, to dst.
func (c *Compressor) Encode(dst []byte, s *Sparse) ([]byte, error) { return c.coder.Encode(dst, s) }

// Decode makes s what a payload holds; see [Coder.Decode].
func (c *Compressor) Decode(s *Sparse, payload []byte) error { return c.coder.Decode(s, payload) }

// EncodeDense appends the payload of x, all values of it, to dst.
func (c *Compressor) EncodeDense(dst []byte, x []float32) ([]byte, error) {
	return c.coder.EncodeDense(dst, x)
}

// DecodeDense fills x with the values of a payload; see [Coder.DecodeDense].
func (c *Compressor) DecodeDense(x []float32, payload []byte) error {
	return c.coder.DecodeDense(x, payload)
}
