package compress

import (
	"math/rand/v2"
	"time"
)

// CostSample is the measured time of a chain on this machine, in seconds, for a group of Values
// values. Plans of buckets use a line fitted through samples (bucket.FitLine).
type CostSample struct {
	Values  int
	Entries int // sent entries; all without a selection
	Bytes   int // payload size
	// Exact is the time of Select with an exact selection, Reuse that with the threshold of an
	// earlier step. They differ for DLGS only. Without a selection both are the time of Round.
	Exact, Reuse float64
	// Encode is the time of encoding the payload, which a step does in parallel to its computation.
	Encode float64
	// Apply is the time of decoding one rank's payload and adding it to a sum.
	Apply float64
}

// Lengths, in values, that MeasureCosts tries. A slice of costLongest values is larger than the
// nearest caches, as in a large model.
const (
	costShortest = 1 << 10
	costLongest  = 4 << 20
	costNoise    = 1 << 20
	costTurns    = 3                      // minimum repetitions of a length
	costTime     = 100 * time.Millisecond // approximate time for a length
)

// MeasureCosts measures chain on the threads of pool (nil: the caller's) with normally distributed
// gradients. Groups have 1 Ki values, 4 Ki and so on, up to the model's number of values or 4 Mi;
// each size runs for a tenth of a second. Costs are means, not minima: ranks that share a core and
// measure simultaneously delay each other, as they do in a step. MeasureCosts takes about a second
// and up to 60 MiB, or 100 MiB if the number of sent entries has no limit.
func MeasureCosts(chain *Chain, pool Pool, values int) ([]CostSample, error) {
	arena := costShortest
	for arena < costLongest && 4*arena <= values {
		arena *= 4
	}
	c, err := chain.Bind([]Param{{Name: "arena", Hi: arena}}, arena, pool)
	if err != nil {
		return nil, err
	}
	m := &costMeter{c: c, noise: make([]float32, min(arena, costNoise)), grads: make([]float32, arena), sum: make([]float32, arena)}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range m.noise {
		m.noise[i] = float32(r.NormFloat64())
	}
	var out []CostSample
	for n := costShortest; n <= arena; n *= 4 {
		s, err := m.sample(n)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// costMeter measures encoding and decoding of all groups of a slice.
type costMeter struct {
	c                 *Compressor
	noise, grads, sum []float32
	sparse            Sparse   // decoded
	sent              []Sparse // one per group
	payload           []byte
	ends              []int // ends of the groups' payloads
}

// sample measures groups of n values.
func (m *costMeter) sample(n int) (CostSample, error) {
	var groups []Bucket
	for lo := 0; lo < len(m.grads); lo += n {
		groups = append(groups, Bucket{Lo: lo, Hi: lo + n})
	}
	s := CostSample{Values: n, Entries: n}
	if len(m.sent) < len(groups) {
		m.sent = make([]Sparse, len(groups))
	}
	turns, start := 0, time.Now()
	for ; turns < costTurns || s.Exact > 0 && time.Since(start) < costTime; turns++ { // because a test's clock does not advance
		if err := m.c.Change(m.c.chain); err != nil { // resets thresholds
			return s, err
		}
		if err := m.c.SetGroups(groups); err != nil {
			return s, err
		}
		for _, sum := range []*float64{&s.Exact, &s.Reuse} {
			took, err := m.send(groups)
			if err != nil {
				return s, err
			}
			*sum += took
			if took, err = m.encode(groups); err != nil {
				return s, err
			}
			s.Encode += took / 2
		}
		took, err := m.apply(groups)
		if err != nil {
			return s, err
		}
		s.Apply += took
	}
	for _, sum := range []*float64{&s.Exact, &s.Reuse, &s.Encode, &s.Apply} {
		*sum /= float64(turns * len(groups))
	}
	if m.c.chain.Sparse() {
		s.Entries = m.sent[len(groups)-1].Count()
	}
	s.Bytes = len(m.payload) / len(groups)
	return s, nil
}

// send runs Select or Round for every group, with residuals of zero, and returns the seconds.
func (m *costMeter) send(groups []Bucket) (float64, error) {
	for lo := 0; lo < len(m.grads); lo += len(m.noise) {
		copy(m.grads[lo:], m.noise)
	}
	if kept := m.c.Residual(0, len(m.grads)); kept != nil {
		clear(kept)
	}
	start := time.Now()
	for i, g := range groups {
		var err error
		if grads := m.grads[g.Lo:g.Hi]; m.c.chain.Sparse() {
			err = m.c.Select(&m.sent[i], i, grads)
		} else {
			err = m.c.Round(i, grads)
		}
		if err != nil {
			return 0, err
		}
	}
	return time.Since(start).Seconds(), nil
}

// encode makes the payloads of the groups after send.
func (m *costMeter) encode(groups []Bucket) (float64, error) {
	m.payload, m.ends = m.payload[:0], m.ends[:0]
	start := time.Now()
	for i, g := range groups {
		var err error
		if m.c.chain.Sparse() {
			m.payload, err = m.c.Encode(m.payload, &m.sent[i])
		} else {
			m.payload, err = m.c.EncodeDense(m.payload, m.grads[g.Lo:g.Hi])
		}
		if err != nil {
			return 0, err
		}
		m.ends = append(m.ends, len(m.payload))
	}
	return time.Since(start).Seconds(), nil
}

// apply decodes every group and adds the values.
func (m *costMeter) apply(groups []Bucket) (float64, error) {
	start, lo := time.Now(), 0
	for i, g := range groups {
		p := m.payload[lo:m.ends[i]]
		lo = m.ends[i]
		if err := m.c.Decode(&m.sparse, p); err != nil {
			return 0, err
		}
		m.sparse.AddTo(m.sum[g.Lo:g.Hi])
	}
	return time.Since(start).Seconds(), nil
}
