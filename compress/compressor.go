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

// Bucket is a range [Lo, Hi) of all gradients that is exchanged together, by default with one
// selection and so one threshold. Parts are ascending indices at which further selections begin,
// for example at each layer.
type Bucket struct {
	Lo, Hi int
	Parts  []int
}

// Compressor is a chain with its state for a rank's parameters: residuals (unsent values),
// velocities of momentum correction, thresholds. invariant[nothing-is-lost]: the sent entries of a
// step plus its residual always equal the gradient plus the old residual, value by value, through
// every change of groups and of the chain. It is used by one goroutine at a time.
type Compressor struct {
	chain      *Chain
	layout     *Layout
	residual   *Memory // nil: no residual
	transforms []Transformer
	work       *Workspace
	coder      *Coder
	groups     []Bucket
	picks      map[[2]int]Selection
	parts      [][]part
	state      []optim.State
}

// residualName is the first part of residuals' names in checkpoints.
const residualName = "residual"

// part is a range [lo, hi) of all gradients with a separate selection.
type part struct {
	lo, hi    int
	padded    bool      // contains padding
	selection Selection // nil for a range without parameters or a chain without a selector
}

// Bind creates the state of a chain for an arena of n values that has params, with residuals of
// zero and a single group of all values. pool may be nil.
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

// Change replaces the chain between steps, such as for another ratio in a warm-up or for another
// strategy. Residuals stay; a chain without a selection adds them to its next gradients. Velocities
// stay if both chains correct momentum. Thresholds do not stay: the first selections are exact.
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

// SetGroups changes the groups between steps. Residuals do not change. A range with an earlier
// selection keeps its threshold; the first selection of any other range is exact.
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

// pick returns the part for [lo, hi), with the selection that old has for it, or a new one.
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

// State returns this rank's data for a checkpoint, as slices that callers may read and overwrite
// between steps: residuals and velocities, named by parameter, such as "residual/conv1.weight", and
// thresholds, named by range, such as "selection/0:5000/threshold". To continue a run with the same
// bits, call SetGroups with the same groups and write the data back. With other groups write back
// residuals alone; the first selections are then exact.
func (c *Compressor) State() []optim.State { return c.state }

// Absorb adds another rank's State, times factor, to this one: see [Inherited]. Thresholds are
// ignored. A chain without a residual rejects residuals: they would be lost.
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

// Layout is the layout of the arena; see [Layout.ClearPadding].
func (c *Compressor) Layout() *Layout { return c.layout }

// Residual is the residual of the arena's values [lo, hi), or nil without residuals.
func (c *Compressor) Residual(lo, hi int) []float32 {
	if c.residual == nil {
		return nil
	}
	return c.residual.Range(lo, hi)
}

// Keep adds lost, such as the compression error of a sum, to the residual from the arena's value lo
// on. Without residuals it has no effect.
func (c *Compressor) Keep(lo int, lost []float32) {
	if c.residual == nil {
		return
	}
	kept := c.residual.Range(lo, lo+len(lost))
	c.work.kernel().Add(kept, lost)
	c.layout.ClearPadding(lo, kept) // because checkpoints do not contain padding
}

// Last describes the last selection from a part, counted from 0, of a group.
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

// Select sets s to the entries that this rank sends of a group: indices count from the group's Lo,
// and values are as other ranks will decode them. The new residual is the gradient plus the old
// residual, minus the sent values. grads are the group's gradients; transforms change them in
// place. Errors: a *ValueError, or grads of another length than the group.
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

// offPadding corrects an exact selection from part p, the entries from start on. If fewer values
// are nonzero than must be sent, a selection also takes zeros, and may take padding between
// parameters. offPadding replaces such entries by zeros of parameters, at the cost of a pass.
func (c *Compressor) offPadding(s *Sparse, start, groupLo int, p part) {
	zeros, residual := 0, c.residual.Range(p.lo, p.hi)
	for _, v := range s.Value[start:] {
		if v == 0 {
			zeros++
		}
	}
	s.giveBack(start, residual, p.lo-groupLo)
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

// roundEntries rounds s to the values that other ranks decode; the residual gets the difference.
func (c *Compressor) roundEntries(s *Sparse, g *Bucket) error {
	q := c.chain.quantiser
	if q.Code() == CodeFP32 {
		return nil
	}
	if q.Block() > 1 && q.Code() != CodeSign {
		if _, index := c.coder.layout(s); headerBytes+index+q.Size(len(s.Value)) > headerBytes+q.Size(s.Len) {
			s.fill() // blocks depend on entries: round as in the dense payload
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
			residual[s.Index[at+i]] += v - y[i] // zero before, for selected values
			x[i] = y[i]
		}
	}
	if q.Block() > 1 { // rounding may turn a selected zero into a value
		c.layout.ClearPadding(g.Lo, residual)
	}
	return nil
}

// roundBlock is the number of values rounded at a time: whole blocks that fit the nearest cache.
func roundBlock(q Quantiser) int { return (takeChunk + q.Block() - 1) / q.Block() * q.Block() }

// decoded returns the values that other ranks will decode for x, valid until the next call.
func (w *Workspace) decoded(q Quantiser, x []float32) ([]float32, error) {
	w.bytes = bytesview.Sized(w.bytes, q.Size(len(x)))
	if err := q.Encode(w.bytes, x); err != nil {
		return nil, err
	}
	y := w.values[:len(x)]
	return y, q.Decode(y, w.bytes)
}

// Round replaces a group's gradients by the values that other ranks will decode. It first adds the
// residual, if any, and then retains the difference. A payload of a part of the group has the same
// values if the part begins at a multiple of the code's Block, counted from the group's Lo. Errors:
// a *ValueError, or grads of another length than the group.
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
		if c.residual != nil { // left by the chain before
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
		c.layout.ClearPadding(lo, sum) // because checkpoints do not contain padding
	}
	copy(x, y)
	return nil
}

// named adds to e the parameter that has value at of the arena.
func (c *Compressor) named(e *ValueError, at int) error {
	if p, ok := c.layout.At(at); ok {
		e.Param, e.Index = p.Name, at-p.Lo
	} else {
		e.Param, e.Index = "(padding)", at
	}
	return e
}

// Encode appends the payload of s, the result of Select, to dst.
func (c *Compressor) Encode(dst []byte, s *Sparse) ([]byte, error) { return c.coder.Encode(dst, s) }

// Decode sets s to the vector of a payload; see [Coder.Decode].
func (c *Compressor) Decode(s *Sparse, payload []byte) error { return c.coder.Decode(s, payload) }

// EncodeDense appends the payload of all values of x to dst.
func (c *Compressor) EncodeDense(dst []byte, x []float32) ([]byte, error) {
	return c.coder.EncodeDense(dst, x)
}

// DecodeDense fills x with the values of a payload; see [Coder.DecodeDense].
func (c *Compressor) DecodeDense(x []float32, payload []byte) error {
	return c.coder.DecodeDense(x, payload)
}
