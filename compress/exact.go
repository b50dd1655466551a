package compress

import (
	"math"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/simd"
)

// smallSelection is the largest length for which a selection searches all values, without a sample:
// they fit the nearest cache.
const smallSelection = 3 << 10

// Exact adds grad (nil: none) to residual and moves the k largest magnitudes, lower indices first
// among equals, to s, with base added to the indices. k is from 1 to len(residual). It returns the
// k-th largest magnitude.
//
// A sample estimates two bounds: somewhat more than k values should reach the first, and somewhat
// fewer the second. One pass takes all values that reach the first bound; then the k-th largest is
// searched among those below the second. If a bound was wrong, or many values are equal, two more
// passes count histograms of the values' upper 16 bits and of the other bits, and a last pass takes
// the values from the k-th up. Cost: at most 4 passes over memory, and nearly always one.
func (w *Workspace) Exact(s *Sparse, base int, residual, grad []float32, k int) float32 {
	n, start := len(residual), len(s.Index)
	if n <= smallSelection {
		if grad != nil {
			w.kernel().Add(residual, grad)
		}
		kth, equal := w.kthLargest(residual, k, 0)
		w.exactly(s, residual, base, kth, equal)
		return math.Float32frombits(kth)
	}
	w.take = take{residual: residual, grad: grad, base: base, expected: k}
	var high uint32
	w.take.least, w.take.limit, high = w.estimate(residual, grad, k)
	count := w.over(s)
	if count <= w.take.limit {
		if count >= k {
			return w.trim(s, start, residual, base, k, w.take.least, high)
		}
		s.giveBack(start, residual, base)
	}
	kth, equal := w.count(residual, k)
	w.exactly(s, residual, base, kth, equal)
	return math.Float32frombits(kth)
}

// sampleRun is the number of adjacent values sampled together: a cache line.
const sampleRun = simd.RunFloats

// sampleOf fills w.sample with the magnitudes of about n/every of the n values of residual+grad, in
// runs at indices that depend on seed.
func (w *Workspace) sampleOf(residual, grad []float32, every int, seed uint32) {
	stride := sampleRun * max(1, every)
	runs, within := len(residual)/stride, uint32(stride-sampleRun+1)
	w.runs = bytesview.Sized(w.runs, runs)
	for i := range w.runs {
		w.runs[i] = uint32(i*stride) + scatter(seed+uint32(i))%within
	}
	w.sample = bytesview.Sized(w.sample, runs*sampleRun)
	if grad != nil {
		w.kernel().AddRuns(w.sample, residual, grad, w.runs)
		return
	}
	for i, at := range w.runs {
		copy(w.sample[i*sampleRun:][:sampleRun], residual[at:])
	}
}

// scatter is a hash of 32 bits (the finaliser of MurmurHash3).
func scatter(x uint32) uint32 {
	x = (x ^ x>>16) * 0x85ebca6b
	x = (x ^ x>>13) * 0xc2b2ae35
	return x ^ x>>16
}

// An estimate reads one of sampleEvery values, but more if the sample would have fewer than
// sampleLeast, and at most sampleMost.
const (
	sampleEvery = 64
	sampleLeast = 1 << 9
	sampleMost  = 1 << 16
)

// estimate returns two bounds of the k-th largest magnitude, from a sample: probably at least k
// magnitudes reach least, and fewer than k reach high. limit is the maximum number that may reach
// least. The ranks of least and high in the sample are four standard deviations from the expected
// rank of the k-th magnitude.
func (w *Workspace) estimate(residual, grad []float32, k int) (least uint32, limit int, high uint32) {
	n := len(residual)
	w.sampleOf(residual, grad, max(min(sampleEvery, n/sampleLeast), n/sampleMost), 0)
	m := len(w.sample)
	expected := float64(k) * float64(m) / float64(n)
	margin := 4*math.Sqrt(expected) + 4
	rank := int(expected + margin)
	if rank >= m {
		return 0, n, noBound
	}
	least, reach := w.search(w.sample, rank, rank+rank/16+1, 0)
	high = noBound
	if rank := int(expected - margin); rank > 0 {
		high, _ = w.search(w.sample, rank-rank/16, rank, least)
	}
	most := (float64(reach) + margin) * float64(n) / float64(m)
	return max(least, 1), min(n, int(most)), max(high, 1)
}

// noBound is a bound above every magnitude.
const noBound = 1<<31 - 1

// search returns a bound that at least low and at most high magnitudes of x reach, or, if none
// exists, the largest bound that low or more reach. reach is the number that reach it. At least low
// magnitudes must reach least. search bisects the range by counts: in a cache a count is 20 times
// as fast as a histogram.
func (w *Workspace) search(x []float32, low, high int, least uint32) (bound uint32, reach int) {
	k, reach := w.kernel(), -1
	end := k.MaxMagnitude(x) + 1 // fewer than low reach end
	middle := least + (end-least)/2
	if octaves := uint32(4 << 23); end > octaves && end-octaves > least {
		middle = end - octaves // nearly always the range of the bound
	}
	for end-least > 1 {
		if n := k.CountAtLeast(x, middle); n < low {
			end = middle
		} else if least, reach = middle, n; n <= high {
			return least, reach
		}
		middle = least + (end-least)/2
	}
	if reach < 0 {
		reach = k.CountAtLeast(x, least)
	}
	return least, reach
}

