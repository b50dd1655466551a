package nn

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/simd"
)

// job is work cut into parts that may run at the same time. Parts must not
// depend on the worker: it only names working memory.
type job interface{ part(w *worker, i int) }

// worker is the working memory of one thread.
type worker struct {
	k       *simd.Kernels
	gemm    simd.Scratch
	windows simd.WindowRows
	panels  [36]simd.PackedB // of Winograd, by point
	points  simd.Points
	buf     [6][]float32
	group   groupScratch
	_       [64]byte // what threads write all the time lies on cache lines of their own
}

// floats returns working memory i, of n unspecified values.
func (w *worker) floats(i, n int) []float32 {
	w.buf[i] = sized(w.buf[i], n)
	return w.buf[i]
}

// match makes the working memory as large as o's.
func (w *worker) match(o *worker) {
	w.gemm.Match(&o.gemm)
	w.group.match(&o.group)
	for i := range w.buf {
		w.buf[i] = sized(w.buf[i], cap(o.buf[i]))
	}
}

// pool runs jobs on a fixed number of threads, the caller's included. Threads
// take parts one by one as they get to them, so that one which the system has
// taken its core from, or which is still asleep, holds up nobody.
type pool struct {
	workers []worker
	dry     bool      // parts are left undone: see Params.Arrange
	helpers []*helper // the threads besides the caller's
	closed  atomic.Bool

	job   job
	parts int64
	done  sleeper // the caller, while others still compute
	_     [64]byte
	left  atomic.Int64 // parts that nobody has taken
	_     [64]byte
	busy  atomic.Int64 // parts that are not done
	_     [64]byte
}

func newPool(k *simd.Kernels, threads int) *pool {
	p := &pool{workers: make([]worker, threads), done: newSleeper(threads)}
	for i := range p.workers {
		p.workers[i].k = k
	}
	for i := 1; i < threads; i++ {
		h := &helper{sleeper: newSleeper(threads), w: &p.workers[i]}
		p.helpers = append(p.helpers, h)
		go p.serve(h)
	}
	return p
}

// helper is a thread besides the caller's.
type helper struct {
	sleeper
	w *worker
}

// serve takes part in every job. Jobs follow each other within microseconds,
// and to wake a thread takes longer than many of them: a helper looks for the
// next one for a while before it sleeps.
func (p *pool) serve(h *helper) {
	more := func() bool { return p.left.Load() > 0 || p.closed.Load() }
	for !p.closed.Load() {
		p.work(h.w)
		h.wait(more)
	}
}

// work takes parts until there are none left. Who has taken one knows that the
// job lasts at least until that part is done.
func (p *pool) work(w *worker) {
	var done int64
	for {
		left := p.left.Load()
		if left == 0 {
			break
		}
		if p.left.CompareAndSwap(left, left-1) {
			p.job.part(w, int(p.parts-left))
			done++
		}
	}
	if done > 0 && p.busy.Add(-done) == 0 {
		p.done.wake()
	}
}

// run runs parts 0 to parts-1 of j and waits for all.
func (p *pool) run(j job, parts int) {
	switch {
	case p.dry || parts == 0:
		return
	case parts == 1 || len(p.helpers) == 0:
		for i := range parts {
			j.part(&p.workers[0], i)
		}
	default:
		p.share(j, parts)
	}
	p.level()
}

// share runs parts on all threads.
func (p *pool) share(j job, parts int) {
	p.job, p.parts = j, int64(parts)
	p.busy.Store(p.parts)
	p.left.Store(p.parts)
	for _, h := range p.helpers[:min(len(p.helpers), parts-1)] {
		h.wake()
	}
	p.work(&p.workers[0])
	for p.busy.Load() > 0 {
		p.done.wait(func() bool { return p.busy.Load() == 0 })
	}
	p.job = nil
}

// level gives every worker as much working memory as any has: who takes which
// part differs from step to step, and a later step shall not allocate.
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

// threads is how many parts can run at the same time.
func (p *pool) threads() int { return len(p.workers) }

func (p *pool) close() {
	p.closed.Store(true)
	for _, h := range p.helpers {
		h.wake()
	}
	p.helpers = nil
}

// sleeper waits for something that others do, first awake, then asleep.
type sleeper struct {
	asleep atomic.Bool
	signal chan struct{}
	// yield: other goroutines may need this one's scheduler thread. Where there
	// are more than compute, an idle one runs them, and to yield would only wake it.
	yield bool
}

func newSleeper(threads int) sleeper {
	return sleeper{signal: make(chan struct{}, 1), yield: runtime.GOMAXPROCS(0) <= threads}
}

const (
	// patience is how long a sleeper stays awake: most updates and exchanges
	// between two steps of a small model are over by then.
	patience = 500 * time.Microsecond
	// looks is how often it looks between two looks at the clock, some
	// microseconds apart.
	looks = 2000
	// robbed is a time between two looks at the clock in which something else
	// must have run on this core: whoever it is shall have it.
	robbed = 50 * time.Microsecond
)

// wait returns when ready says so, or sometimes before.
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
