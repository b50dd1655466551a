package tune

import (
	"runtime"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/simd"
)

// The load whose contention with exchanges is measured.
const (
	loadValues      = 16 << 10 // of the two operands, which stay in the nearest caches
	loadLeast       = 10e-3    // seconds: longer than a core is taken away for
	loadFactor      = 1.5      // how many times as long as the exchange it is, alone
	loadBudget      = 2.0      // seconds of all rounds of one length, about
	longestMeasured = 0.15     // seconds of the longest exchange that is measured so,
	shortestTelling = 1e-3     // and of the shortest that tells how much longer its bytes take
	messages        = 8        // one after the other: a single one is lost in noise
)

// contention measures what exchanges and a computation lose to each other, all ranks at once:
// the longest exchange that does not take too long tells what happens to speeds, and some
// shorter ones that are no longer together, of no more than half of the arena, how much
// later a message ends and what it takes of the computation. Shorter ones still
// are later: bytes make up for what they waited, from buffers and idle links. Links on which
// the shortest takes too long are not measured so: what processors do is little beside them.
func (b *exchangeBench) contention() (out bucket.Contention, err error) {
	if b.points[0].Seconds > longestMeasured { // nor would a computation as long end soon
		return out, nil
	}
	if b.load, err = b.newLoad(); err != nil || b.load.turn == 0 {
		return out, err
	}
	short, long := b.points[0], b.points[0] // short: one of several
	for _, p := range b.points {
		if p.Seconds <= longestMeasured {
			long = p
		}
		if messages*p.Seconds <= longestMeasured && 2*messages*p.values <= len(b.arena) {
			short = p
		}
	}
	ops := b.row(short.values)
	n := float64(len(ops))
	t, err := b.covered(ops, n*short.Seconds)
	if err != nil {
		return out, err
	}
	out = bucket.Contention{Share: t.share(), Late: t.late(1) / n, Stretch: 1}
	if long.values > short.values {
		l, err := b.overlap([]*exchange.Request{b.op(long.values)}, loadFactor*long.Seconds)
		if err != nil {
			return out, err
		}
		out.Share, out.Cut = lost(t, l, n)
		if l.exchange >= shortestTelling {
			for range 8 { // both follow from each other: the error falls to an n-th or so each time
				out.Stretch = l.stretch(out.Late)
				out.Late = t.late(out.Stretch) / n
			}
		}
	}
	return out, nil
}

// lost is what the computation lost: a share of its speed by the bytes of a long exchange,
// and what each of n short ones took beyond that. A long one that is over before a core is taken
// away for once cannot tell the two apart, so that all of it is a share.
func lost(short, long overlapped, n float64) (share, cut float64) {
	if long.together() < loadLeast {
		both := short.slower() + long.slower()
		return min(1, max(0, both/(short.together()+long.together()))), 0
	}
	share = long.share()
	return share, max(0, short.slower()-share*short.together()) / n
}

// row are exchanges of so many values, one after the other.
func (b *exchangeBench) row(values int) (ops []*exchange.Request) {
	for at := 0; len(ops) < messages && at+values <= len(b.arena); at += values {
		op := b.op(values)
		op.X = b.arena[at : at+values]
		ops = append(ops, op)
	}
	return ops
}

// covered is overlap with a load that all of ops end beside, which take so long without it.
func (b *exchangeBench) covered(ops []*exchange.Request, took float64) (overlapped, error) {
	const doublings = 5
	long := max(2*loadLeast, loadFactor*took)
	for range doublings {
		t, err := b.run(ops, b.turns(long))
		if err != nil {
			return overlapped{}, err
		}
		if t.end <= t.load {
			break
		}
		long *= 2
	}
	return b.overlap(ops, long)
}

// turns take so long when all ranks compute.
func (b *exchangeBench) turns(seconds float64) int { return max(1, int(seconds/b.load.turn)) }

// load is a computation of turns.
type load struct {
	compute func()  // a turn
	turn    float64 // seconds of one when all ranks compute; 0: the clock stands still meanwhile
}

