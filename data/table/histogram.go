package table

import "math"

// maxBins limits the bins of a histogram. Merged bins leave at least half of them.
const maxBins = 40

// Histogram counts numbers in bins of equal width: bin i has those from Start+i·Width on. The bins
// depend on the numbers alone, not on their order or on the division of a table into files.
type Histogram struct {
	Start  float64 `json:"start"`
	Width  float64 `json:"width"`
	Counts []int64 `json:"counts"`
}

// bins is a histogram in progress. Its width is a power of two: bin i begins at (First+i)·2^Exp.
type bins struct {
	Exp    int     `json:"exp,omitempty"`
	First  int64   `json:"first,omitempty"`
	Counts []int64 `json:"counts,omitempty"`
}

// add counts a finite number. Cost: a division and a rounding; the first numbers double the width
// up to 2,000 times.
func (b *bins) add(x float64) {
	if len(b.Counts) == 0 {
		b.Exp = -1074 // the finest width: the smallest positive float64
		if x != 0 {
			b.Exp = max(b.Exp, math.Ilogb(x)-52)
		}
	}
	b.addScaled(x, 0, 1)
}

// addScaled adds n numbers of value x·2^exp.
func (b *bins) addScaled(x float64, exp int, n int64) {
	for {
		if at := math.Floor(math.Ldexp(x, exp-b.Exp)); math.Abs(at) < 1<<53 {
			k := int64(at)
			if x < 0 { // a small negative number may have become 0
				k = min(k, -1)
			}
			if i := k - b.First; i >= 0 && i < int64(len(b.Counts)) {
				b.Counts[i] += n
				return
			}
			if len(b.Counts) == 0 {
				b.First = k
			}
			low, high := min(b.First, k), max(b.First+int64(len(b.Counts)), k+1)
			if high-low <= maxBins {
				grown := make([]int64, high-low)
				copy(grown[b.First-low:], b.Counts)
				grown[k-low] += n
				b.First, b.Counts = low, grown
				return
			}
		}
		b.double()
	}
}

// double doubles the width.
func (b *bins) double() {
	merged := bins{Exp: b.Exp + 1, First: b.First >> 1} // the shift rounds down
	if n := int64(len(b.Counts)); n > 0 {
		merged.Counts = make([]int64, (b.First+n-1)>>1-merged.First+1)
	}
	for i, n := range b.Counts {
		merged.Counts[(b.First+int64(i))>>1-merged.First] += n
	}
	*b = merged
}

// merge adds the numbers of another table.
func (b *bins) merge(o bins) {
	for len(b.Counts) > 0 && len(o.Counts) > 0 && b.Exp < o.Exp {
		b.double()
	}
	for len(b.Counts) > 0 && o.Exp < b.Exp {
		o.double()
	}
	if len(b.Counts) == 0 {
		*b = bins{o.Exp, o.First, append([]int64(nil), o.Counts...)}
		return
	}
	for i, n := range o.Counts {
		if n > 0 {
			b.addScaled(float64(o.First+int64(i)), o.Exp, n)
		}
	}
}

// histogram returns the counts; nil without numbers or with one bin alone.
func (b *bins) histogram() *Histogram {
	if len(b.Counts) < 2 {
		return nil
	}
	return &Histogram{Start: math.Ldexp(float64(b.First), b.Exp), Width: math.Ldexp(1, b.Exp), Counts: b.Counts}
}
