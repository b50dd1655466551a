package shard

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/optim"
)

// Policy returns the worth of a row in memory: the rows of a sample with the lowest worth are
// evicted. A Policy is a pure function of the row and the current epoch, and must not change the
// row. Each checkpoint, each day and each round of eviction through all rows begins an epoch.
type Policy func(r *rows.Row, now uint16) float64

// byUse returns the number of pulls, halved in each round of eviction. Between equal rows the last
// touched has the higher worth.
func byUse(r *rows.Row, now uint16) float64 {
	return float64(r.Usage.Touches) + 1/float64(1+r.Usage.Age(now))
}

// coldWorth exceeds all scores, and leaves enough bits for their order.
const coldWorth = 1 << 40

// ByScore returns the score of a click table's row. Cold rows, in no sample for some days, are
// evicted before all others.
func ByScore(c Clicks) Policy {
	return func(r *rows.Row, _ uint16) float64 {
		f := optim.ClickStatsOf(r.State[c.Part], 0)
		score := float64(c.Policy.Score(f))
		if c.Policy.Cold(f) {
			return score - coldWorth
		}
		return score
	}
}

// Shrinker ages and deletes rows by days. Its methods are pure functions, called by many goroutines
// while they hold locks.
type Shrinker interface {
	// Age changes a row after days, 1 or more.
	Age(r *rows.Row, days int)
	// Deletes reports whether to delete an aged row. unseen is the number of days since its last
	// pull or push, if Days is true.
	Deletes(r *rows.Row, unseen int) bool
	// Days reports whether Deletes uses unseen, which requires the rows' Usage.
	Days() bool
}

// Clicks is the Shrinker of click tables: shows and clicks decay, and rows are deleted by score and
// by days without a push.
type Clicks struct {
	Policy optim.ClickPolicy
	Part   int // part of the state with optim.ClickStats
}

// NewClicks returns the Shrinker of a rule with rows of dim weights.
func NewClicks(rule *optim.ClickRows, dim int) (Clicks, error) {
	for i, p := range rule.Parts(dim) {
		if p.Name == "clicks" && p.Width == optim.ClickStatsLen {
			return Clicks{rule.Policy, i}, nil
		}
	}
	return Clicks{}, errors.New("shard: the rule's rows have no statistics of clicks")
}

// Age implements Shrinker.
func (c Clicks) Age(r *rows.Row, days int) {
	part := r.State[c.Part]
	c.Policy.Age(optim.ClickStatsOf(part, 0), days).Put(part, 0)
}

// Deletes implements Shrinker.
func (c Clicks) Deletes(r *rows.Row, _ int) bool {
	return c.Policy.Deletes(optim.ClickStatsOf(r.State[c.Part], 0))
}

// Days implements Shrinker.
func (c Clicks) Days() bool { return false }

// UnseenDays is the Shrinker that deletes rows without a pull or push for more than After days.
type UnseenDays struct{ After int }

// Age implements Shrinker.
func (u UnseenDays) Age(*rows.Row, int) {}

// Deletes implements Shrinker.
func (u UnseenDays) Deletes(_ *rows.Row, unseen int) bool { return unseen > u.After }

// Days implements Shrinker.
func (u UnseenDays) Days() bool { return true }

// dayClock holds the current day and the starts of earlier days.
type dayClock struct {
	day     uint32
	borders []dayBoundary
	// walking is set during a walk of Shrink: rows with hashes under below have day, other rows
	// day-passing.
	walking bool
	passing uint32
	below   uint64
}

type dayBoundary struct {
	Epoch uint64 `json:"epoch"` // epoch that began with the day
	Day   uint32 `json:"day"`
}

// at returns the day of the last aging of a row in memory with this hash.
func (c *dayClock) at(hash uint64) uint32 {
	if c.walking && hash >= c.below {
		return c.day - c.passing
	}
	return c.day
}

// pass advances the day and records the epoch of the change.
func (c *dayClock) pass(days int, epoch uint64) {
	c.day += uint32(days)
	c.borders = append(c.borders, dayBoundary{epoch, c.day})
	for len(c.borders) > 1 && epoch-c.borders[1].Epoch > 1<<16 {
		c.borders = c.borders[1:] // usage no longer distinguishes these epochs
	}
}

// unseen returns the days since a row was touched. Epochs are 16 bits: a row untouched for more
// than 65536 epochs may seem younger.
func (c *dayClock) unseen(f rows.Usage, clock uint64) int {
	last := clock - min(clock, uint64(f.Age(uint16(clock))))
	for i := len(c.borders) - 1; i >= 0; i-- {
		if c.borders[i].Epoch <= last {
			return int(c.day - c.borders[i].Day)
		}
	}
	return int(c.day)
}

func (t *Table) age(r *rows.Row, from, to uint32) {
	if t.cfg.Shrinker != nil && to > from {
		t.cfg.Shrinker.Age(r, int(to-from))
	}
}

func checkDays(days int) error {
	if days < 1 || days > 1<<20 {
		return fmt.Errorf("%d days have passed: want 1 or more", days)
	}
	return nil
}
