package collective

import (
	"math/bits"

	"github.com/ringo-ml/ringo/internal/usage"
)

// window has the operations in progress, in order, from the oldest unfinished one on: at most
// `most` operations and limit bytes together. A finished operation counts until all older ones have
// finished.
//
// Without these limits a fast rank would fill a slow peer's buffer for early messages, and the
// messages of an older operation, which the peer needs first, could not arrive.
type window struct {
	slots []slot // indexed by sequence number modulo the length, a power of two, so that numbers can wrap around
	most  uint32
	base  uint32 // number of the oldest unfinished operation
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

// admits reports whether operation seq of n bytes may begin. Operations are admitted in order.
func (win *window) admits(seq uint32, n int) bool {
	ahead := seq - win.base
	return ahead == 0 || ahead < win.most && win.load+n <= win.limit
}

func (win *window) admit(w *Work) {
	*win.at(w.seq) = slot{work: w, bytes: w.bytes(), used: true}
	win.load += w.bytes()
}

// retire marks an operation as finished and advances the window.
func (win *window) retire(w *Work) {
	win.at(w.seq).work = nil
	for s := win.at(win.base); s.used && s.work == nil; s = win.at(win.base) {
		win.load -= s.bytes
		*s = slot{}
		win.base++
	}
}

func (win *window) busy() bool { return win.at(win.base).used }

// start assigns w its sequence number and runs w: on the caller's goroutine if the caller waits and
// w may begin immediately, which saves two goroutine switches, else on a worker's.
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

// whole returns the size in bytes of all operands together, equal on every rank except in
// AllToAllV: there each rank has only its own size.
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

// number assigns w its number among the group's operations. blocking reports that the caller runs
// w, and does not poll for its end. g.mu is held.
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

// enqueue queues w for the workers. g.mu is held.
func (g *Group) enqueue(w *Work) {
	if g.head == nil {
		g.head = w
	} else {
		g.tail.next = w
	}
	g.tail = w
	if g.running == 0 { // a non-empty queue has at least one worker: see Close
		g.hire()
	}
	g.hand()
}

// hire adds a goroutine that runs queued operations. g.mu is held.
func (g *Group) hire() {
	g.running++
	g.workers.Add(1)
	go g.worker()
}

// hand starts or wakes a worker if the first operation of the queue may begin. A woken worker
// counts as idle until it runs, and then calls hand for the operation after its own. g.mu is held.
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

// take waits until the first operation of the queue may begin, and returns it; nil once the group
// is closed and the queue is empty. g.mu is held.
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

// finish completes w and wakes its waiter. g.mu is held.
func (g *Group) finish(w *Work) {
	g.scribe.ended(w)
	g.window.retire(w)
	g.hand()
	g.leave()
	w.done <- struct{}{}
}
