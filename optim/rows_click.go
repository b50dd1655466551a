package optim

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/simd"
)

// ClickRows is the rule of click models' tables: row-wise Adagrad with bounded
// weights, and rows that count their shows and clicks.
//
// A row has weights that all rows have (embed, usually one value) and may have
// an extension (embedx), which only rows worth it get. The extension is a row of
// another array, that the caller keeps and links with the first:
//
//  1. UpdateClicks moves figures and weights of the rows of a push.
//  2. Where a row has no extension and Policy.Extends says so of its figures, the
//     caller makes one, with weights that depend on the key alone. Until then a
//     pull sees zeros, and gradients of the extension are dropped.
//  3. UpdateExtensions moves those that were there before the push.
//  4. Once a day Policy.Age and Policy.Deletes say of each row what it is worth.
//
// Used as a plain [RowRule], each gradient is one show without a click, and all
// of a row's weights are there from its first touch.
type ClickRows struct {
	// Rule moves the weights.
	Rule RowWiseAdagrad
	// Policy decides about rows.
	Policy ClickPolicy
	// ByShow divides a row's gradient by its shows in the push, where it has
	// any: gradients are sums over samples, and rows that are in many of a
	// batch's would make large steps. The rate then is for a mean.
	ByShow bool
	// Bound is the largest magnitude of a weight, 0 for none.
	Bound float64
}

var (
	_ RowRule = (*ClickRows)(nil)
	_ Rated   = (*ClickRows)(nil)
)

// NewClickRows is ClickRows with a learning rate, usually 0.05, an initial sum of
// 3, the usual policy, gradients divided by shows, and weights within [-10, 10].
func NewClickRows(lr float64) *ClickRows {
	return &ClickRows{Rule: *NewRowWiseAdagrad(lr), Policy: NewClickPolicy(), ByShow: true, Bound: 10}
}

// Name returns "click".
func (c *ClickRows) Name() string { return "click" }

// Validate reports every setting that is out of its range.
func (c *ClickRows) Validate() error {
	f := append(c.Rule.faults(), c.Policy.faults()...)
	f.notNegative("bound", c.Bound)
	return f.err(c.Name())
}

// SetLR sets the rule's learning rate.
func (c *ClickRows) SetLR(lr float64) { c.Rule.SetLR(lr) }

// CurrentLR returns the rule's learning rate.
func (c *ClickRows) CurrentLR() float64 { return c.Rule.CurrentLR() }

// Parts returns the rule's sum and the [Figures], four values for each row.
func (c *ClickRows) Parts(dim int) []RowPart {
	return append(c.Rule.Parts(dim), RowPart{Name: "figures", Width: FigureCount})
}

// UpdateRows is UpdateClicks of one show each and no click.
func (c *ClickRows) UpdateRows(data []float32, state [][]float32, dim int, ids []int32, grads []float32, gradScale float32) {
	c.UpdateClicks(data, state, dim, ids, grads, nil, nil, gradScale)
}

// UpdateClicks applies the rule to rows ids of data and of the state, with the
// shows and clicks that row i of grads is the sum over: 0 or more each. nil
// stands for one show each, and for no clicks.
func (c *ClickRows) UpdateClicks(data []float32, state [][]float32, dim int, ids []int32, grads, shows, clicks []float32, gradScale float32) {
	if shows != nil && len(shows) != len(ids) || clicks != nil && len(clicks) != len(ids) {
		panic(fmt.Sprintf("optim: click: %d shows and %d clicks of %d rows", len(shows), len(clicks), len(ids)))
	}
	c.update(data, state, dim, ids, grads, shows, gradScale)
	show, click := float32(1), float32(0)
	for i, id := range ids {
		if shows != nil {
			show = shows[i]
		}
		if clicks != nil {
			click = clicks[i]
		}
		c.Policy.Seen(FiguresOf(state[1], id), show, click).Put(state[1], id)
	}
}

// update moves weights and sums, some rows at a time, so that the bound finds
// them in the caches.
func (c *ClickRows) update(data []float32, state [][]float32, dim int, ids []int32, grads, shows []float32, gradScale float32) {
	k := simd.Host()
	for len(ids) > 0 {
		n, scales := c.stretch(len(ids), shows)
		c.Rule.UpdateScaled(data, state, dim, ids[:n], grads[:n*dim], scales, gradScale)
		if c.Bound > 0 {
			k.ClampRows(data, ids[:n], dim, -float32(c.Bound), float32(c.Bound))
		}
		ids, grads = ids[n:], grads[n*dim:]
		if shows != nil {
			shows = shows[n:]
		}
	}
}

// stretch is how many of n rows, at most boundedRows, can be updated together,
// and their scales: rows without shows have none.
func (c *ClickRows) stretch(n int, shows []float32) (rows int, scales []float32) {
	n = min(n, boundedRows)
	if !c.ByShow || shows == nil {
		return n, nil
	}
	shown := shows[0] > 0
	for rows = 1; rows < n && shows[rows] > 0 == shown; rows++ {
	}
	if !shown {
		return rows, nil
	}
	return rows, shows[:rows]
}

// UpdateExtensions applies the rule to extensions: rows ids of data, which are
// numbered on their own, and of their state, which is the rule's sum alone. shows
// are those of the rows that they extend.
func (c *ClickRows) UpdateExtensions(data []float32, state [][]float32, dim int, ids []int32, grads, shows []float32, gradScale float32) {
	if shows != nil && len(shows) != len(ids) {
		panic(fmt.Sprintf("optim: click: %d shows of %d extensions", len(shows), len(ids)))
	}
	c.update(data, state, dim, ids, grads, shows, gradScale)
}

// ExtensionParts are the parts of the state of extensions of dim values.
func (c *ClickRows) ExtensionParts(dim int) []RowPart { return c.Rule.Parts(dim) }
