package tune

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/median"
)

// Codec measures the candidate's cost on the compute path of a model with the given number of
// values, on all ranks of g together and with the threads of pool, as in a step, and fits curves to
// the times; unit is the bytes per payload entry, or per value of a dense payload. Encoding of
// payloads and casts to 16 bits belong to Exchange. Codec is a collective call and takes about 1 s.
func Codec(g *collective.Group, c Candidate, pool compress.Pool, values int) (cost bucket.CodecProfile, unit float64, err error) {
	cost, unit = bucket.CodecProfile{Name: c.codec(), Density: c.Density}, c.payload(0).Unit
	chain := c.local()
	if chain == nil {
		return cost, unit, nil
	}
	chain, relative := chain.Relative(c.Density)
	samples, err := compress.MeasureCosts(chain, pool, values)
	if err != nil {
		return cost, 0, fmt.Errorf("tune: %s: %w", c.Name, err)
	}
	var all []float64 // exact, reuse and bytes per entry, by sample
	for _, s := range samples {
		all = append(all, max(s.Exact, 1e-9), max(s.Reuse, 1e-9), float64(s.Bytes)/float64(max(1, s.Entries)))
	}
	if err := slowest(g, all); err != nil {
		return cost, 0, err
	}
	var exact, reuse []bucket.Sample
	for i, s := range samples {
		size := float64(s.Values)
		exact = append(exact, bucket.Sample{Size: size, Seconds: all[3*i]})
		reuse = append(reuse, bucket.Sample{Size: size, Seconds: all[3*i+1]})
		if c.sparse() {
			unit = all[3*i+2] // finally the longest sample's
		}
	}
	switch {
	case relative:
		exact = reuse
	case !c.reuses(): // both alike
		exact = append(exact, reuse...)
		reuse = exact
	}
	if cost.Exact, err = bucket.FitCurve(exact); err == nil {
		cost.Reuse, err = bucket.FitCurve(reuse)
	}
	return cost, unit, err
}

// medianOf is the median of x, and leaves x in order.
func medianOf(x []float64) float64 { return median.Of(slices.Clone(x)) }
