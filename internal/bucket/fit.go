package bucket

import (
	"errors"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Sample is a measured cost: seconds for a size in values or bytes.
type Sample struct{ Size, Seconds float64 }

// FitLine fits Seconds = fixed + per x Size, both at least 0.
func FitLine(samples []Sample) (fixed, per float64, err error) {
	c, err := fit(samples, 2)
	return c[0], c[1], err
}

// FitCurve fits a Curve with all terms at least 0.
func FitCurve(samples []Sample) (Curve, error) {
	c, err := fit(samples, 3)
	return Curve{Fixed: c[0], PerValue: c[1], PerLog: c[2]}, err
}

// fit finds nonnegative coefficients of the first n terms of 1, x, x log2(x) with the least sum of
// squared relative errors, for equal weight of small and large sizes. Among all subsets of the
// terms with a nonnegative least-squares solution, the subset with the least error is the optimum;
// among equals, fewer terms. O(samples).
func fit(samples []Sample, n int) (best [3]float64, err error) {
	if len(samples) == 0 {
		return best, errors.New("bucket: fitting a cost: no samples")
	}
	for i, s := range samples {
		if !(s.Size >= 1) || !(s.Seconds > 0) || math.IsInf(s.Size, 0) || math.IsInf(s.Seconds, 0) {
			return best, fmt.Errorf("bucket: fitting a cost: sample %d is %s s for a size of %s: want a positive time and a size of at least 1", i, quantity.Exact(s.Seconds), quantity.Exact(s.Size))
		}
	}
	least := math.Inf(1)
	for _, terms := range []int{0b001, 0b010, 0b100, 0b011, 0b101, 0b110, 0b111} {
		if terms >= 1<<n {
			continue
		}
		c, ok := solve(samples, terms)
		if !ok || c[0] < 0 || c[1] < 0 || c[2] < 0 {
			continue
		}
		if e := relativeError(samples, c); e < least*(1-1e-9) && least > 1e-20 {
			least, best = e, c
		}
	}
	return best, nil
}

// termsOf are the three terms at a size.
func termsOf(size float64) [3]float64 { return [3]float64{1, size, size * math.Log2(size)} }

func relativeError(samples []Sample, c [3]float64) (sum float64) {
	for _, s := range samples {
		x := termsOf(s.Size)
		e := (c[0]*x[0]+c[1]*x[1]+c[2]*x[2])/s.Seconds - 1
		sum += e * e
	}
	return sum
}

// solve is the least-squares solution with the terms of the set bits, the others 0; false if the
// samples do not determine the solution. The method is elimination on the normal equations, with
// each term scaled to length 1.
func solve(samples []Sample, terms int) (c [3]float64, ok bool) {
	var scale [3]float64
	for _, s := range samples {
		for i, x := range termsOf(s.Size) {
			scale[i] = math.Hypot(scale[i], x/s.Seconds)
		}
	}
	var a [3][4]float64 // the equations; an excluded term has c = 0
	for i := range a {
		if terms>>i&1 == 0 {
			a[i][i] = 1
			continue
		}
		for _, s := range samples {
			x := termsOf(s.Size)
			u := x[i] / s.Seconds / scale[i]
			for j := range a {
				if terms>>j&1 == 1 {
					a[i][j] += u * x[j] / s.Seconds / scale[j]
				}
			}
			a[i][3] += u
		}
	}
	for i := range a { // symmetric and positive: no pivoting
		if !(a[i][i] > 1e-11) {
			return c, false
		}
		for r := range a {
			if r == i {
				continue
			}
			f := a[r][i] / a[i][i]
			for j := i; j < 4; j++ {
				a[r][j] -= f * a[i][j]
			}
		}
	}
	for i := range c {
		if terms>>i&1 == 1 {
			c[i] = a[i][3] / a[i][i] / scale[i]
		}
	}
	return c, true
}
