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
	label   *label   // that the worker's goroutine carries, see Tape.Label
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

// pool runs jobs on a fixed number of threads, the caller's included.
//
// Each thread begins with the parts that lie in its share of 0 to parts-1, from the first one on, and then takes the
// last of what others have left. So what operations cut along the same axis stays with one core and in its caches: to read
// what another core has just written takes several times as long. And a thread which the system has taken its core from, or
// which still wakes up, holds up nobody.
type pool struct {
	workers []worker
	dry     bool           // parts are left undone: see Params.Arrange
	shares  []*share       // by worker
	helpers []*share       // those of the threads besides the caller's
	shared  *time.Duration // where the time of jobs is added up, or nil
	label   *label         // that jobs carry
	closed  atomic.Bool

	done sleeper // the caller, while others still compute
	_    [64]byte
	busy atomic.Int64 // parts that are not done
	_    [64]byte
}

// share is what one thread has to do, and the thread. The caller writes all of it at once: it lies
// on one pair of cache lines.
type share struct {
	remaining atomic.Uint64 // its parts that nobody has taken: the first, and 32 bits below one more than the last
	job       job           // that these are of
	label     *label        // that the job carries
	w         *worker
	sleep     sleeper
	_         [64]byte
}

// take takes a part of what is left: the first, or with last the last.
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

// serve takes part in every job. Jobs follow each other within microseconds,
// and to wake a thread takes longer than many of them: a helper looks for the
// next one for a while before it sleeps.
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

// work takes parts until there are none left, first w's own. Who has taken one knows that the
// job lasts at least until that part is done.
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

// share runs parts on all threads. The caller has the first of them, which others must see before
// they begin: who is done with its own looks at it once, and then sleeps.
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

// level gives every worker as much working memory as any has: who takes which
// part may differ from step to step, and a later step shall not allocate.
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

// cutsEach is into how many parts a thread's share is cut where the cut changes no sum, so that one
// which is held up, or runs on a slower core, leaves some of its work to others.
const cutsEach = 4

// cut is into how many parts to cut so many units of work: no part is much smaller than least,
// unless threads would have nothing to do, and each thread has as many. One thread has one part.
func (p *pool) cut(units, least int) int {
	threads := p.threads()
	if threads == 1 {
		return 1
	}
	each := max(1, min(cutsEach, units/max(1, least)/threads))
	return max(1, min(units, threads*each))
}

// cutValues is into how many parts to cut an operation on each of n values by itself: where spanOf
// says, which is where operations that are cut along their rows are cut, too.
func (p *pool) cutValues(n int) int {
	if n < valuesPart/4 {
		return 1
	}
	return p.cut((n+lineValues-1)/lineValues, valuesPart/4/lineValues)
}

// spanOf is where part i of n values begins and ends: on a cache line of its own, where the values
// begin on one.
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
