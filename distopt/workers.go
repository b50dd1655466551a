package distopt

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/exchange"
)

// With Config.Workers a step has several rounds of GradReady: one for each virtual worker (a part
// of the run with separate samples) of this rank, in order. Each worker has a codec with residuals.
// The reducer adds the gradients of all rounds, and exchanges with other ranks in the last round.

// checkWorkers returns an error if virtual workers do not fit the number of ranks, the tables or
// the strategy.
func (c Config) checkWorkers(ranks, tables int) error {
	switch {
	case c.Workers == nil:
		return nil
	case c.Workers.Count < ranks:
		return fmt.Errorf("distopt: %d virtual workers for %d ranks: want at least one each", c.Workers.Count, ranks)
	case tables > 0:
		return fmt.Errorf("distopt: virtual workers with %d tables, whose rows are summed in the order of the ranks: use a model without tables", tables)
	case c.Reducer != nil || c.skips() || c.LimitSum || c.SparseAlgorithm != "":
		return errors.New("distopt: virtual workers with a reducer, skipped steps, a limited sum or an algorithm of sparse sums: leave them out")
	}
	if i, err := Lookup(c.name()); err != nil || i.Name != FP32 && !i.Selects() {
		return fmt.Errorf("distopt: virtual workers with strategy %s: use %s or a strategy that selects", c.name(), FP32)
	}
	return nil
}

// ownWorkers returns the number of virtual workers of this rank.
func (c Config) ownWorkers(g *collective.Group) int {
	if c.Workers == nil {
		return 1
	}
	lo, hi := exchange.WorkersOf(c.Workers.Count, g.Size(), g.Rank())
	return hi - lo
}

// nextWorker begins the round of the next virtual worker.
func (o *Optimizer) nextWorker() {
	o.worker++
	o.queue.Reset()
	o.rotate()
}

// rotate makes the codec of the next virtual worker the current one; after the last worker, that of
// the first.
func (o *Optimizer) rotate() {
	if n := len(o.others); n > 0 {
		now := o.codec
		o.codec = o.others[0]
		copy(o.others, o.others[1:])
		o.others[n-1] = now
	}
}

// eachCodec calls do with the codec of each virtual worker as the current one.
func (o *Optimizer) eachCodec(do func() error) (err error) {
	for range 1 + len(o.others) {
		err = errors.Join(err, do())
		o.rotate()
	}
	return err
}
