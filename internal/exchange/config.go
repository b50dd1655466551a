package exchange

import (
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/faults"
)

// Config configures exchanges of sparse gradients, equally on all ranks. The zero value chooses by
// the fixed rule.
type Config struct {
	// Algorithm is the algorithm of all sparse exchanges, one of Algorithms. Empty means that
	// Choose selects one for each exchange.
	Algorithm string
	// Choose returns the algorithm of an exchange. nil means the function Choose of this package.
	// It must return the same name on every rank: it may depend only on its argument and on data
	// that the ranks have agreed on.
	Choose func(Situation) string
	// Rebalance is the number of exchanges by Split after which a bucket is divided again, so that
	// each rank sums the same number of entries. 0 means 64.
	Rebalance int
	// Workers are virtual workers, parts of a run with separate samples. Start takes the gradients
	// of a rank's workers one after the other, and the exchange begins with the last. nil means
	// that each rank is a worker.
	Workers *Workers
}

const defaultRebalance = 64

// Validate reports every error of c together.
func (c Config) Validate() error {
	var bad faults.List
	bad.If(c.Algorithm != "" && !slices.Contains(Algorithms(), c.Algorithm),
		"algorithm %q of sparse exchanges is not known: use one of %s, or nothing for the one that costs least", c.Algorithm, strings.Join(Algorithms(), ", "))
	bad.If(c.Algorithm != "" && c.Choose != nil,
		"algorithm %q and a function Choose: give only one of them", c.Algorithm)
	bad.If(c.Rebalance < 0,
		"rebalance every %d exchanges: want at least 1, or 0 for %d", c.Rebalance, defaultRebalance)
	return bad.Err()
}
