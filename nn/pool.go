package nn

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/simd"
)

// job is work cut into parts that may run simultaneously. Results must not depend on the worker w,
// which only provides working memory.
type job interface{ part(w *worker, i int) }

// passJob is a pass of an operation over 0..span, cut into parts at multiples of unit. Every value
// is the same sum in the same order for any cut, except in passes that sum by part.
type passJob[O any] struct {
	o                 *O
	pass              func(o *O, w *worker, part, lo, hi int)
	parts, span, unit int
}

// share runs a pass with a number of parts that suits the threads, each of at least `least` units.
func (j *passJob[O]) share(t *Tape, o *O, pass func(o *O, w *worker, part, lo, hi int), span, unit, least int) {
	j.run(t, o, pass, t.pool.cut((span+unit-1)/unit, least), span, unit)
}

// each runs a pass with one part per unit.
func (j *passJob[O]) each(t *Tape, o *O, pass func(o *O, w *worker, part, lo, hi int), span, unit int) {
	j.run(t, o, pass, span, span, unit)
}

// run runs a pass with at most parts parts.
func (j *passJob[O]) run(t *Tape, o *O, pass func(o *O, w *worker, part, lo, hi int), parts, span, unit int) {
	*j = passJob[O]{o, pass, min(parts, (span+unit-1)/unit), span, unit}
	t.pool.run(j, j.parts)
}

func (j *passJob[O]) part(w *worker, i int) {
	units := (j.span + j.unit - 1) / j.unit
	j.pass(j.o, w, i, units*i/j.parts*j.unit, min(units*(i+1)/j.parts*j.unit, j.span))
}

type worker struct {
	k       *simd.Kernels
	gemm    simd.Scratch
	windows simd.WindowRows
	panels  [36]simd.PackedB // Winograd, by point
	points  simd.Points
	buf     [6][]float32
	group   groupScratch
	label   *label   // label set on the goroutine, see TapeConfig.Labels
	_       [64]byte // separates the cache lines of threads
}

// floats returns working memory i, of n unspecified values.
func (w *worker) floats(i, n int) []float32 {
	w.buf[i] = sized(w.buf[i], n)
	return w.buf[i]
}

// match makes w's memory as large as o's, so that a later step needs no allocation.
func (w *worker) match(o *worker) {
	w.gemm.Match(&o.gemm)
	w.group.match(&o.group)
	for i := range w.buf {
		w.buf[i] = sized(w.buf[i], cap(o.buf[i]))
	}
}

// pool runs jobs on a fixed number of threads, including the caller's.
//
// Each thread begins with the parts of its share of 0 to parts-1, from the first on, and then takes
// the last of the other threads' remaining parts. Work cut along the same axis therefore stays on
// one core and in its caches: reading data that another core has just written takes several times
// as long. A thread that lost its core, or is still waking up, delays no other thread.
type pool struct {
	workers []worker
	dry     bool           // skip parts: see Params.Arrange
	shares  []*share       // one per worker
	helpers []*share       // shares of all threads but the caller's
	shared  *time.Duration // total time of jobs, or nil
	label   *label         // label of jobs
	closed  atomic.Bool

	done sleeper // the caller, while helpers compute
	_    [64]byte
	busy atomic.Int64 // unfinished parts
	_    [64]byte
}

// share is one thread's part of the work, with the thread. It fills one pair of cache lines,
// because the caller writes all of it together.
type share struct {
	remaining atomic.Uint64 // untaken parts: the first, and in the low 32 bits the end
	job       job           // job of the parts
	label     *label        // label of the job
	w         *worker
	sleep     sleeper
	_         [64]byte
}

// take returns a part that no thread has taken: the first, or the last if last is true.
func (s *share) take(last bool) (part int, ok bool) {
	for {
		left := s.remaining.Load()
		lo, hi := uint32(left>>32), uint32(left)
		switch {
		case lo == hi:
			return 0, false
		case last:
			if s.remaining.CompareAndSwap(left, left-1) {
				return int(hi - 1), true
			}
		default:
			if s.remaining.CompareAndSwap(left, left+1<<32) {
				return int(lo), true
			}
		}
	}
}

func newPool(k *simd.Kernels, threads int) *pool {
	p := &pool{workers: make([]worker, threads), done: newSleeper(threads)}
	for i := range p.workers {
		p.workers[i].k = k
		p.shares = append(p.shares, &share{w: &p.workers[i], sleep: newSleeper(threads)})
	}
	p.helpers = p.shares[1:]
	for _, s := range p.helpers {
		go p.serve(s)
	}
	return p
}

// serve takes part in every job. Jobs follow each other within microseconds, less than waking a
// thread takes, so a helper polls for the next job before it sleeps.
func (p *pool) serve(s *share) {
	more := func() bool {
		left := s.remaining.Load()
		return uint32(left>>32) != uint32(left) || p.closed.Load()
	}
	for !p.closed.Load() {
		p.work(s.w)
		s.sleep.wait(more)
	}
}

