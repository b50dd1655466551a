package optim

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/simd"
)

// ClickRows is the rule of click models' tables: row-wise Adagrad with bounded
// weights, and rows that count their shows and clicks.
//
// A row's first weight (embed_w) learns from its first push on. The others are its
// extension (embedx), which a row gets once its score says that it is worth one:
// until then they are zeros and their gradients are dropped, so that rare keys
// learn one weight and not what a few samples make of many. Each of the two has a
// sum of its own. The extension's place is kept from the row's first touch: what
// is lazy is its learning, not its memory. It stays when the score falls.
//
// A push is made by [ClickRows.UpdateCounted], which counts, moves the weights
// that were there before it, and says which rows are now to be extended. Once a day
// Policy.Age and Policy.Deletes say of each row what it is worth.
//
// Used as a plain [RowRule], each gradient is one show without a click, and all
// of a row's weights are there from its first touch.
type ClickRows struct {
	// Rule moves the weights.
	Rule RowWiseAdagrad
	// RateTimes is what Rule's learning rate is multiplied by, positive: rows learn by
	// a larger rate than the dense parameters of the same job.
	RateTimes float64
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
	_ CountedRule = (*ClickRows)(nil)
	_ Rated       = (*ClickRows)(nil)
)

// clickCounts are the shows and the clicks behind a row's gradient.
const clickCounts = 2

// mostShows is the most that a push may count of a row: float32 counts exactly up to
// there.
const mostShows = 1 << 24

// unextended is the sum of an extension that is not there.
const unextended = -1

// The parts of a row's state; rows of one weight have no extension.
const (
	embedSum = iota
	clickStats
	extensionSum
)

// NewClickRows is ClickRows with a learning rate, usually 0.05, an initial sum of
// 3, the usual policy, gradients divided by shows, and weights within [-10, 10].
func NewClickRows(lr float64) *ClickRows {
	return &ClickRows{Rule: *NewRowWiseAdagrad(lr), RateTimes: 1, Policy: NewClickPolicy(), ByShow: true, Bound: 10}
}

// Name returns "click".
func (c *ClickRows) Name() string { return "click" }

// Validate reports every setting that is out of its range.
func (c *ClickRows) Validate() error {
	f := append(c.Rule.faults(), c.Policy.faults()...)
	f.positive("times of the rate", c.RateTimes)
	f.notNegative("bound", c.Bound)
	return f.err(c.Name())
}

// SetLR sets the rule's learning rate.
func (c *ClickRows) SetLR(lr float64) { c.Rule.SetLR(lr) }

// CurrentLR returns the rule's learning rate, without RateTimes.
func (c *ClickRows) CurrentLR() float64 { return c.Rule.CurrentLR() }

// Parts returns the first weight's sum, the [ClickStats] and, of rows of more than one
// weight, the extension's sum, which is -1 while there is no extension.
func (c *ClickRows) Parts(dim int) []RowPart {
	parts := append(c.Rule.Parts(1), RowPart{Name: "clicks", Width: ClickStatsLen})
	if dim > 1 {
		parts = append(parts, RowPart{Name: "extension-sum", Width: 1, Initial: unextended})
	}
	return parts
}

// Counts returns 2: behind a row's gradient come its shows and its clicks.
func (c *ClickRows) Counts() int { return clickCounts }

// CheckCounts reports shows and clicks that no batch has.
func (c *ClickRows) CheckCounts(dim int, grads []float32) error {
	width := dim + clickCounts
	for at := dim; at+1 < len(grads); at += width {
		show, click := grads[at], grads[at+1]
		if !(click >= 0 && click <= show && show <= mostShows) {
			return fmt.Errorf("row %d of the push has %s shows and %s clicks: want 0 to %d, and no more clicks than shows", at/width, quantity.Exact(show), quantity.Exact(click), mostShows)
		}
	}
	return nil
}

// UpdateRows counts one show and no click for each row, and extends all.
func (c *ClickRows) UpdateRows(data []float32, state [][]float32, dim int, ids []int32, grads []float32, gradScale float32) {
	if len(grads) != len(ids)*dim {
		panic(fmt.Sprintf("optim: click: %d values for %d rows of %d", len(grads), len(ids), dim))
	}
	m := c.mover(gradScale)
	for i, id := range ids {
		if dim > 1 {
			state[extensionSum][id] = max(0, state[extensionSum][id])
		}
		m.move(data, state, dim, id, grads[i*dim:][:dim], nil)
		c.Policy.Observe(ClickStatsOf(state[clickStats], id), 1, 0).Put(state[clickStats], id)
	}
}

// UpdateCounted applies the rule to rows ids with gradients that are sums over
// samples, and behind each in how many the row was shown and how many of these were
// clicked.
func (c *ClickRows) UpdateCounted(data []float32, state [][]float32, dim int, ids []int32, grads []float32, gradScale float32, due []int32) []int32 {
	width := dim + clickCounts
	if len(grads) != len(ids)*width {
		panic(fmt.Sprintf("optim: click: %d values for %d rows of %d and %d counts", len(grads), len(ids), dim, clickCounts))
	}
	m := c.mover(gradScale)
	for i, id := range ids {
		g := grads[i*width:][:width]
		scale := g[dim : dim+1]
		if !c.ByShow || scale[0] <= 0 {
			scale = nil
		}
		m.move(data, state, dim, id, g[:dim], scale)
		f := c.Policy.Observe(ClickStatsOf(state[clickStats], id), g[dim], g[dim+1])
		f.Put(state[clickStats], id)
		if dim > 1 && state[extensionSum][id] < 0 && c.Policy.Extends(f) {
			due = append(due, int32(i))
		}
	}
	return due
}

// Begin leaves of a new row's initial weights the first one.
func (c *ClickRows) Begin(row []float32) { clear(row[1:]) }

// Extend gives a row its extension.
func (c *ClickRows) Extend(data []float32, state [][]float32, dim int, id int32, initial []float32) {
	copy(data[int(id)*dim+1:][:dim-1], initial[1:])
	state[extensionSum][id] = 0
}

// clickMover is what all rows of a push have in common.
type clickMover struct {
	kernels            *simd.Kernels
	lr, initial, bound float32
	scale              float32
}

func (c *ClickRows) mover(gradScale float32) clickMover {
	return clickMover{simd.Host(), float32(c.Rule.LR * c.RateTimes), float32(c.Rule.Initial), float32(c.Bound), gradScale}
}

// move moves a row's first weight, and its extension where it has one.
func (m *clickMover) move(data []float32, state [][]float32, dim int, id int32, grad, scale []float32) {
	row := data[int(id)*dim:][:dim]
	m.part(row[:1], state[embedSum][id:id+1], grad[:1], scale)
	if dim > 1 && state[extensionSum][id] >= 0 {
		m.part(row[1:], state[extensionSum][id:id+1], grad[1:], scale)
	}
}

// alone is the only row of a part.
var alone = []int32{0}

func (m *clickMover) part(weights, sum, grad, scale []float32) {
	m.kernels.RowWiseAdagrad(weights, sum, alone, grad, scale, len(weights), m.lr, m.initial, m.scale)
	if m.bound > 0 {
		m.kernels.ClampRows(weights, alone, len(weights), -m.bound, m.bound)
	}
}
