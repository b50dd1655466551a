package collective

import "time"

// Send and Receive. They are between two ranks and take no part in the sequence of
// the group's operations: the i-th Send from one rank to another meets the i-th
// Receive there, whatever else both do. So their messages have tags of their own,
// with a counter for each pair and direction.
//
// A message longer than eager waits until the other rank has called Receive, which
// it says with an empty message: else a sender that is far ahead would fill the
// memory for early messages, and then collective operations would be stuck
// behind it.

const (
	eager = 64 << 10 // bytes

	pairGroup  = 1 << 31 // added to the group's id in the tags of messages
	readyGroup = 1 << 30 // and of what says that the receiver is ready
)

// Send sends x to rank to, whose matching Receive must have the same type and
// length. The Sends to one rank are received in the order in which they were
// started. It returns when x may be written again: up to 64 KiB it need not have
// been received, above that the other rank has at least called Receive.
func Send[T Number](g *Group, x []T, to int) error { return talk(g, kindSend, x, to, true).Wait() }

// StartSend is Send in the background: x must not be touched until Wait returns.
func StartSend[T Number](g *Group, x []T, to int) *Work { return talk(g, kindSend, x, to, false) }

// Receive replaces x by what rank from sends. The i-th Receive from a rank gets its
// i-th Send to this one.
func Receive[T Number](g *Group, x []T, from int) error {
	return talk(g, kindReceive, x, from, true).Wait()
}

// StartReceive is Receive in the background: x must not be touched until Wait
// returns.
func StartReceive[T Number](g *Group, x []T, from int) *Work {
	return talk(g, kindReceive, x, from, false)
}

func talk[T Number](g *Group, k kind, x []T, peer int, blocking bool) *Work {
	w := g.newWork(k, elementOf[T]())
	if peer < 0 || peer >= g.size || peer == g.rank {
		return w.misuse("%d is not another rank of a group of %d; this one is %d", peer, g.size, g.rank)
	}
	w.x, w.root = bytesOf(x), peer
	return g.startPair(w, blocking)
}

// startPair is start for two ranks: it does not queue.
func (g *Group) startPair(w *Work, blocking bool) *Work {
	g.mu.Lock()
	counter := &g.sends[w.root]
	if w.kind == kindReceive {
		counter = &g.receives[w.root]
	}
	w.seq = *counter
	if err := g.broken(); err != nil {
		g.mu.Unlock()
		return w.refuse(w.wrap(err))
	}
	*counter++
	w.how, w.sig = byTable, w.signature()
	g.talking = append(g.talking, w)
	if !blocking {
		g.workers.Add(1)
		g.mu.Unlock()
		go w.talk()
		return w
	}
	g.mu.Unlock()
	w.err, w.here = w.run(), true
	g.hush(w)
	return w
}

// hush takes w out of those under way.
func (g *Group) hush(w *Work) {
	g.mu.Lock()
	for i := range g.talking {
		if g.talking[i] == w {
			last := len(g.talking) - 1
			g.talking[i], g.talking[last] = g.talking[last], nil
			g.talking = g.talking[:last]
			break
		}
	}
	g.mu.Unlock()
}

// converse runs w on a goroutine of its own.
func (w *Work) converse() {
	g := w.g
	defer g.workers.Done()
	w.err = w.run()
	g.hush(w)
	w.end = time.Now()
	w.done <- struct{}{}
}

func (w *Work) sendPair() error {
	if len(w.x) > eager {
		w.group ^= pairGroup | readyGroup
		w.post(0, w.root, nil)
		if err := w.wait(0, w.root); err != nil {
			return err
		}
		w.group ^= pairGroup | readyGroup
	}
	return w.exchange(step{to: w.root, out: w.x})
}

func (w *Work) receivePair() error {
	if len(w.x) > eager {
		w.group ^= pairGroup | readyGroup
		if err := w.send(0, w.root, nil); err != nil {
			return err
		}
		w.group ^= pairGroup | readyGroup
	}
	return w.exchange(step{from: w.root, in: w.x})
}