// work runs parts until all are taken, w's share first. The job lasts until these parts end.
func (p *pool) work(w *worker) {
	var done int64
	own := 0
	for &p.workers[own] != w {
		own++
	}
	for i := range p.shares {
		s := p.shares[(own+i)%len(p.shares)]
		for {
			part, ok := s.take(i > 0)
			if !ok {
				break
			}
			w.carry(s.label)
			s.job.part(w, part)
			done++
		}
	}
	if done > 0 && p.busy.Add(-done) == 0 {
		p.done.wake()
	}
}

// run runs parts 0 to parts-1 of j and waits for all.
func (p *pool) run(j job, parts int) {
	if p.dry || parts == 0 {
		return
	}
	if p.shared != nil {
		defer func(begun time.Time) { *p.shared += time.Since(begun) }(time.Now())
	}
	if parts == 1 || len(p.helpers) == 0 {
		for i := range parts {
			j.part(&p.workers[0], i)
		}
		return
	}
	p.share(j, parts)
}

// share runs parts on all threads. It publishes the caller's share first: a thread that has no part
// left reads it once, and then sleeps.
func (p *pool) share(j job, parts int) {
	p.busy.Store(int64(parts))
	n := len(p.shares)
	for i, s := range p.shares {
		lo, hi := (i*parts+n-1)/n, ((i+1)*parts+n-1)/n
		s.job, s.label = j, p.label
		s.remaining.Store(uint64(lo)<<32 | uint64(hi))
		if i > 0 && lo < hi {
			s.sleep.wake()
		}
	}
	p.work(&p.workers[0])
	for p.busy.Load() > 0 {
		p.done.wait(func() bool { return p.busy.Load() == 0 })
	}
	for _, s := range p.shares {
		s.job = nil
	}
}

// level gives every worker as much working memory as the largest, because the division of parts may
// differ from step to step, and a later step should not allocate.
func (p *pool) level() {
	if len(p.workers) == 1 {
		return
	}
	most := &p.workers[0]
	for i := range p.workers[1:] {
		most.match(&p.workers[i+1])
	}
	for i := range p.workers[1:] {
		p.workers[i+1].match(most)
	}
}

// threads is the number of parts that can run simultaneously.
func (p *pool) threads() int { return len(p.workers) }

// cutsEach is the number of pieces of a thread's share, if more pieces change no sum: other threads
// then take pieces of a thread that is delayed or on a slower core.
const cutsEach = 4

// cut returns the number of parts for units units of work: parts are not much smaller than least,
// unless threads would be idle, and each thread has the same number. A single thread has one part.
func (p *pool) cut(units, least int) int {
	threads := p.threads()
	if threads == 1 {
		return 1
	}
	each := max(1, min(cutsEach, units/max(1, least)/threads))
	return max(1, min(units, threads*each))
}

// cutValues returns the number of parts for an elementwise operation on n values, at the same
// positions as in operations that are cut along rows.
func (p *pool) cutValues(n int) int {
	if n < valuesPart/4 {
		return 1
	}
	return p.cut((n+lineValues-1)/lineValues, valuesPart/4/lineValues)
}

// spanOf returns the range of part i of n values, aligned to cache lines if the values are.
func spanOf(n, i, parts int) (lo, hi int) {
	lines := (n + lineValues - 1) / lineValues
	return min(n, lines*i/parts*lineValues), min(n, lines*(i+1)/parts*lineValues)
}

func (p *pool) close() {
	p.closed.Store(true)
	for _, s := range p.helpers {
		s.sleep.wake()
	}
	p.helpers = nil
}

// sleeper waits for other goroutines, first polling, then asleep.
type sleeper struct {
	asleep atomic.Bool
	signal chan struct{}
	// yield reports whether a polling goroutine must let other goroutines run. If the Go scheduler
	// has more threads than this pool, an idle one runs them, and a yield would only wake it.
	yield bool
}

func newSleeper(threads int) sleeper {
	return sleeper{signal: make(chan struct{}, 1), yield: runtime.GOMAXPROCS(0) <= threads}
}

const (
	// patience is the duration that a sleeper polls before it sleeps: most updates and exchanges
	// between two steps of a small model are shorter.
	patience = 500 * time.Microsecond
	// looks is the number of polls between two clock readings, some microseconds apart.
	looks = 2000
	// robbed is the length of a gap between two clock readings from which a sleeper concludes that
	// another thread ran on its core; the sleeper then sleeps and leaves the core to it.
	robbed = 50 * time.Microsecond
)

// wait returns when ready returns true. It may return earlier.
func (s *sleeper) wait(ready func() bool) {
	before := time.Now()
	for end := before.Add(patience); ; {
		for range looks {
			if ready() {
				return
			}
		}
		if s.yield {
			runtime.Gosched()
		}
		now := time.Now()
		if now.After(end) || now.Sub(before) > robbed {
			break
		}
		before = now
	}
	s.asleep.Store(true)
	if ready() && s.asleep.CompareAndSwap(true, false) {
		return
	}
	<-s.signal
}

// wake ends a sleep.
func (s *sleeper) wake() {
	if s.asleep.Load() && s.asleep.CompareAndSwap(true, false) {
		s.signal <- struct{}{}
	}
}
