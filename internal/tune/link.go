package tune

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/median"
)

// Sizes and limits for timing an exchange.
const (
	linkLeast  = 1 << 10 // values of the shortest
	linkRounds = 9       // limit per size
	linkBudget = 0.2     // seconds per size; the first size has two rounds at least
	linkLong   = 0.5     // seconds of an exchange that ends the series
	lineMiss   = 0.05    // bound for a line's relative error: the spread of medians
)

// Exchange measures the exchange times of a candidate's buckets by size, on the job's links with
// all ranks: lines fitted per algorithm of r, the contention of exchanges and a computation, and
// the caller's time in r. unit is the bytes per payload entry, from Codec. arena is the job's arena
// of gradients between two steps, as the place of values matters to transports; Exchange leaves the
// arena zero. Exchange is a collective call that takes some seconds on slow links.
func Exchange(g *collective.Group, r exchange.Reducer, c Candidate, unit float64, arena []float32) ([]bucket.LinkProfile, Calls, error) {
	if g.Size() == 1 && serversOf(r) == 0 {
		return nil, Calls{}, nil
	}
	b := exchangeBench{g: g, r: r, c: c, arena: arena, payload: c.payload(unit), rand: rand.New(rand.NewPCG(2, uint64(g.Rank())))}
	defer clear(arena)
	for _, size := range linkSizes(len(arena)) {
		took, err := b.time(size)
		if err != nil {
			return nil, Calls{}, fmt.Errorf("tune: exchanging %d values under %s: %w", size, c.Name, err)
		}
		if took > linkLong {
			break
		}
	}
	calls, err := b.calls()
	if err != nil {
		return nil, Calls{}, err
	}
	links, err := b.lines()
	if err != nil {
		return nil, Calls{}, err
	}
	contention, err := b.contention()
	if err != nil {
		return nil, Calls{}, fmt.Errorf("tune: measuring the contention of exchanges and a computation under %s: %w", c.Name, err)
	}
	for i := range links {
		links[i].Contention = contention
	}
	return links, calls, nil
}

// Calls holds the caller's time within a Reducer, by the size of a bucket: in Start, while the
// computation waits, and in Wait, after the end of the exchange. The time is for casts to 16 bits
// and back, so both are zero for other codes.
type Calls struct{ Start, Wait bucket.Curve }

// calls fits curves to the times of casts.
func (b *exchangeBench) calls() (out Calls, err error) {
	if !b.c.casts() {
		return out, nil
	}
	var start, wait []bucket.Sample
	for _, p := range b.points {
		start = append(start, bucket.Sample{Size: float64(p.values), Seconds: max(p.start, 1e-9)})
		wait = append(wait, bucket.Sample{Size: float64(p.values), Seconds: max(p.wait, 1e-9)})
	}
	if out.Start.Fixed, out.Start.PerValue, err = bucket.FitLine(start); err == nil {
		out.Wait.Fixed, out.Wait.PerValue, err = bucket.FitLine(wait)
	}
	return out, err
}

// linkSizes are the timed lengths: by factors of 4, and last the arena's length.
func linkSizes(values int) (sizes []int) {
	for n := linkLeast; n < values; n *= 4 {
		sizes = append(sizes, n)
	}
	return append(sizes, values)
}

// exchangeBench times exchanges of buckets at the arena's start.
type exchangeBench struct {
	g       *collective.Group
	r       exchange.Reducer
	c       Candidate
	arena   []float32
	payload bucket.Payload
	rand    *rand.Rand
	points  []point
	load    load
}

type point struct {
	bucket.Sample         // bytes of payload
	algorithm     string  // empty: unknown
	values        int     // bucket size
	start, wait   float64 // seconds in Start, and in Wait after the end
}

func (b *exchangeBench) op(size int) *exchange.Request {
	op := &exchange.Request{X: b.arena[:size]}
	if b.c.Chain != nil {
		op.Code = b.c.Chain.Quantiser()
	}
	if b.c.sparse() {
		op.Sparse = b.entries(size)
		if b.c.Bounded {
			op.MaxEntries = op.Sparse.Count()
		}
	}
	return op
}

// clean restores op's input.
func clean(op *exchange.Request) {
	clear(op.X)
	if s := op.Sparse; s != nil && s.Count() < op.MaxEntries { // the sum dropped some entries, all of equal value
		s.Index, s.Value = s.Index[:op.MaxEntries], s.Value[:op.MaxEntries]
		slices.Sort(s.Index)
	}
}

// time measures a length and returns the time, equal on every rank.
func (b *exchangeBench) time(size int) (float64, error) {
	op := b.op(size)
	rounds := 2
	var times, starts, waits []float64
	for i := 0; i < rounds; i++ {
		agreed, err := b.once(op)
		if err == nil {
			err = slowest(b.g, agreed)
		}
		if err != nil {
			return 0, err
		}
		if i > 0 || agreed[0] > linkLong { // the first finds buffers too small
			times, starts, waits = append(times, agreed[0]), append(starts, agreed[1]), append(waits, agreed[2])
		}
		if i == 0 {
			rounds = min(linkRounds, max(2, int(linkBudget/max(agreed[0], 1e-6))))
			if agreed[0] > linkLong {
				rounds = 1
			}
		}
	}
	took := max(medianOf(times), 1e-9)
	b.points = append(b.points, point{
		Sample: bucket.Sample{Size: b.payload.Bytes(size), Seconds: took}, algorithm: op.Sent.Algorithm,
		values: size, start: medianOf(starts), wait: medianOf(waits),
	})
	return took, nil
}

