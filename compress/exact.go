package compress

import (
	"math"

	"github.com/ringo-ml/ringo/internal/simd"
)

// smallSelection is the length up to which all values are candidates.
const smallSelection = 4096

// Exact adds grad (nil: nothing) to residual and moves its k largest magnitudes,
// of equal ones those of lower index, to s, at base and their places. k is from
// 1 to len(residual). It returns the k-th largest magnitude.
//
// A bound that somewhat more than k values should reach, and one that somewhat
// fewer should, are estimated from a sample; one pass takes all that reach the
// first, and the k-th is searched among those between the two. Where the sample misled, or many values are equal, the values' upper 16
// bits are counted, then the rest of the bits, and a last pass takes what the
// k-th value bounds: 4 passes over memory at most, and nearly always one.
func (w *Workspace) Exact(s *Sparse, base int, residual, grad []float32, k int) float32 {
	n, start := len(residual), len(s.Index)
	w.take = take{residual: residual, grad: grad, base: base, limit: n}
	high := uint32(noBound)
	if n > smallSelection {
		w.take.least, w.take.limit, high = w.estimate(residual, grad, k)
	}
	count := w.over(s)
	if count <= w.take.limit {
		if count >= k {
			return w.trim(s, start, residual, base, k, w.take.least, high)
		}
		putBack(residual, base, s.Index[start:], s.Value[start:])
		s.Index, s.Value = s.Index[:start], s.Value[:start]
	}
	kth, equal := w.count(residual, k)
	w.exactly(s, residual, base, kth, equal)
	return math.Float32frombits(kth)
}

// sampleRun is how many values that follow each other are sampled together: a
// cache line.
const sampleRun = 16

// sampleOf fills w.sample with the magnitudes of about n/every values of
// residual+grad, in runs at places that seed scatters.
func (w *Workspace) sampleOf(residual, grad []float32, every int, seed uint32) {
	n := len(residual)
	stride := sampleRun * max(1, every)
	w.sample = sized(w.sample, n/stride*sampleRun)
	for i, to := 0, w.sample; len(to) > 0; i, to = i+1, to[sampleRun:] {
		at := i*stride + int(scatter(seed+uint32(i))%uint32(stride-sampleRun+1))
		copy(to[:sampleRun], residual[at:])
		if grad != nil {
			for j, g := range grad[at : at+sampleRun] {
				to[j] += g
			}
		}
	}
}

// scatter is a hash of 32 bits (the finaliser of MurmurHash3).
func scatter(x uint32) uint32 {
	x = (x ^ x>>16) * 0x85ebca6b
	x = (x ^ x>>13) * 0xc2b2ae35
	return x ^ x>>16
}

// sampleEvery is the share of values, one of so many, that an estimate reads, and
// sampleMost how many it reads at most.
const (
	sampleEvery = 64
	sampleMost  = 1 << 16
)

// estimate returns a bound that at least k values should reach, how many may
// reach it at most, and a bound that fewer than k should reach: four standard
// deviations of the sample's count off.
func (w *Workspace) estimate(residual, grad []float32, k int) (least uint32, limit int, high uint32) {
	n := len(residual)
	w.sampleOf(residual, grad, max(sampleEvery, n/sampleMost), 0)
	m := len(w.sample)
	expected := float64(k) * float64(m) / float64(n)
	margin := 4*math.Sqrt(expected) + 4
	rank := int(expected + margin)
	if rank >= m {
		return 0, n, noBound
	}
	least, _ = w.kthLargest(w.sample, rank, 0)
	high = noBound
	if rank := int(expected - margin); rank > 0 {
		high, _ = w.kthLargest(w.sample, rank, least)
	}
	most := (float64(rank) + margin) * float64(n) / float64(m)
	return max(least, 1), min(n, int(most)), max(high, 1)
}

// noBound is above every magnitude.
const noBound = 1<<31 - 1

