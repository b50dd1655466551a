package collective

import "github.com/ringo-ml/ringo/internal/bytesview"

// Send and Receive. They are between two ranks and take no part in the sequence of
// the group's operations: the i-th Send from one rank to another meets the i-th
// Receive there, whatever else both do. So their messages have tags of their own,
// with a counter for each pair and direction.
//
// A message longer than eager waits until the other rank has called Receive, which
// it says with an empty message: else a sender that is far ahead would fill the
// memory for early messages, and then collective operations would be stuck
// behind it. The sender announces it with an empty message, too, or a Receive of less,
// which says nothing, would wait for what never comes instead of being told.
//
// Between ranks that share memory, messages go through that: see direct_pair.go.

const (
	eager = 64 << 10 // bytes

	pairGroup  = 1 << 31 // added to the group's id in the tags of messages
	readyGroup = 1 << 30 // and of what says that the receiver is ready
)

// Send sends x to rank to, whose matching Receive must have the same type and
// length. The Sends to one rank are received in the order in which they were
// started. It returns when x may be written again: up to 64 KiB it need not have
// been received, above that the other rank has at least called Receive.
func Send[T Number](g *Group, x []T, to int) error { return startP2P(g, kindSend, x, to, true).Wait() }

// StartSend is Send in the background: x must not be touched until Wait returns.
func StartSend[T Number](g *Group, x []T, to int) *Work { return startP2P(g, kindSend, x, to, false) }

// Receive replaces x by what rank from sends. The i-th Receive from a rank gets its
// i-th Send to this one.
func Receive[T Number](g *Group, x []T, from int) error {
	return startP2P(g, kindReceive, x, from, true).Wait()
}

// StartReceive is Receive in the background: x must not be touched until Wait
// returns.
func StartReceive[T Number](g *Group, x []T, from int) *Work {
	return startP2P(g, kindReceive, x, from, false)
}

// StartReceiveNoTimeout is StartReceive for who listens for what may never come: Config.Timeout
// does not bound the wait for it. A lost rank does.
func StartReceiveNoTimeout[T Number](g *Group, x []T, from int) *Work {
	w := g.newWork(kindReceive, elementOf[T]())
	w.noTimeout = true
	return talkBy(w, x, from, false)
}

func startP2P[T Number](g *Group, k kind, x []T, peer int, blocking bool) *Work {
	return talkBy(g.newWork(k, elementOf[T]()), x, peer, blocking)
}

func talkBy[T Number](w *Work, x []T, peer int, blocking bool) *Work {
	g := w.g
	if peer < 0 || peer >= g.size || peer == g.rank {
		return w.misuse("%d is not another rank of a group of %d; this one is %d", peer, g.size, g.rank)
	}
	w.x, w.root = bytesview.Bytes(x), peer
	return g.startPair(w, blocking)
}

// startPair is start for two ranks: it does not queue. What is sent through shared
// memory and need not wait is sent here.
func (g *Group) startPair(w *Work, blocking bool) *Work {
	sent, err := g.beginPair(w, blocking)
	switch {
	case err != nil:
		return w.refuse(w.wrap(err))
	case sent:
		if w.ranInline = true; !blocking {
			g.workers.Done()
		}
		g.removeP2P(w)
	case blocking:
		w.err, w.ranInline = w.run(), true
		g.removeP2P(w)
	default:
		go w.runPair()
	}
	return w
}

// beginPair gives w its number and announces it where the two ranks share memory.
// sent says that it has ended.
func (g *Group) beginPair(w *Work, blocking bool) (sent bool, err error) {
	i := -1
	if w.kind == kindSend {
		i = w.pairPlace()
	}
	if i < 0 {
		return false, g.numberPair(w, blocking)
	}
	out := g.share.pairs[i].out
	out.mu.Lock()
	defer out.mu.Unlock()
	if err := g.numberPair(w, blocking); err != nil {
		return false, err
	}
	if g.mesh.Fault(g.ranks[w.root]) != nil {
		return false, nil // as the mesh will find, too
	}
	return w.put(out), nil
}

// numberPair gives w its place among those that the two ranks start.
func (g *Group) numberPair(w *Work, blocking bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.broken(); err != nil {
		return err
	}
	counter := &g.sends[w.root]
	if w.kind == kindReceive {
		counter = &g.receives[w.root]
	}
	w.number, w.seq = *counter, uint32(*counter)
	*counter++
	w.algorithm, w.sig = byRules, w.signature()
	g.scribe.begin(w, blocking)
	g.activeP2P = append(g.activeP2P, w)
	if !blocking {
		g.workers.Add(1)
	}
	return nil
}

// removeP2P takes w, which has ended, out of those under way.
func (g *Group) removeP2P(w *Work) {
	g.scribe.stop(w)
	g.mu.Lock()
	g.scribe.ended(w)
	for i := range g.activeP2P {
		if g.activeP2P[i] == w {
			last := len(g.activeP2P) - 1
			g.activeP2P[i], g.activeP2P[last] = g.activeP2P[last], nil
			g.activeP2P = g.activeP2P[:last]
			break
		}
	}
	g.leave()
	g.mu.Unlock()
}

// runP2P runs w on a goroutine of its own.
func (w *Work) runP2P() {
	g := w.g
	defer g.workers.Done()
	w.err = w.run()
	g.removeP2P(w)
	w.done <- struct{}{}
}

// sendViaMesh is Send over the mesh, whatever memory is shared: for Tune, which
// measures the links.
func sendViaMesh(g *Group, x []uint8, to int, blocking bool) *Work {
	w := g.newWork(kindSend, uint8s)
	w.x, w.root, w.forceMesh = x, to, true
	return g.startPair(w, blocking)
}

func (w *Work) sendPair() error {
	if w.algorithm == byDirect {
		return w.finishPut(w.pairPlace())
	}
	switch n := len(w.x); {
	case n == 0: // a message all the same
		return w.send(0, w.root, nil)
	case n > eager:
		if err := w.send(announcement, w.root, nil); err != nil {
			return err
		}
		w.group ^= pairGroup | readyGroup
		w.post(0, w.root, nil)
		if err := w.wait(0, w.root); err != nil {
			return err
		}
		w.group ^= pairGroup | readyGroup
	}
	return w.exchange(step{to: w.root, out: w.x})
}

// announcement is the number of the message that announces a long one, beyond those of
// segments.
const announcement = 1 << phaseBits

func (w *Work) receivePair() error {
	if i := w.pairPlace(); i >= 0 {
		if err := w.awaitAnnouncement(i); err != nil {
			return err
		}
		if ok, err := w.take(i); ok {
			return err
		}
	}
	switch n := len(w.x); {
	case n == 0:
		w.post(0, w.root, nil)
		return w.wait(0, w.root)
	case n <= eager:
		return w.exchange(step{from: w.root, in: w.x})
	}
	w.postTo(posted, announcement, w.root, nil)
	w.group ^= pairGroup | readyGroup
	if err := w.send(0, w.root, nil); err != nil {
		return err
	}
	w.group ^= pairGroup | readyGroup
	if err := w.exchange(step{from: w.root, in: w.x}); err != nil {
		return err
	}
	return w.waitFor(posted, w.root) // it is here: it came before the rest
}
