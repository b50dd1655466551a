package tune

import (
	"runtime"
	"time"

	"github.com/ringo-ml/ringo/bucket"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/exchange"
	"github.com/ringo-ml/ringo/internal/simd"
)

// What a computation beside an exchange is.
const (
	loadValues = 16 << 10 // of the two operands, which stay in the nearest caches
	loadLeast  = 10e-3    // seconds: longer than a core is taken away for
	loadFactor = 1.5      // how many times as long as the exchange it is, alone
	loadBudget = 2.0      // seconds of all rounds of one length, about
	besideLong = 0.15     // seconds of the longest exchange that is measured so,
	besideTold = 1e-3     // and of the shortest that tells how much longer its bytes take
)

// beside measures what exchanges and a computation do to each other, all ranks at once:
// the shortest that was timed tells how much later a message ends, the longest that
// does not take too long what happens to speeds.
func (b *exchangeBench) beside() (out bucket.Beside, err error) {
	if b.load, err = b.newLoad(); err != nil || b.load.turn == 0 {
		return out, err
	}
	short, long := b.points[0], b.points[0]
	for _, p := range b.points {
		if p.Seconds <= besideLong {
			long = p
		}
	}
	t, err := b.overlap(b.op(short.values), short.Seconds)
	if err != nil {
		return out, err
	}
	out = bucket.Beside{Share: t.share(), Late: max(0, t.both.end-t.exchange), Stretch: 1}
	if long.values > short.values {
		l, err := b.overlap(b.op(long.values), long.Seconds)
		if err != nil {
			return out, err
		}
		if out.Share = l.share(); l.exchange >= besideTold {
			out.Stretch = l.stretch(out.Late)
			out.Late = max(0, t.both.end-out.Stretch*t.exchange)
		}
	}
	return out, nil
}

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

// overlapped are the medians, in seconds on the slowest rank, of a load and an exchange each
// alone, and of both at once.
type overlapped struct {
	load, exchange float64
	both           besideTimes
}

// besideTimes are when a load and an exchange that began together ended.
type besideTimes struct{ load, end float64 }

// overlap measures op, which takes so long, and a load beside it. Turns are taken, so that
// a machine whose speed changes is compared with itself.
func (b *exchangeBench) overlap(op *exchange.Op, took float64) (out overlapped, err error) {
	long := max(loadLeast, loadFactor*took)
	turns := max(1, int(long/b.load.turn))
	var loads, exchanges, bothLoads, bothEnds []float64
	for range min(21, max(5, int(loadBudget/(3*long)))) {
		alone, err := b.run(nil, turns)
		if err != nil {
			return out, err
		}
		agreed, err := b.once(op)
		if err == nil {
			err = slowest(b.g, agreed)
		}
		if err != nil {
			return out, err
		}
		both, err := b.run(op, turns)
		if err != nil {
			return out, err
		}
		loads, exchanges = append(loads, alone.load), append(exchanges, agreed[0])
		bothLoads, bothEnds = append(bothLoads, both.load), append(bothEnds, both.end)
	}
	return overlapped{median(loads), median(exchanges), besideTimes{median(bothLoads), median(bothEnds)}}, nil
}

// together is how long both went on at once.
func (t overlapped) together() float64 { return max(1e-9, min(t.both.load, t.both.end)) }

// share is what the computation lost of its speed meanwhile.
func (t overlapped) share() float64 {
	return min(1, max(0, (t.both.load-t.load)/t.together()))
}

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

// run computes so many turns when all ranks are there, beside an exchange if there is one.
func (b *exchangeBench) run(op *exchange.Op, turns int) (t besideTimes, err error) {
	if op != nil {
		clear(op.X)
	}
	if err := collective.Barrier(b.g); err != nil {
		return t, err
	}
	start := time.Now()
	if op != nil {
		if b.r.Start(op); b.c.casts() {
			start = time.Now() // they count apart
		}
	}
	for range turns {
		b.load.compute()
		runtime.Gosched() // as between two layers of backward
	}
	agreed := []float64{time.Since(start).Seconds(), 0}
	if op != nil {
		end, err := b.r.Wait(op)
		if err != nil {
			return t, err
		}
		agreed[1] = end.Sub(start).Seconds()
	}
	err = slowest(b.g, agreed)
	return besideTimes{agreed[0], agreed[1]}, err
}