// adds is a turn of some 50 us.
func adds() func() {
	kernels, x, y := simd.Host(), make([]float32, loadValues), make([]float32, loadValues)
	return func() {
		for range 16 {
			kernels.Add(x, y)
		}
	}
}

// newLoad finds out how long a turn takes.
func (b *exchangeBench) newLoad() (load, error) {
	if b.load.compute == nil {
		b.load.compute = adds()
	}
	const most = 1 << 16
	for turns := 8; turns <= most; turns *= 2 {
		t, err := b.run(nil, turns)
		if err != nil {
			return load{}, err
		}
		if t.load < 1e-6 {
			break
		}
		if b.load.turn = t.load / float64(turns); t.load > loadLeast {
			break
		}
	}
	return b.load, nil
}

// overlapped are the medians, in seconds on the slowest rank, of a load and exchanges each
// alone, and of both at once.
type overlapped struct {
	load, exchange float64
	both           contended
}

// contended are when a load and the last exchange of those that began together ended.
type contended struct{ load, end float64 }

// overlap measures ops and a load beside them that takes so long, or loadLeast. Turns are
// taken, so that a machine whose speed changes is compared with itself.
func (b *exchangeBench) overlap(ops []*exchange.Request, long float64) (out overlapped, err error) {
	long = max(loadLeast, long)
	turns := b.turns(long)
	var loads, exchanges, bothLoads, bothEnds []float64
	for range min(21, max(5, int(loadBudget/(3*long)))) {
		alone, err := b.run(nil, turns)
		if err != nil {
			return out, err
		}
		free, err := b.run(ops, 0)
		if err != nil {
			return out, err
		}
		both, err := b.run(ops, turns)
		if err != nil {
			return out, err
		}
		loads, exchanges = append(loads, alone.load), append(exchanges, free.end)
		bothLoads, bothEnds = append(bothLoads, both.load), append(bothEnds, both.end)
	}
	return overlapped{medianOf(loads), medianOf(exchanges), contended{medianOf(bothLoads), medianOf(bothEnds)}}, nil
}

// together is how long both went on at once.
func (t overlapped) together() float64 { return max(1e-9, min(t.both.load, t.both.end)) }

// share is what the computation lost of its speed meanwhile.
func (t overlapped) share() float64 {
	return min(1, max(0, t.slower()/t.together()))
}

// slower is how much longer the computation took, in seconds.
func (t overlapped) slower() float64 { return t.both.load - t.load }

// late is how much later the exchanges ended, where their bytes took so many times as long.
func (t overlapped) late(stretch float64) float64 { return max(0, t.both.end-stretch*t.exchange) }

// stretch is how many times as long the exchange took meanwhile, apart from what it was
// late. What was left of it when the load had ended took as long as alone.
func (t overlapped) stretch(late float64) float64 {
	const most = 16
	together := max(1e-9, t.together()-late)
	done := t.exchange - max(0, t.both.end-t.both.load)
	if done*most <= together {
		return most
	}
	return max(1, together/done)
}

// run computes so many turns when all ranks are there, beside exchanges if there are any.
func (b *exchangeBench) run(ops []*exchange.Request, turns int) (t contended, err error) {
	for _, op := range ops {
		clean(op)
	}
	if err := collective.Barrier(b.g); err != nil {
		return t, err
	}
	start := time.Now()
	for _, op := range ops {
		b.r.Start(op)
	}
	if b.c.casts() {
		start = time.Now() // they count apart
	}
	for range turns {
		b.load.compute()
		runtime.Gosched() // as between two layers of backward
	}
	agreed := []float64{time.Since(start).Seconds(), 0}
	for _, op := range ops {
		end, err := b.r.Wait(op)
		if err != nil {
			return t, err
		}
		agreed[1] = end.Sub(start).Seconds()
	}
	err = slowest(b.g, agreed)
	return contended{agreed[0], agreed[1]}, err
}
