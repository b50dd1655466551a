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
)

// What an exchange is timed with.
const (
	linkLeast  = 1 << 10 // values of the shortest
	linkRounds = 9       // most of one size
	linkBudget = 0.2     // seconds of one size; the first is always timed twice
	linkLong   = 0.5     // seconds of an exchange after which none is longer
	lineMiss   = 0.05    // by how much a line may miss a point: medians differ by as much
)

// Exchange measures how long r takes to exchange a candidate's groups, by their size,
// on the job's own links with all its ranks: the lines that fit the times of each
// algorithm that r chose, what exchanges and a computation lose to each other,
// and what r takes of its caller's own time. unit is the bytes of an entry of the payload, from Codec.
// arena is the job's own arena of gradients between two steps, since where values lie
// matters to what carries them; it is left all zero. It is a collective call that
// takes some seconds on slow links.
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

// Calls are what a Reducer's caller spends in it by the values of a group: Start on the
// path of the computation, and Wait after the exchange has ended. That is casting to 16
// bits and back; of other codes both are zero, since what they take is no more than what
// one notes of an operation.
type Calls struct{ Start, Wait bucket.Curve }

// calls fits curves to what casts took.
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

// linkSizes are the lengths that are timed: by a factor of 4, the arena's last.
func linkSizes(values int) (sizes []int) {
	for n := linkLeast; n < values; n *= 4 {
		sizes = append(sizes, n)
	}
	return append(sizes, values)
}

// exchangeBench times exchanges of groups at the arena's start.
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

// point is a measured exchange.
type point struct {
	bucket.Sample         // bytes of payload
	algorithm     string  // empty: the reducer does not tell
	values        int     // of the group
	start, wait   float64 // seconds in Start, and in Wait after the end
}

// op is an exchange of a group of so many values.
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

// clean makes op what it was before it was exchanged.
func clean(op *exchange.Request) {
	clear(op.X)
	if s := op.Sparse; s != nil && s.Count() < op.MaxEntries { // of some entries, all of a value, the sum had no room
		s.Index, s.Value = s.Index[:op.MaxEntries], s.Value[:op.MaxEntries]
		slices.Sort(s.Index)
	}
}

// time measures one length and returns how long it takes, the same on every rank.
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

// once exchanges op when all ranks are there, and returns the seconds of the exchange,
// of Start and of Wait after the end. Of casts the exchange begins behind Start, which
// counts apart.
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

// entries are as many of size values as the candidate sends, anywhere: ranks choose
// different ones, as they do of gradients.
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

// lines fits lines to the points of each algorithm. Algorithms follow each other by
// size; one that was seen at a single size is taken with what follows it.
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
		if n := len(out); n > 0 { // half-way, as sizes grow by factors
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

// pieces cuts the points of one algorithm where the line through all misses one by more
// than lineMiss, and lines through the parts by less than half of that. Links bend: what
// fits into buffers, or into the burst that a shaper lets pass, takes next to no time.
// Neighbours share a point where that is as good, and the sizes of each differ by a factor
// of two at least, or the line would have no slope.
func pieces(run []point) [][]point {
	all := missed(run)
	if all <= lineMiss {
		return [][]point{run}
	}
	least := all / 2 // a cut must pay
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

// longest cuts points that no two lines fit well, because some short one is noise, where
// the line through all misses the last one: long messages are most of a step's time. They get
// a line of their own, of as many as it fits.
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

// missed is by how much the line through points misses one at most, as a share.
func missed(run []point) (most float64) {
	for _, m := range misses(run) {
		most = max(most, m)
	}
	return most
}

// missedLast is by how much it misses the last one.
func missedLast(run []point) float64 {
	m := misses(run)
	return m[len(m)-1]
}

// misses are by how much the line through points misses each, as a share.
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

// runs cuts points, in the order of their sizes, where the algorithm changes. No run
// is of one point, unless there is no other.
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
		default: // the longest: with what comes before
			out[i-1] = append(out[i-1], out[i]...)
			out = out[:i]
		}
	}
	return out
}
