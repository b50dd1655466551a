package exchange

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Config says how sparse gradients are exchanged. All ranks must give the same.
// The zero value chooses by the fixed rule.
type Config struct {
	// Algorithm carries out all sparse exchanges; it is one of Algorithms. Empty: Choose
	// names one for each exchange.
	Algorithm string
	// Choose names the algorithm of an exchange. nil: the function Choose of this package.
	// It must give the same answer on every rank: it may depend on its argument and on what
	// the ranks have agreed on, and on nothing else.
	Choose func(Situation) string
	// Rebalance is after how many exchanges by Split the parts of a bucket are cut anew, so
	// that each owner has as many entries. 0: 64.
	Rebalance int
}

const defaultRebalance = 64

// Validate reports every fault of c at once.
func (c Config) Validate() error {
	var errs []error
	if c.Algorithm != "" && !slices.Contains(Algorithms(), c.Algorithm) {
		errs = append(errs, fmt.Errorf("algorithm %q of sparse exchanges is not known: use one of %s, or nothing for the one that costs least", c.Algorithm, strings.Join(Algorithms(), ", ")))
	}
	if c.Algorithm != "" && c.Choose != nil {
		errs = append(errs, fmt.Errorf("algorithm %q and a function Choose: give only one of them", c.Algorithm))
	}
	if c.Rebalance < 0 {
		errs = append(errs, fmt.Errorf("rebalance every %d exchanges: want at least 1, or 0 for %d", c.Rebalance, defaultRebalance))
	}
	return errors.Join(errs...)
}
