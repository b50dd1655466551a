package optim

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/simd"
)

// ClickRows is the rule of click models' tables: row-wise Adagrad with bounded weights, and rows
// with counts of shows and clicks.
//
// A row's first weight (embed_w) learns from the first push on. The other weights are its extension
// (embedx), enabled when the row's score reaches Policy.ExtendAt: until then they are zeros and
// their gradients are ignored, so that rare keys learn a single weight instead of overfitting many.
// Each of the two parts has a separate sum of squares. A new row has memory for the extension. The
// extension stays if the score falls.
//
// A push calls [ClickRows.UpdateCounted], which updates the counts, moves the existing weights, and
// reports the rows to extend now. Once a day Policy.Age and Policy.Deletes decide about each row.
//
// As a plain [RowRule], each gradient is one show without a click, and all of a row's weights learn
// from the first push.
type ClickRows struct {
	// Rule moves the weights.
	Rule RowWiseAdagrad
	// RateTimes is a factor of Rule's learning rate, positive: rows learn at a larger rate than the
	// dense parameters of the same job.
	RateTimes float64
	// Policy decides about rows.
	Policy ClickPolicy
	// ByShow divides a row's gradient by its shows in the push, if any: gradients are sums over
	// samples, and rows in many samples of a batch would make large steps. The rate then fits
	// means.
	ByShow bool
	// Bound is the largest magnitude of a weight, 0 for none.
	Bound float64
}

// clickCounts are the shows and the clicks behind a row's gradient.
const clickCounts = 2

// mostShows is the maximum count of a row in a push: float32 counts exactly up to this value.
const mostShows = 1 << 24

// unextended, as a sum, marks a row without an extension.
const unextended = -1

// Parts of a row's state; rows of a single weight have no extension.
const (
	embedSum = iota
	clickStats
	extensionSum
)

// NewClickRows is ClickRows with a learning rate, such as 0.05, an initial sum of 3, the default
// policy, gradients divided by shows, and weights within [-10, 10].
func NewClickRows(lr float64) *ClickRows {
	return &ClickRows{Rule: *NewRowWiseAdagrad(lr), RateTimes: 1, Policy: NewClickPolicy(), ByShow: true, Bound: 10}
}

// Name returns "click".
func (c *ClickRows) Name() string { return "click" }

// Validate reports every invalid setting.
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

// Parts returns the first weight's sum, the [ClickStats] and, for rows of several weights, the
// extension's sum, -1 before the extension.
func (c *ClickRows) Parts(dim int) []RowPart {
	parts := append(c.Rule.Parts(1), RowPart{Name: "clicks", Width: ClickStatsLen})
	if dim > 1 {
		parts = append(parts, RowPart{Name: "extension-sum", Width: 1, Initial: unextended})
	}
	return parts
}

// Counts returns 2: a row's shows and clicks follow its gradient.
func (c *ClickRows) Counts() int { return clickCounts }

// CheckCounts reports impossible shows and clicks.
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

// UpdateRows counts one show and no click for each row, and extends all rows.
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

// UpdateCounted applies the rule to rows ids. A row's gradient is a sum over samples, followed by
// the number of samples that showed the row and the number of these that were clicked.
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

// Begin keeps only the first of a new row's initial weights.
func (c *ClickRows) Begin(row []float32) { clear(row[1:]) }

// Extend enables a row's extension.
func (c *ClickRows) Extend(data []float32, state [][]float32, dim int, id int32, initial []float32) {
	copy(data[int(id)*dim+1:][:dim-1], initial[1:])
	state[extensionSum][id] = 0
}

// clickMover is the common data of all rows of a push.
type clickMover struct {
	kernels            *simd.Kernels
	lr, initial, bound float32
	scale              float32
}

func (c *ClickRows) mover(gradScale float32) clickMover {
	return clickMover{simd.Host(), float32(c.Rule.LR * c.RateTimes), float32(c.Rule.Initial), float32(c.Bound), gradScale}
}

// move moves a row's first weight, and its extension if enabled.
func (m *clickMover) move(data []float32, state [][]float32, dim int, id int32, grad, scale []float32) {
	row := data[int(id)*dim:][:dim]
	m.part(row[:1], state[embedSum][id:id+1], grad[:1], scale)
	if dim > 1 && state[extensionSum][id] >= 0 {
		m.part(row[1:], state[extensionSum][id:id+1], grad[1:], scale)
	}
}

// alone is the list of rows for a call of UpdateRows with a single row.
var alone = []int32{0}

func (m *clickMover) part(weights, sum, grad, scale []float32) {
	m.kernels.RowWiseAdagrad(weights, sum, alone, grad, scale, len(weights), m.lr, m.initial, m.scale)
	if m.bound > 0 {
		m.kernels.ClampRows(weights, alone, len(weights), -m.bound, m.bound)
	}
}

// ClickStats are the statistics of a row of a click table, in addition to its weights: the part
// "clicks" of the row's state, in this order.
type ClickStats struct {
	// Show and Click are the numbers of shown and clicked samples with the row, decayed by every
	// day since.
	Show, Click float32
	// Unseen is the days since a sample had the row, 0 today.
	Unseen float32
	// Delta is the score, without decay, of the row's shows and clicks since the last full
	// checkpoint.
	Delta float32
}

