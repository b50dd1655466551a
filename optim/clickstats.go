package optim

import "github.com/ringo-ml/ringo/internal/quantity"

// ClickStats are the statistics of a row of a click table, in addition to its weights: the part
// "clicks" of the row's state, in this order.
type ClickStats struct {
	// Show and Click are the numbers of shown and clicked samples with the row, decayed by every
	// day since.
	Show, Click float32
	// Unseen is the days since a sample had the row, 0 today.
	Unseen float32
	// Delta is the score of the row's shows and clicks since the last save of a base, without
	// decay.
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
// deletes below 0.8 or after 30 days, and allows rows to leave memory after one.
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

// Observe is the statistics after samples of today showed and clicked the row.
func (p ClickPolicy) Observe(f ClickStats, show, click float32) ClickStats {
	return ClickStats{Show: f.Show + show, Click: f.Click + click, Delta: f.Delta + p.worth(show, click)}
}

// Extends reports whether a row is worth an extension.
func (p ClickPolicy) Extends(f ClickStats) bool { return p.Score(f) >= float32(p.ExtendAt) }

// Age is the statistics days later, 0 or more: the daily shrinking applies it to rows that stay.
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

// Based is the statistics after the row was saved in a base.
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
