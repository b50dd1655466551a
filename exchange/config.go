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
	// Algorithm carries all sparse exchanges out; one of Algorithms. Empty: each by
	// that which Choose names.
	Algorithm string
	// Choose names the algorithm of an exchange; nil: the fixed rule, the function
	// Choose. It must give the same answer on every rank, so that nothing but its
	// argument may have a say, or what the ranks have agreed on.
	Choose func(Situation) string
	// Rebalance is after how many exchanges by Split the borders between the owners
	// of a bucket's parts are looked at again. 0: 64.
	Rebalance int
}

const defaultRebalance = 64

// Validate reports every fault of c at once.
func (c Config) Validate() error {
	var errs []error
	if c.Algorithm != "" && !slices.Contains(Algorithms(), c.Algorithm) {
		errs = append(errs, fmt.Errorf("algorithm %q of sparse exchanges is not known: use one of %s, or nothing for the fixed rule", c.Algorithm, strings.Join(Algorithms(), ", ")))
	}
	if c.Algorithm != "" && c.Choose != nil {
		errs = append(errs, fmt.Errorf("algorithm %q and a choice of algorithms: give one of them", c.Algorithm))
	}
	if c.Rebalance < 0 {
		errs = append(errs, fmt.Errorf("rebalance every %d exchanges: want at least 1, or 0 for %d", c.Rebalance, defaultRebalance))
	}
	return errors.Join(errs...)
}