// once exchanges op after a barrier, and returns the seconds of the exchange, of Start, and of Wait
// after the end. An exchange of casts begins after Start.
func (b *exchangeBench) once(op *exchange.Request) (seconds []float64, err error) {
	clean(op)
	if err := collective.Barrier(b.g); err != nil {
		return nil, err
	}
	start := time.Now()
	b.r.Start(op)
	begun := time.Now()
	end, err := b.r.Wait(op)
	after := time.Since(end)
	spent := begun.Sub(start)
	if b.c.casts() {
		start = begun
	}
	return []float64{end.Sub(start).Seconds(), spent.Seconds(), after.Seconds()}, err
}

// entries are random indices, as many as the candidate sends of size values: ranks choose different
// entries of gradients, too.
func (b *exchangeBench) entries(size int) *compress.Sparse {
	k := b.payload.Entries(size)
	s := &compress.Sparse{}
	s.Reset(size)
	for i := 0; i < size && s.Count() < k; i++ { // Knuth's algorithm S
		if b.rand.IntN(size-i) < k-s.Count() {
			s.Append(i, 1)
		}
	}
	return s
}

// lines fits lines to the points of each algorithm. Each algorithm covers a range of sizes; an
// algorithm with a single size joins the next.
func (b *exchangeBench) lines() ([]bucket.LinkProfile, error) {
	var out []bucket.LinkProfile
	link := bucket.LinkProfile{Payload: bucket.DensePayload, Code: b.c.code(), Ranks: b.g.Size(), Hosts: b.g.Hosts(), Servers: serversOf(b.r)}
	if b.c.sparse() {
		link.Payload, link.Density, link.Unit = bucket.SparsePayload, b.payload.Density, b.payload.Unit
	}
	var all [][]point
	for _, run := range runs(b.points) {
		all = append(all, pieces(run)...)
	}
	for _, run := range all {
		var err error
		if link.Fixed, link.PerByte, err = bucket.FitLine(samplesOf(run)); err != nil {
			return nil, err
		}
		if link.Algorithm = run[len(run)-1].algorithm; link.Algorithm == "" {
			link.Algorithm = "exchange"
		}
		if n := len(out); n > 0 { // geometric middle, as sizes grow by factors
			link.Above = math.Sqrt(out[n-1].UpTo * run[0].Size)
			out[n-1].UpTo = link.Above
		}
		link.UpTo = run[len(run)-1].Size
		out = append(out, link)
	}
	out[len(out)-1].UpTo = 0
	return out, nil
}

func samplesOf(run []point) (out []bucket.Sample) {
	for _, p := range run {
		out = append(out, p.Sample)
	}
	return out
}

// pieces cuts the points of an algorithm if the line through all has an error above lineMiss, and
// lines through the parts less than half of the error. Links bend: data within buffers, or within a
// shaper's burst, takes next to no time. Neighbours share a point if the fit is as good, and the
// sizes of each differ by a factor of 2 at least, for a slope.
func pieces(run []point) [][]point {
	all := missed(run)
	if all <= lineMiss {
		return [][]point{run}
	}
	least := all / 2 // the least gain of a cut
	var first, second []point
	for i := 1; i < len(run); i++ {
		for _, end := range []int{i + 1, i} {
			a, b := run[:end], run[i:]
			if a[len(a)-1].Size < 2*a[0].Size || b[len(b)-1].Size < 2*b[0].Size {
				continue
			}
			if m := max(lineMiss, missed(a), missed(b)); m < least {
				least, first, second = m, a, b
			}
		}
	}
	if first == nil {
		return longest(run)
	}
	return append(pieces(first), pieces(second)...)
}

// longest cuts points without two good lines, due to noise in short exchanges, if the line through
// all misses the last point: long messages are most of a step's time. The tail gets a line through
// as many points as fit.
func longest(run []point) [][]point {
	if missedLast(run) <= lineMiss {
		return [][]point{run}
	}
	for i := 1; i < len(run)-1; i++ {
		head, tail := run[:i+1], run[i:]
		if head[i].Size >= 2*head[0].Size && tail[len(tail)-1].Size >= 2*tail[0].Size && missed(tail) <= lineMiss {
			return [][]point{head, tail}
		}
	}
	return [][]point{run}
}

// missed is the largest relative error of the line through the points.
func missed(run []point) (most float64) {
	for _, m := range misses(run) {
		most = max(most, m)
	}
	return most
}

func missedLast(run []point) float64 {
	m := misses(run)
	return m[len(m)-1]
}

// misses are the relative errors of the line through the points.
func misses(run []point) []float64 {
	out := make([]float64, len(run))
	fixed, per, err := bucket.FitLine(samplesOf(run))
	if err != nil {
		return out
	}
	for i, p := range run {
		out[i] = math.Abs((fixed+per*p.Size)/p.Seconds - 1)
	}
	return out
}

// runs cuts points, in the order of sizes, at changes of the algorithm. A run has at least two
// points, unless there is only one point.
func runs(points []point) (out [][]point) {
	for i, p := range points {
		if i == 0 || p.algorithm != points[i-1].algorithm {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], p)
	}
	for i := 0; i < len(out); i++ {
		switch {
		case len(out[i]) > 1 || len(out) == 1:
		case i+1 < len(out):
			out[i+1] = append(out[i], out[i+1]...)
			out = slices.Delete(out, i, i+1)
			i--
		default: // the longest: with the points before
			out[i-1] = append(out[i-1], out[i]...)
			out = out[:i]
		}
	}
	return out
}

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
