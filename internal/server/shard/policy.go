package shard

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/optim"
)

// Policy says what a row is worth in memory: of a sample of rows, those that are worth
// least leave it. It is a pure function of the row and of the epoch that is now,
// which it must not change. A time that passes is an epoch: each checkpoint, each
// day and each round of the eviction through all rows begins one.
type Policy func(r *rows.Row, now uint16) float64

// byUse is worth how often the row was pulled, each round of the eviction halving
// that; of equal rows the one touched last is worth more.
func byUse(r *rows.Row, now uint16) float64 {
	return float64(r.Usage.Touches) + 1/float64(1+r.Usage.Age(now))
}

// coldWorth is above all scores, and leaves them bits for their order.
const coldWorth = 1 << 40

// ByScore is worth the score of a click table's row. Rows that are cold, which no sample had
// for some days, leave before all others.
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

// Shrinker says what days do to rows. Its methods are pure functions of their
// arguments, called by many goroutines while they hold locks.
type Shrinker interface {
	// Age changes a row for days, 1 or more, that have passed.
	Age(r *rows.Row, days int)
	// Deletes says whether a row, aged, goes. unseen is the days since it was
	// pulled or pushed, where Days says true.
	Deletes(r *rows.Row, unseen int) bool
	// Days says whether Deletes looks at unseen. Then rows keep their Usage.
	Days() bool
}

// Clicks is the Shrinker of click tables: shows and clicks decay, rows go by score
// and by days without a push.
type Clicks struct {
	Policy optim.ClickPolicy
	Part   int // of the state: the part with optim.ClickStats
}

// NewClicks is the Shrinker of a rule with rows of dim weights.
func NewClicks(rule *optim.ClickRows, dim int) (Clicks, error) {
	for i, p := range rule.Parts(dim) {
		if p.Name == "clicks" && p.Width == optim.ClickStatsLen {
			return Clicks{rule.Policy, i}, nil
		}
	}
	return Clicks{}, errors.New("shard: the rule's rows have no statistics of clicks")
}

// Age is Shrinker's.
func (c Clicks) Age(r *rows.Row, days int) {
	part := r.State[c.Part]
	c.Policy.Age(optim.ClickStatsOf(part, 0), days).Put(part, 0)
}

// Deletes is Shrinker's.
func (c Clicks) Deletes(r *rows.Row, _ int) bool {
	return c.Policy.Deletes(optim.ClickStatsOf(r.State[c.Part], 0))
}

// Days is Shrinker's.
func (c Clicks) Days() bool { return false }

// UnseenDays is the Shrinker that deletes rows that nobody has pulled or pushed for more
// than After days.
type UnseenDays struct{ After int }

// Age is Shrinker's.
func (u UnseenDays) Age(*rows.Row, int) {}

// Deletes is Shrinker's.
func (u UnseenDays) Deletes(_ *rows.Row, unseen int) bool { return unseen > u.After }

// Days is Shrinker's.
func (u UnseenDays) Days() bool { return true }

// dayClock knows which day it is and when the days before began.
type dayClock struct {
	day     uint32
	borders []dayBoundary
	// While a Shrink walks, rows with lower hashes than below have day, the
	// others day-passing.
	walking bool
	passing uint32
	below   uint64
}

// dayBoundary is when days began.
type dayBoundary struct {
	Epoch uint64 `json:"epoch"` // that began with it
	Day   uint32 `json:"day"`
}

// at is the day up to which a row with this hash is aged, while it is in memory.
func (c *dayClock) at(hash uint64) uint32 {
	if c.walking && hash >= c.below {
		return c.day - c.passing
	}
	return c.day
}

// pass begins another day, days later, with an epoch.
func (c *dayClock) pass(days int, epoch uint64) {
	c.day += uint32(days)
	c.borders = append(c.borders, dayBoundary{epoch, c.day})
	for len(c.borders) > 1 && epoch-c.borders[1].Epoch > 1<<16 {
		c.borders = c.borders[1:] // usage cannot tell these epochs apart any more
	}
}

// unseen is how many days ago a row was touched. Epochs are told apart up to 65536 of
// them ago: a row untouched for longer may seem younger.
func (c *dayClock) unseen(f rows.Usage, clock uint64) int {
	last := clock - min(clock, uint64(f.Age(uint16(clock))))
	for i := len(c.borders) - 1; i >= 0; i-- {
		if c.borders[i].Epoch <= last {
			return int(c.day - c.borders[i].Day)
		}
	}
	return int(c.day)
}

// age ages a row that is of one day up to another.
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