// kthLargest returns the bits of the k-th largest magnitude of x, which must reach least, and the
// number of values of equal magnitude among the k largest.
func (w *Workspace) kthLargest(x []float32, k int, least uint32) (kth uint32, equal int) {
	kernels := w.kernel()
	kth, reach := w.search(x, k, k, least)
	if reach == k {
		kth = kernels.MinAtLeast(x, kth)
	}
	return kth, k - kernels.CountAtLeast(x, kth+1)
}

// kthBetween is kthLargest. If fewer than k magnitudes are at least high, as is probable, it
// searches only the values below high.
func (w *Workspace) kthBetween(x []float32, k int, least, high uint32) (kth uint32, equal int) {
	if high == noBound {
		return w.kthLargest(x, k, least)
	}
	w.middle = bytesview.Sized(w.middle, len(x))
	below := w.kernel().Below(w.middle, x, high)
	above := len(x) - below
	if above >= k {
		return w.kthLargest(x, k, max(least, high))
	}
	return w.kthLargest(w.middle[:below], k-above, least)
}

// descend returns the bin of a histogram that has the k-th value, counted from the last bin, and
// the value's rank in the bin, from 1.
func descend(counts []uint32, k int) (bin uint32, left int) {
	for i := len(counts) - 1; ; i-- {
		if k <= int(counts[i]) {
			return uint32(i), k
		}
		k -= int(counts[i])
	}
}

// trim keeps the k largest of s's entries from start on, and moves the other entries back to
// residual. All reach least, and probably fewer than k reach high. The result is the k-th largest
// magnitude.
func (w *Workspace) trim(s *Sparse, start int, residual []float32, base, k int, least, high uint32) float32 {
	rest := s.entries(start)
	kth, equal := w.kthBetween(rest.Value, k, least, high)
	w.lowIndex, w.lowValue = bytesview.Sized(w.lowIndex, takeChunk), bytesview.Sized(w.lowValue, takeChunk)
	low, to, kept := simd.Entries{Index: w.lowIndex, Value: w.lowValue}, rest, 0
	for len(rest.Index) > 0 {
		n := min(len(rest.Index), takeChunk)
		high, below := w.kernel().Separate(to, low, simd.Entries{Index: rest.Index[:n], Value: rest.Value[:n]}, kth)
		putBack(residual, base, low.Index[:below], low.Value[:below])
		rest.Index, rest.Value = rest.Index[n:], rest.Value[n:]
		to.Index, to.Value, kept = to.Index[high:], to.Value[high:], kept+high
	}
	s.Index, s.Value = s.Index[:start+kept], s.Value[:start+kept]
	if kept > k { // too many equal the k-th
		w.spare(s, start, residual, base, kth, equal)
	}
	return math.Float32frombits(kth)
}

// count does the same as kthLargest, in two passes over memory.
func (w *Workspace) count(x []float32, k int) (kth uint32, equal int) {
	const bins = 1 << 16
	w.counts = bytesview.Sized(w.counts, 2*bins)
	clear(w.counts)
	even, odd := w.counts[:bins], w.counts[bins:]
	pairs := x[:len(x)&^1]
	for i := 0; i < len(pairs); i += 2 { // two tables, so that equal neighbours do not wait for each other
		even[simd.Magnitude(pairs[i])>>15]++
		odd[simd.Magnitude(pairs[i+1])>>15]++
	}
	if len(x)&1 == 1 {
		even[simd.Magnitude(x[len(x)-1])>>15]++
	}
	for i, c := range odd {
		even[i] += c
	}
	top, left := descend(even, k)
	low := odd[:1<<15]
	clear(low)
	for _, v := range x {
		if m := simd.Magnitude(v); m>>15 == top {
			low[m&(1<<15-1)]++
		}
	}
	bottom, equal := descend(low, left)
	return top<<15 | bottom, equal
}

// exactly moves to s all values of residual above magnitude kth, and the first `equal` values of
// magnitude kth.
func (w *Workspace) exactly(s *Sparse, residual []float32, base int, kth uint32, equal int) {
	k, often := w.kernel(), simd.Few
	for lo := 0; lo < len(residual); lo += takeChunk {
		x := residual[lo:min(lo+takeChunk, len(residual))]
		s.Reserve(len(x))
		start, least := len(s.Index), kth
		if equal == 0 {
			least++
		}
		room := start + len(x)
		n := k.Take(s.Index[start:room], s.Value[start:room], x, least, int32(base+lo), often)
		s.Index, s.Value = s.Index[:start+n], s.Value[:start+n]
		often = simd.OftenOf(n, len(x))
		if equal > 0 && n > 0 && k.MinAtLeast(s.Value[start:], 0) == kth {
			equal -= w.spare(s, start, x, base+lo, kth, equal)
		}
	}
}

// spare moves entries of magnitude kth back to the residual, except for the first `most` of them,
// and returns the number that stay.
func (w *Workspace) spare(s *Sparse, start int, x []float32, base int, kth uint32, most int) (stay int) {
	index, value := s.Index[start:], s.Value[start:]
	to := 0
	for i, v := range value {
		if simd.Magnitude(v) == kth {
			if stay == most {
				x[int(index[i])-base] = v
				continue
			}
			stay++
		}
		index[to], value[to] = index[i], v
		to++
	}
	s.Index, s.Value = s.Index[:start+to], s.Value[:start+to]
	return stay
}