// ClickStatsLen is the number of values of ClickStats in a row's state.
const ClickStatsLen = 4

// ClickStatsOf returns the statistics of a row, from the part of all rows' [rows, 4].
func ClickStatsOf(part []float32, row int32) ClickStats {
	f := (*[ClickStatsLen]float32)(part[int(row)*ClickStatsLen:])
	return ClickStats{Show: f[0], Click: f[1], Unseen: f[2], Delta: f[3]}
}

// Put writes the statistics of a row.
func (f ClickStats) Put(part []float32, row int32) {
	*(*[ClickStatsLen]float32)(part[int(row)*ClickStatsLen:]) = [ClickStatsLen]float32{f.Show, f.Click, f.Unseen, f.Delta}
}

// ClickPolicy decides which rows of a click table are worth their memory. Its methods are pure
// functions of a row's statistics and of numbers of days. [NewClickPolicy] has the default
// settings; Validate rejects the zero value, with all scores and limits 0.
type ClickPolicy struct {
	// NoClick and Click are the scores of a show without and with a click, 0 or more, at least one
	// positive.
	NoClick, Click float64
	// ExtendAt is the least score of a row with an extension (embedx).
	ExtendAt float64
	// Decay is the factor of shows and clicks per day, above 0 and at most 1.
	Decay float64
	// DeleteBelow is the score below which a row is deleted.
	DeleteBelow float64
	// DeleteAfter is the number of days unseen after which a row is deleted, 1 or more.
	DeleteAfter float64
	// ColdAfter is the number of days unseen after which a row may leave memory, 0 or more.
	ColdAfter float64
}

// NewClickPolicy scores a show 0.1 and a click 1, extends from a score of 10, decays by 0.98 a day,
// deletes below 0.8 or after 30 days, and allows rows to leave memory after a day.
func NewClickPolicy() ClickPolicy {
	return ClickPolicy{NoClick: 0.1, Click: 1, ExtendAt: 10, Decay: 0.98, DeleteBelow: 0.8, DeleteAfter: 30, ColdAfter: 1}
}

// Validate reports every invalid setting.
func (p ClickPolicy) Validate() error { return p.faults().err("click policy") }

func (p ClickPolicy) faults() (f faults) {
	f.notNegative("worth of a show without a click", p.NoClick)
	f.notNegative("worth of a click", p.Click)
	f.require(!(p.NoClick == 0 && p.Click == 0), "shows and clicks worth 0: all scores would be 0; want one of them positive")
	f.notNegative("extension's least score", p.ExtendAt)
	f.require(p.Decay > 0 && p.Decay <= 1, "decay %s: want a number above 0 and at most 1", quantity.Exact(p.Decay))
	f.notNegative("least score", p.DeleteBelow)
	f.require(p.DeleteAfter >= 1, "days until deletion %s: want 1 or more", quantity.Exact(p.DeleteAfter))
	f.notNegative("days until cold", p.ColdAfter)
	return f
}

// Score is a row's score: (Show-Click)*p.NoClick + Click*p.Click.
func (p ClickPolicy) Score(f ClickStats) float32 { return p.worth(f.Show, f.Click) }

func (p ClickPolicy) worth(show, click float32) float32 {
	return float32((show-click)*float32(p.NoClick)) + float32(click*float32(p.Click))
}

// Observe returns the statistics after today's samples showed and clicked the row.
func (p ClickPolicy) Observe(f ClickStats, show, click float32) ClickStats {
	return ClickStats{Show: f.Show + show, Click: f.Click + click, Delta: f.Delta + p.worth(show, click)}
}

// Extends reports whether a row is worth an extension.
func (p ClickPolicy) Extends(f ClickStats) bool { return p.Score(f) >= float32(p.ExtendAt) }

// Age returns the statistics this many days later: the daily shrinking ages the rows that stay.
func (p ClickPolicy) Age(f ClickStats, days int) ClickStats {
	left := float32(power(p.Decay, uint64(max(0, days))))
	f.Show *= left
	f.Click *= left
	f.Unseen += float32(max(0, days))
	return f
}

// Deletes reports whether to delete an aged row, by score or by age.
func (p ClickPolicy) Deletes(f ClickStats) bool {
	return p.Score(f) < float32(p.DeleteBelow) || f.Unseen > float32(p.DeleteAfter)
}

// Cold reports whether a row may leave memory for slower storage.
func (p ClickPolicy) Cold(f ClickStats) bool { return f.Unseen >= float32(p.ColdAfter) && f.Unseen > 0 }

// Based returns the statistics after the row was saved in a base.
func (f ClickStats) Based() ClickStats {
	f.Delta = 0
	return f
}

// Admits reports whether a new key gets a row: after count occurrences, counted in a filter for
// keys without rows, and if its hash is within the admitted share. hash depends on the key only, so
// that all processes admit the same keys.
func Admits(seen, count int, hash uint64, share float64) bool {
	return seen >= count && float64(hash>>11)*0x1p-53 < share
}
