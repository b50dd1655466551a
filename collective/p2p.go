package collective

import "github.com/ringo-ml/ringo/internal/bytesview"

// Send and Receive match by pair: the i-th Send from one rank to another matches the i-th Receive
// on the other, independent of the group's other operations. Their messages therefore have separate
// tags, with a counter for each pair and direction.
//
// A Send longer than eager first sends an empty message, its announcement, and waits for an empty
// message of the receiver: otherwise a fast sender would fill the receiver's memory for early
// messages and block collective operations. With the announcement, a Receive of a wrong, shorter
// length reports the error immediately instead of waiting for its timeout.
//
// Ranks that share memory exchange messages through it: see direct_pair.go.

const (
	eager = 64 << 10 // bytes

	pairGroup  = 1 << 31 // added to the group's id in the tags of messages
	readyGroup = 1 << 30 // added for the message of a ready receiver
)

// Send sends x to rank to, whose matching Receive must have the same type and length. Sends to one
// rank are received in the order of their start. After Send returns, x may be written again; if x
// is longer than 64 KiB, Send returns only after the other rank has called Receive.
func Send[T Number](g *Group, x []T, to int) error { return startP2P(g, kindSend, x, to, true).Wait() }

// StartSend is Send in the background: x must not be touched until Wait returns.
func StartSend[T Number](g *Group, x []T, to int) *Work { return startP2P(g, kindSend, x, to, false) }

// Receive replaces x by the message of rank from. The i-th Receive from a rank matches its i-th
// Send to this rank.
func Receive[T Number](g *Group, x []T, from int) error {
	return startP2P(g, kindReceive, x, from, true).Wait()
}

// StartReceive is Receive in the background: do not touch x until Wait returns.
func StartReceive[T Number](g *Group, x []T, from int) *Work {
	return startP2P(g, kindReceive, x, from, false)
}

// StartReceiveNoTimeout is StartReceive for a message that may never come: Config.Timeout does not
// limit the wait. The wait fails if the rank is lost.
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

// startPair starts w, an operation of two ranks, outside of the group's queue. A message that fits
// into shared memory is sent immediately.
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

// beginPair assigns w its number and announces it if the two ranks share memory. sent reports
// whether the message is sent, so that w has ended.
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
		return false, nil // the mesh will return the same error
	}
	return w.put(out), nil
}

// numberPair assigns w its number among the operations of the two ranks.
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

// removeP2P removes the finished w from the operations in flight.
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

// runP2P runs w on its own goroutine.
func (w *Work) runP2P() {
	g := w.g
	defer g.workers.Done()
	w.err = w.run()
	g.removeP2P(w)
	w.done <- struct{}{}
}

// sendViaMesh is Send over the mesh even if the ranks share memory: Tune measures links with it.
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
	case n == 0: // an empty message
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

// announcement is the number of the empty message that announces a long message; segments have
// lower numbers.
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
	return w.waitFor(posted, w.root) // immediate: the announcement came before the data
}
