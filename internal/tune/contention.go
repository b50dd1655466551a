package tune

import (
	"runtime"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/simd"
)

// The load during exchanges.
const (
	loadValues      = 16 << 10 // both operands fit the nearest caches
	loadLeast       = 10e-3    // seconds: longer than a core's preemption
	loadFactor      = 1.5      // load time over exchange time, both alone
	loadBudget      = 2.0      // seconds of all rounds of a length, about
	longestMeasured = 0.15     // seconds of the longest exchange to measure
	shortestTelling = 1e-3     // seconds of the shortest exchange that shows the stretch of bytes
	messages        = 8        // per row: a single message is lost in noise
)

// contention measures how exchanges and a computation slow each other, on all ranks together. The
// longest exchange within longestMeasured shows the computation's loss of speed; a row of shorter
// messages, in total within this limit and half of the arena, shows Late and Cut. Shorter messages
// would be later: long ones make up for waits from buffers and idle links. If no exchange is within
// the limit, contention is not measured: processors matter little on such links.
func (b *exchangeBench) contention() (out bucket.Contention, err error) {
	if b.points[0].Seconds > longestMeasured { // nor would an equally long computation end soon
		return out, nil
	}
	if b.load, err = b.newLoad(); err != nil || b.load.turn == 0 {
		return out, err
	}
	short, long := b.points[0], b.points[0] // short: a message of the row
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
			for range 8 { // mutually dependent: each round divides the error by about n
				out.Stretch = l.stretch(out.Late)
				out.Late = t.late(out.Stretch) / n
			}
		}
	}
	return out, nil
}

// lost splits the computation's loss into a share of speed, by the bytes of a long exchange, and a
// cut by each of n short exchanges. If the long exchange is shorter than a preemption, the parts
// cannot be separated, and the whole loss counts as share.
func lost(short, long overlapped, n float64) (share, cut float64) {
	if long.together() < loadLeast {
		both := short.slower() + long.slower()
		return min(1, max(0, both/(short.together()+long.together()))), 0
	}
	share = long.share()
	return share, max(0, short.slower()-share*short.together()) / n
}

// row is a row of exchanges of the given length.
func (b *exchangeBench) row(values int) (ops []*exchange.Request) {
	for at := 0; len(ops) < messages && at+values <= len(b.arena); at += values {
		op := b.op(values)
		op.X = b.arena[at : at+values]
		ops = append(ops, op)
	}
	return ops
}

// covered calls overlap with a load that outlasts ops, which take took seconds without load.
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

// turns is the number of turns in a time with all ranks computing.
func (b *exchangeBench) turns(seconds float64) int { return max(1, int(seconds/b.load.turn)) }

type load struct {
	compute func()  // a turn
	turn    float64 // seconds per turn with all ranks computing; 0: the clock did not advance
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

// newLoad measures a turn's time.
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

// overlapped holds medians, in seconds on the slowest rank, of a load and exchanges each alone, and
// of both together.
type overlapped struct {
	load, exchange float64
	both           contended
}

// contended holds the ends of a load and of the last exchange, after a common start.
type contended struct{ load, end float64 }

// overlap measures ops and a load of the given time, at least loadLeast. Rounds alternate, against
// changes of the machine's speed.
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

// together is the time with both in progress.
func (t overlapped) together() float64 { return max(1e-9, min(t.both.load, t.both.end)) }

// share is the computation's loss of speed in the overlap.
func (t overlapped) share() float64 {
	return min(1, max(0, t.slower()/t.together()))
}

// slower is the computation's extra time, in seconds.
func (t overlapped) slower() float64 { return t.both.load - t.load }

// late is the exchanges' extra time without the stretch.
func (t overlapped) late(stretch float64) float64 { return max(0, t.both.end-stretch*t.exchange) }

// stretch is the factor on the exchange's time during the load, without lateness. The rest after
// the load's end went at the speed of an exchange alone.
func (t overlapped) stretch(late float64) float64 {
	const most = 16
	together := max(1e-9, t.together()-late)
	done := t.exchange - max(0, t.both.end-t.both.load)
	if done*most <= together {
		return most
	}
	return max(1, together/done)
}

// run starts the exchanges and computes the turns, after a barrier.
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
		start = time.Now() // casts count apart
	}
	for range turns {
		b.load.compute()
		runtime.Gosched() // like backward between two layers
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
