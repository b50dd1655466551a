package optim

import (
	"errors"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// faults collects errors in settings, to report all together.
type faults []error

func (f *faults) require(ok bool, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

// positive requires a setting that is positive and finite, also as a float32.
func (f *faults) positive(name string, v float64) {
	f.require(float32(v) > 0 && !math.IsInf(float64(float32(v)), 0), "%s %s: want a positive number", name, quantity.Exact(v))
}

func (f *faults) fraction(name string, v float64) {
	f.require(v >= 0 && v < 1, "%s %s: want a number from 0 to below 1", name, quantity.Exact(v))
}

func (f *faults) notNegative(name string, v float64) {
	f.require(v >= 0 && !math.IsInf(float64(float32(v)), 0), "%s %s: want a number from 0", name, quantity.Exact(v))
}

// bound requires n to equal the length of an earlier Bind.
func (f *faults) bound(was, n int, already bool) {
	f.require(n >= 0, "an arena of %d values: want 0 or more", n)
	f.require(!already || was == n, "bound to %d values already, cannot bind to %d", was, n)
}

func (f faults) err(name string) error {
	if len(f) == 0 {
		return nil
	}
	return fmt.Errorf("optim: %s: %w", name, errors.Join(f...))
}

// checkLR panics for an invalid rate.
func checkLR(name string, lr float64) {
	if !(lr >= 0) || math.IsInf(lr, 0) {
		panic(fmt.Sprintf("optim: %s: learning rate %s: want a number from 0", name, quantity.Exact(lr)))
	}
}
