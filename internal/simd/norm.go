package simd

import "math"

// normLevel holds the kernels of batch normalisation. Operands begin with a period, and counts are
// multiples of normUnit.
type normLevel struct {
	normSumsLevel
	// held is for periods of heldPeriod values, and counts that are multiples of it. nil: none.
	held     *normSumsLevel
	apply    func(y, x *float32, n int, params *float32, period int, floor float32)
	applyAdd func(y, x, r *float32, n int, params *float32, period int, floor float32)
	grad     func(dx, dy, x *float32, n int, params *float32, period int, floor float32)
	flush    func(sums *float64, acc *float32, n int)
}

// normSumsLevel holds the summing kernels.
type normSumsLevel struct {
	sums        func(x *float32, n int, params, acc *float32, period int)
	gradSums    func(x, dy *float32, n int, params, acc *float32, period int, floor float32)
	gradSumsAdd func(x, dy, y *float32, n int, params, acc *float32, period int, floor float32)
}

const (
	heldPeriod = 64
	normUnit   = 32 // equals gen/norm.go's
	// flushPeriods is the number of values summed in float32 before the sum is added to one in
	// float64.
	flushPeriods = 64
)

// NormPeriod returns a period for rows of channels channels: a multiple of the number of channels
// and of the widest vector. The kernels of batch normalisation process rows of channels as periods
// of values, so that any number of channels fills whole vectors, and sums of few channels do not
// wait for each other.
func NormPeriod(channels int) int {
	period := channels
	for period%normUnit != 0 {
		period += period // repeats at most 5 times
	}
	return period * max(1, heldPeriod/period)
}

// The planes of a NormParams.
const (
	NormMean   = iota
	NormScale  // gamma / standard deviation
	NormOffset // beta
	NormShift  // the mean of the gradient of the output
	NormSlope  // scale·(Σ gradient·(x-mean))/(rows·variance)
	NormPlanes
)

// NormParams holds the parameters of a batch normalisation in NormPlanes planes of Period values,
// such as all means. A plane repeats the value of each channel up to a period, see NormPeriod. The
// kernels read plane p at Values[p*Period:].
type NormParams struct {
	Period int
	Values []float32 // NormPlanes*Period values
	ReLU   bool      // follows the normalisation
}

// floor is the minimum of the output.
func (p *NormParams) floor() float32 {
	if p.ReLU {
		return 0
	}
	return float32(math.Inf(-1))
}

// periods calls f for the parts of values lo to hi-1 within one period, with their index in the
// period.
func (p *NormParams) periods(lo, hi int, f func(lo, hi, at int)) {
	for lo < hi {
		at := lo % p.Period
		end := min(hi, lo+p.Period-at)
		f(lo, end, at)
		lo = end
	}
}

// Resize allocates for a number of channels; values are then unspecified.
func (p *NormParams) Resize(channels int) {
	p.Period = NormPeriod(channels)
	if n := p.Period * NormPlanes; cap(p.Values) < n {
		p.Values = make([]float32, n)
	} else {
		p.Values = p.Values[:n]
	}
}

// Set fills a plane with the channels' values, again and again.
func (p *NormParams) Set(plane int, channels []float32) {
	to := p.Values[plane*p.Period : (plane+1)*p.Period]
	for n := copy(to, channels); n < len(to); n *= 2 {
		copy(to[n:], to[:n])
	}
}

// normCall returns the number of values of at to n-1 for the next assembly call, and their index in
// the period: whole periods, or a part of a long one.
func (k *Kernels) normCall(at, n, period int) (take, place int) {
	if k.norm.sums == nil {
		return 0, 0
	}
	place = at % period
	most := callFloats / period * period
	if most == 0 || place > 0 {
		most = min(callFloats, period-place)
	}
	take = min((n-at)&^(normUnit-1), most)
	if period == heldPeriod && take > heldPeriod {
		take &^= heldPeriod - 1
	}
	return take, place
}

// summing returns the kernels for n values of such periods.
func (k *Kernels) summing(n, period int) *normSumsLevel {
	if k.norm.held != nil && period == heldPeriod && n%heldPeriod == 0 {
		return k.norm.held
	}
	return &k.norm.normSumsLevel
}

// NormSums adds to sums, 2*period values, for each index of the period, Σ(x - mean) and Σ(x -
// mean)², where the mean is a guess, ideally close. acc is working memory of 2*period values. The
// order of each sum depends on the lengths only: runs of 64 values in float32, added in float64.
func (k *Kernels) NormSums(sums []float64, acc []float32, x []float32, p *NormParams) {
	k.eachFlush(sums, acc, len(x), p.Period, func(lo, hi int) {
		for n, at := k.normCall(lo, hi, p.Period); n > 0; n, at = k.normCall(lo, hi, p.Period) {
			k.summing(n, p.Period).sums(&x[lo], n, &p.Values[at], &acc[at], p.Period)
			lo += n
		}
		p.periods(lo, hi, func(lo, hi, at int) {
			for i, v := range x[lo:hi] {
				d := v - p.at(NormMean, at+i)
				acc[at+i] += d
				acc[p.Period+at+i] += float32(d * d)
			}
		})
	})
}

