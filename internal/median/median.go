// Package median computes the median of measured values.
package median

import "slices"

// Of returns the median of x and sorts x. x must not be empty.
func Of(x []float64) float64 {
	slices.Sort(x)
	if n := len(x); n%2 == 0 {
		return (x[n/2-1] + x[n/2]) / 2
	}
	return x[len(x)/2]
}
