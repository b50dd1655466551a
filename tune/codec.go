package tune

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/bucket"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
)

// What a codec is timed on.
const (
	codecMost   = 4 << 20 // values, more than a core keeps close
	codecLeast  = 1 << 10 // of a group
	codecRounds = 3
)

// Codec measures what the candidate costs on the compute path, for groups of up to so
// many values, on all ranks of g at once and with the threads of pool, as in a step.
// Each size is timed over an arena full of groups, so that none is still in a cache.
// unit is the bytes of an entry of its payload, or of a value where all are sent. It is
// a collective call and takes some tenths of a second.
func Codec(g *collective.Group, c Candidate, pool compress.Pool, values int) (cost bucket.CodecProfile, unit float64, err error) {
	unit = c.payload(0).Unit
	cost = bucket.CodecProfile{Name: c.Name, Density: c.Density}
	if c.Chain = c.local(); c.Chain == nil {
		return cost, unit, nil
	}
	b, err := newCodecBench(c, pool, min(max(values, codecLeast), codecMost), uint64(g.Rank()))
	if err != nil {
		return cost, 0, err
	}
	var exact, reuse []bucket.Sample
	for size := b.values(); size >= codecLeast; size /= 4 {
		seconds, err := b.time(size)
		if err != nil {
			return cost, 0, err
		}
		if err := slowest(g, seconds[:]); err != nil {
			return cost, 0, err
		}
		exact = append(exact, bucket.Sample{Size: float64(size), Seconds: max(seconds[0], 1e-9)})
		reuse = append(reuse, bucket.Sample{Size: float64(size), Seconds: max(seconds[1], 1e-9)})
	}
	if c.sparse() {
		if unit, err = b.unit(g); err != nil {
			return cost, 0, err
		}
	}
	if cost.Exact, err = bucket.FitCurve(exact); err == nil {
		cost.Reuse, err = bucket.FitCurve(reuse)
	}
	return cost, unit, err
}

// codecBench is a chain over an arena of its own.
type codecBench struct {
	c     Candidate
	comp  *compress.Compressor
	grads [2][]float32 // each the negative of the other: residuals stay small
	work  []float32    // Round and transforms change it
	out   compress.Sparse
}

func newCodecBench(c Candidate, pool compress.Pool, n int, seed uint64) (*codecBench, error) {
	comp, err := c.Chain.Bind([]compress.Param{{Name: "values", Lo: 0, Hi: n}}, n, pool)
	if err != nil {
		return nil, fmt.Errorf("tune: %s: %w", c.Name, err)
	}
	b := &codecBench{c: c, comp: comp, grads: [2][]float32{make([]float32, n), make([]float32, n)}, work: make([]float32, n)}
	r := rand.New(rand.NewPCG(1, seed))
	for i := range n {
		v := float32(r.NormFloat64()) * 1e-3
		b.grads[0][i], b.grads[1][i] = v, -v
	}
	return b, nil
}

func (b *codecBench) values() int { return len(b.work) }

// time is the time of a group of that size, of an exact step and of one that reuses a
// threshold.
func (b *codecBench) time(size int) (seconds [2]float64, err error) {
	groups := make([]compress.Group, 0, b.values()/size)
	for at := 0; at+size <= b.values(); at += size {
		groups = append(groups, compress.Group{Lo: at, Hi: at + size})
	}
	var times [2][]float64
	for range codecRounds {
		if err := b.comp.Change(b.c.Chain); err != nil { // forgets thresholds
			return seconds, fmt.Errorf("tune: %s: %w", b.c.Name, err)
		}
		if err := b.comp.SetGroups(groups); err != nil {
			return seconds, fmt.Errorf("tune: %s: %w", b.c.Name, err)
		}
		for step := range 2 {
			copy(b.work, b.grads[step])
			start := time.Now()
			for i, g := range groups {
				if err := b.step(i, b.work[g.Lo:g.Hi]); err != nil {
					return seconds, fmt.Errorf("tune: %s: %w", b.c.Name, err)
				}
			}
			times[step] = append(times[step], time.Since(start).Seconds()/float64(len(groups)))
		}
	}
	for step, t := range times {
		seconds[step] = median(t)
	}
	if !b.c.reuses() { // the two are alike
		seconds[0] = median(append(times[0], times[1]...))
		seconds[1] = seconds[0]
	}
	return seconds, nil
}

func (b *codecBench) step(group int, grads []float32) error {
	if b.c.sparse() {
		return b.comp.Select(&b.out, group, grads)
	}
	return b.comp.Round(group, grads)
}

// unit is the bytes of an entry in the payload of a large group; of ranks that differ
// the most.
func (b *codecBench) unit(g *collective.Group) (float64, error) {
	if err := b.comp.Change(b.c.Chain); err != nil {
		return 0, fmt.Errorf("tune: %s: %w", b.c.Name, err)
	}
	if err := b.comp.SetGroups([]compress.Group{{Lo: 0, Hi: b.values()}}); err != nil {
		return 0, fmt.Errorf("tune: %s: %w", b.c.Name, err)
	}
	copy(b.work, b.grads[0])
	if err := b.comp.Select(&b.out, 0, b.work); err != nil {
		return 0, fmt.Errorf("tune: %s: %w", b.c.Name, err)
	}
	payload, err := b.comp.Encode(nil, &b.out)
	if err != nil {
		return 0, fmt.Errorf("tune: %s: %w", b.c.Name, err)
	}
	per := []float64{float64(len(payload)) / float64(max(1, b.out.Count()))}
	err = slowest(g, per)
	return per[0], err
}

func median[T cmp.Ordered](x []T) T {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}