// eachFlush calls f for runs of periods and moves each run's sums from acc to sums.
func (k *Kernels) eachFlush(sums []float64, acc []float32, n, period int, f func(lo, hi int)) {
	acc, sums = acc[:2*period], sums[:2*period]
	clear(acc)
	for lo := 0; lo < n; lo += flushPeriods * period {
		f(lo, min(n, lo+flushPeriods*period))
		if k.norm.flush == nil {
			for i, v := range acc {
				sums[i] += float64(v)
				acc[i] = 0
			}
			continue
		}
		for i := 0; i < len(acc); i += callFloats {
			k.norm.flush(&sums[i], &acc[i], min(callFloats, len(acc)-i))
		}
	}
}

// NormApply computes y = max((x-mean)·scale + offset + r, floor) of whole periods and possibly a
// partial one at the end. r may be nil; y may be x or r.
func (k *Kernels) NormApply(y, x, r []float32, p *NormParams) {
	if len(y) != len(x) || r != nil && len(r) != len(x) {
		sameLength("NormApply", len(y), len(x), len(r))
	}
	at, floor := 0, p.floor()
	for n, from := k.normCall(at, len(x), p.Period); n > 0; n, from = k.normCall(at, len(x), p.Period) {
		if r == nil {
			k.norm.apply(&y[at], &x[at], n, &p.Values[from], p.Period, floor)
		} else {
			k.norm.applyAdd(&y[at], &x[at], &r[at], n, &p.Values[from], p.Period, floor)
		}
		at += n
	}
	p.periods(at, len(x), func(lo, hi, at int) {
		for i := lo; i < hi; i++ {
			_, v := p.centred(x[i], at+i-lo)
			if r != nil {
				v += r[i]
			}
			if v < floor {
				v = floor
			}
			y[i] = v
		}
	})
}

// NormGradSums adds to sums, as [Kernels.NormSums] does, Σg and Σg·(x-mean), with g equal to dy if
// the output before the activation is greater than the floor, and 0 otherwise. The output is
// recomputed from x. With y, the output after the addition of residual values, g is derived from y
// instead, and overwrites dy, as the gradient of the residual.
func (k *Kernels) NormGradSums(sums []float64, acc []float32, x, dy, y []float32, p *NormParams) {
	if len(x) != len(dy) || y != nil && len(y) != len(x) {
		sameLength("NormGradSums", len(x), len(dy), len(y))
	}
	floor := p.floor()
	k.eachFlush(sums, acc, len(x), p.Period, func(lo, hi int) {
		at := lo
		for n, from := k.normCall(at, hi, p.Period); n > 0; n, from = k.normCall(at, hi, p.Period) {
			if y == nil {
				k.summing(n, p.Period).gradSums(&x[at], &dy[at], n, &p.Values[from], &acc[from], p.Period, floor)
			} else {
				k.summing(n, p.Period).gradSumsAdd(&x[at], &dy[at], &y[at], n, &p.Values[from], &acc[from], p.Period, floor)
			}
			at += n
		}
		p.periods(at, hi, func(lo, hi, at int) {
			for i := lo; i < hi; i++ {
				j := at + i - lo
				d, v := p.centred(x[i], j)
				if y != nil {
					v = y[i]
				}
				g := passing(dy[i], v, floor)
				if y != nil {
					dy[i] = g
				}
				acc[j] += g
				acc[p.Period+j] += float32(g * d)
			}
		})
	})
}

// NormGrad computes dx = scale·(g - shift) - (x-mean)·slope, with g as in
// [Kernels.NormGradSums] without y. dx may be dy.
func (k *Kernels) NormGrad(dx, dy, x []float32, p *NormParams) {
	if len(dx) != len(dy) || len(dx) != len(x) {
		sameLength("NormGrad", len(dx), len(dy), len(x))
	}
	at, floor := 0, p.floor()
	for n, from := k.normCall(at, len(x), p.Period); n > 0; n, from = k.normCall(at, len(x), p.Period) {
		k.norm.grad(&dx[at], &dy[at], &x[at], n, &p.Values[from], p.Period, floor)
		at += n
	}
	p.periods(at, len(x), func(lo, hi, at int) {
		for i := lo; i < hi; i++ {
			j := at + i - lo
			d, v := p.centred(x[i], j)
			g := passing(dy[i], v, floor) - p.at(NormShift, j)
			dx[i] = float32(g*p.at(NormScale, j)) - float32(d*p.at(NormSlope, j))
		}
	})
}

func (p *NormParams) at(plane, i int) float32 { return p.Values[plane*p.Period+i] }

// centred returns x - mean and the output before the activation.
func (p *NormParams) centred(x float32, i int) (d, v float32) {
	d = x - p.at(NormMean, i)
	return d, float32(d*p.at(NormScale, i)) + p.at(NormOffset, i)
}

func passing(dy, v, floor float32) float32 {
	if v > floor {
		return dy
	}
	return 0
}
