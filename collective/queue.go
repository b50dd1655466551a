package collective

import (
	"math/bits"

	"github.com/ringo-ml/ringo/internal/usage"
)

// window holds the operations that make progress: those from the oldest
// unfinished one on, at most `most` in sequence and limit bytes together, of
// which finished ones count until all older ones have finished too.
//
// The bound matters beyond memory. A rank that ran far ahead would fill its
// peer's buffer for unexpected messages, and then the messages of an older
// operation, which the peer needs to get on, would be stuck behind them.
type window struct {
	slots []slot // by sequence number, modulo; a power of two, so that numbers may wrap around
	most  uint32
	base  uint32 // the oldest unfinished operation
	load  int    // bytes of all slots in use
	limit int
}

type slot struct {
	work  *Work // nil when finished or not in use
	bytes int
	used  bool
}

func newWindow(most, limit int) window {
	return window{slots: make([]slot, 1<<bits.Len(uint(most-1))), most: uint32(most), limit: limit}
}

func (win *window) at(seq uint32) *slot { return &win.slots[seq%uint32(len(win.slots))] }

// admits reports whether operation seq of n bytes may begin. Operations are
// admitted in order.
func (win *window) admits(seq uint32, n int) bool {
	ahead := seq - win.base
	return ahead == 0 || ahead < win.most && win.load+n <= win.limit
}

func (win *window) admit(w *Work) {
	*win.at(w.seq) = slot{work: w, bytes: w.bytes(), used: true}
	win.load += w.bytes()
}

// retire marks an operation as finished and moves the window on.
func (win *window) retire(w *Work) {
	win.at(w.seq).work = nil
	for s := win.at(win.base); s.used && s.work == nil; s = win.at(win.base) {
		win.load -= s.bytes
		*s = slot{}
		win.base++
	}
}

func (win *window) busy() bool { return win.at(win.base).used }

// start gives w its sequence number and sees to it that it runs: on the
// caller's goroutine if it is to be waited for and may begin at once, which
// saves small operations two changes of goroutine, else on a worker's.
func (g *Group) start(w *Work, blocking bool) *Work {
	if most := w.whole() / w.segmentBytes(); most >= 1<<numberBits {
		return w.misuse("%d values make %d segments of %d bytes, the limit is %d: set larger segments", w.whole()/w.elem.size(), most, w.segmentBytes(), 1<<numberBits)
	}
	g.mu.Lock()
	w.seq = g.next
	if err := g.broken(); err != nil {
		g.mu.Unlock()
		return w.refuse(w.wrap(err))
	}
	here := (blocking || g.size == 1) && g.head == nil && g.window.admits(w.seq, w.bytes())
	g.number(w, here && blocking)
	if here {
		g.window.admit(w)
		g.mu.Unlock()
		w.err = w.run()
		w.ranInline = true
		g.scribe.stop(w)
		g.mu.Lock()
		g.scribe.ended(w)
		g.window.retire(w)
		g.hand()
		g.leave()
		g.mu.Unlock()
		return w
	}
	g.enqueue(w)
	g.mu.Unlock()
	return w
}

// whole is the bytes of all that the operation is about, the same on every rank but
// for AllToAllV, whose ranks know their own only.
func (w *Work) whole() int {
	switch w.kind {
	case kindGather, kindScatter:
		return w.share() * w.g.size // only the root has x
	case kindAllGather:
		return max(len(w.x), len(w.src)*len(w.separateOuts))
	case kindAllToAllV:
		return max(len(w.x), len(w.dst))
	}
	return len(w.x)
}

// number gives w its place among the operations of the group. blocking says that its caller carries it out, and does not ask when it
// has ended. g.mu is held.
func (g *Group) number(w *Work, blocking bool) {
	w.seq = g.next
	g.next++
	w.algorithm = g.method(w.kind, w.shared()*w.elem.size())
	w.sig = w.signature()
	g.scribe.begin(w, blocking)
	if w.algorithm == byDirect || w.algorithm == byHierarchy && g.hostSharesMemory() {
		w.number = g.share.next
		g.share.next++
	}
}

// enqueue leaves w to the workers. g.mu is held.
func (g *Group) enqueue(w *Work) {
	if g.head == nil {
		g.head = w
	} else {
		g.tail.next = w
	}
	g.tail = w
	if g.running == 0 { // one is there as long as the queue is not empty, see Close
		g.hire()
	}
	g.hand()
}

// hire adds a worker. g.mu is held.
func (g *Group) hire() {
	g.running++
	g.workers.Add(1)
	go g.worker()
}

// hand sees to it that a worker takes the queue's head if it may begin. One that
// was woken counts as idle until it runs, and then calls hand itself: works that
// are started in a row do not wait for one worker. g.mu is held.
func (g *Group) hand() {
	switch {
	case g.head == nil || !g.window.admits(g.head.seq, g.head.bytes()):
	case g.idle > 0:
		g.wake.Signal()
	case g.running < g.cfg.InFlight:
		g.hire()
	}
}

// worker runs queued operations, oldest first, until the group is closed.
func (g *Group) worker() {
	usage.Phase("exchange")
	defer g.workers.Done()
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		w := g.take()
		if w == nil {
			return
		}
		g.mu.Unlock()
		w.onWorker = true
		w.err = w.run()
		g.scribe.stop(w)
		g.mu.Lock()
		g.finish(w)
	}
}

// take waits for the queue's head to be admissible and admits it; nil once the
// group is closed and the queue is empty. g.mu is held.
func (g *Group) take() *Work {
	for {
		w := g.head
		if w != nil && g.window.admits(w.seq, w.bytes()) {
			g.head, w.next = w.next, nil
			g.window.admit(w)
			g.hand()
			return w
		}
		if w == nil && g.closed {
			return nil
		}
		g.idle++
		g.wake.Wait()
		g.idle--
	}
}

// finish hands w back to whoever waits for it. g.mu is held.
func (g *Group) finish(w *Work) {
	g.scribe.ended(w)
	g.window.retire(w)
	g.hand()
	g.leave()
	w.done <- struct{}{}
}
