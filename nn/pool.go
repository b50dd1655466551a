package nn

import (
	"sync"
	"sync/atomic"

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
}

// floats returns working memory i, of n unspecified values.
func (w *worker) floats(i, n int) []float32 {
	w.buf[i] = sized(w.buf[i], n)
	return w.buf[i]
}

// match makes the working memory as large as o's.
func (w *worker) match(o *worker) {
	w.gemm.Match(&o.gemm)
	for i := range w.buf {
		w.buf[i] = sized(w.buf[i], cap(o.buf[i]))
	}
}

// pool runs jobs on a fixed number of threads, the caller's included.
type pool struct {
	workers []worker
	dry     bool            // parts are left undone: see Params.Arrange
	wake    []chan struct{} // one per goroutine besides the caller
	job     job
	parts   int64
	next    atomic.Int64
	done    sync.WaitGroup
}

func newPool(k *simd.Kernels, threads int) *pool {
	p := &pool{workers: make([]worker, threads)}
	for i := range p.workers {
		p.workers[i].k = k
	}
	for i := 1; i < threads; i++ {
		wake := make(chan struct{}, 1)
		p.wake = append(p.wake, wake)
		go p.serve(&p.workers[i], wake)
	}
	return p
}

func (p *pool) serve(w *worker, wake chan struct{}) {
	for range wake {
		p.work(w)
		p.done.Done()
	}
}

// work takes parts until there are none left.
func (p *pool) work(w *worker) {
	for i := p.next.Add(1) - 1; i < p.parts; i = p.next.Add(1) - 1 {
		p.job.part(w, int(i))
	}
}

// run runs parts 0 to parts-1 of j and waits for all.
func (p *pool) run(j job, parts int) {
	if p.dry {
		return
	}
	p.job, p.parts = j, int64(parts)
	p.next.Store(0)
	helpers := min(len(p.wake), parts-1)
	p.done.Add(max(0, helpers))
	for i := range helpers {
		p.wake[i] <- struct{}{}
	}
	p.work(&p.workers[0])
	p.done.Wait()
	p.job = nil
	p.level()
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
	for _, w := range p.wake {
		close(w)
	}
	p.wake = nil
}