// kthLargest returns the bits of the k-th largest magnitude of x, which is known
// to be at least least, and how many of that magnitude are among the k largest. It
// halves the range by counting what reaches its middle, at most 31 times: in a
// cache a count is 20 times as fast as a histogram.
func (w *Workspace) kthLargest(x []float32, k int, least uint32) (kth uint32, equal int) {
	kernels, above := w.kernel(), 0
	end := kernels.MaxMagnitude(x) + 1 // above many reach it, fewer than k
	for end-least > 1 {
		middle := least + (end-least)/2
		if n := kernels.CountAtLeast(x, middle); n >= k {
			least = middle
		} else {
			end, above = middle, n
		}
	}
	return least, k - above
}

// kthBetween is kthLargest; where, as is probable, fewer than k magnitudes are at
// least high, it looks at those below only.
func (w *Workspace) kthBetween(x []float32, k int, least, high uint32) (kth uint32, equal int) {
	above := w.kernel().CountAtLeast(x, high)
	if above >= k {
		return w.kthLargest(x, k, max(least, high))
	}
	if above == 0 {
		return w.kthLargest(x, k, least)
	}
	w.middle = sized(w.middle, len(x))
	to := 0
	for _, v := range x { // without branches
		w.middle[to] = v
		to += int((simd.Magnitude(v) - high) >> 31)
	}
	return w.kthLargest(w.middle[:to], k-above, least)
}

// descend returns the bin that holds the k-th of the values, from the last bin
// on, and its place among those of the bin, from 1.
func descend(counts []uint32, k int) (bin uint32, left int) {
	for i := len(counts) - 1; ; i-- {
		if k <= int(counts[i]) {
			return uint32(i), k
		}
		k -= int(counts[i])
	}
}

// trim leaves in s, from entry start on, the k largest, and puts the others back
// into residual. All are at least least, and probably fewer than k at least high.
// It returns the k-th largest magnitude.
func (w *Workspace) trim(s *Sparse, start int, residual []float32, base, k int, least, high uint32) float32 {
	index, value := s.Index[start:], s.Value[start:]
	kth, equal := w.kthBetween(value, k, least, high)
	to := 0
	for i, v := range value { // without branches: a third may be put back
		at, m := index[i], simd.Magnitude(v)
		index[to], value[to] = at, v
		below := int32(m-kth) >> 31 // all bits, or none
		residual[int(at)-base] = math.Float32frombits(math.Float32bits(v) & uint32(below))
		to += 1 + int(below)
	}
	s.Index, s.Value = s.Index[:start+to], s.Value[:start+to]
	if to > k { // more equal the k-th than are wanted
		w.spare(s, start, residual, base, kth, equal)
	}
	return math.Float32frombits(kth)
}

// count is kthLargest in two passes over memory.
func (w *Workspace) count(x []float32, k int) (kth uint32, equal int) {
	const bins = 1 << 16
	w.counts = sized(w.counts, 2*bins)
	clear(w.counts)
	even, odd := w.counts[:bins], w.counts[bins:]
	pairs := x[:len(x)&^1]
	for i := 0; i < len(pairs); i += 2 { // two tables: equal neighbours do not wait for each other
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

// exactly moves from residual to s all above a magnitude, and the first so many
// that equal it.
func (w *Workspace) exactly(s *Sparse, residual []float32, base int, kth uint32, equal int) {
	k := w.kernel()
	for lo := 0; lo < len(residual); lo += takeChunk {
		x := residual[lo:min(lo+takeChunk, len(residual))]
		s.Reserve(len(x))
		start, least := len(s.Index), kth
		if equal == 0 {
			least++
		}
		room := start + len(x)
		n := k.Take(s.Index[start:room], s.Value[start:room], x, least, int32(base+lo))
		s.Index, s.Value = s.Index[:start+n], s.Value[:start+n]
		if equal > 0 {
			equal -= w.spare(s, start, x, base+lo, kth, equal)
		}
	}
}

// spare puts back all but the first so many entries that equal a magnitude, and
// returns how many stay.
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
