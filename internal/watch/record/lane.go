package record

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// Unknown stands for a time at which nobody looked at the clock.
const Unknown = -1

// OpRing is a ring for the short operations of one group, which take about as long as two looks at
// the clock. An event begins and ends in it in the same place, written under a lock which its
// writer holds in any case, with the times that are known: Begun is 0 and Done Unknown where there
// are none. What goes on is never overwritten. Readers that follow a Recorder do not get what is in
// lanes; Open, Recent and snapshots have it.
//
// Cost: 10 ns from an event's beginning to its end.
type OpRing struct {
	r    *Recorder
	ring *ring
	used bool
	lock atomic.Pointer[sync.Locker] // of its writer; nil: that has ended, and its memory is held no longer
	next uint64                      // the number of the next event
}

// Lane gives a writer a lane that nobody has. nil: none is left, and nothing can begin in it. The lock is held whenever an event
// begins or ends; readers take it, so that who holds it must not read.
func (r *Recorder) Lane(lock sync.Locker) *OpRing {
	if r == nil {
		return nil
	}
	r.laneMu.Lock()
	defer r.laneMu.Unlock()
	for _, l := range r.lanes {
		if l.lock.Load() == nil {
			l.used = true
			l.lock.Store(&lock)
			return l
		}
	}
	return nil
}

// Free says that nothing begins in the lane any more, and that all in it has ended. What it holds stays until another writer
// overwrites it. The lane's lock is held, or nobody else has it any more.
func (l *OpRing) Free() {
	if l != nil {
		l.lock.Store(nil)
	}
}

// Draft is an event that is about to begin in a lane, as its words: most are those of the event before.
type Draft struct{ words slot }

// Draft makes one of an event.
func (e *Event) Draft() (d Draft) {
	d.words.fill(e)
	return d
}

// Seq changes which of its group's operations it is.
func (d *Draft) Seq(n uint32) { d.words[slotSeq] = d.words[slotSeq]>>32<<32 | uint64(n) }

// Begin records that an event begins. The lane's lock is held. What it returns is not Recorded
// where all that the lane has room for goes on.
func (l *OpRing) Begin(d *Draft) Op {
	if l == nil || l.r.rests.Load() {
		return Op{}
	}
	for range l.ring.places {
		s := l.ring.slot(l.next)
		l.next++
		if s[0] == 0 || s[slotDone] != 0 {
			d.words[slotStep] = uint64(l.r.step.Load())
			s[0] = 0
			s.copyOf(&d.words)
			s[0] = l.next // who reads after this process was killed sees these stores in their order
			return Op{at: s}
		}
	}
	return Op{}
}

// copyOf copies all but the stamp. It is called, as fill is; an assignment would be a call of memmove, which takes twice as long.
//
//go:noinline
func (s *slot) copyOf(from *slot) {
	s[1], s[2], s[3], s[4], s[5], s[6] = from[1], from[2], from[3], from[4], from[5], from[6]
	s[7], s[8], s[9], s[10], s[11] = from[7], from[8], from[9], from[10], from[11]
}

// Began says when an event in a lane began, once that is known. The lane's lock is held.
func (o Op) Began(at int64) {
	if o.at != nil {
		o.at[slotBegun] = uint64(at)
	}
}

// endHere says that the event of a lane has ended.
func (s *slot) endHere(done, sent int64, failed bool) {
	if failed {
		s[slotKind] |= 1 << 16
	}
	s[slotSent], s[slotDone] = uint64(sent), uint64(done)
}

// eachLane has do read each lane, under its writer's lock. A lane without one is written by nobody, and no writer can come meanwhile.
func (r *Recorder) eachLane(do func(*OpRing)) {
	r.laneMu.Lock()
	defer r.laneMu.Unlock()
	for _, l := range r.lanes {
		lock := l.lock.Load()
		switch {
		case !l.used:
		case lock == nil:
			do(l)
		default:
			(*lock).Lock()
			do(l) // also if it was freed meanwhile
			(*lock).Unlock()
		}
	}
}

// open appends what goes on.
func (l *OpRing) open(dst []Event) []Event {
	for i := range l.ring.places {
		if s := l.ring.place(i); s[0] != 0 && s[slotDone] == 0 {
			dst = append(dst, s.get())
		}
	}
	return dst
}

// recent appends those of the last n events that have ended, the oldest first.
func (l *OpRing) recent(dst []Event, n int) []Event {
	for at := l.next - min(l.next, uint64(n), uint64(l.ring.places)); at < l.next; at++ {
		if s := l.ring.slot(at); s[0] == at+1 && s[slotDone] != 0 {
			dst = append(dst, s.get())
		}
	}
	return dst
}

// held are the places in which an event lies, the oldest first.
func (g *ring) held() []int { return g.sorted(func(*slot) bool { return true }) }

// going are the places of events that go on. In the table there are no others.
func (g *ring) going() []int {
	return g.sorted(func(s *slot) bool { return !g.lane || s[slotDone] == 0 })
}

// sorted are the places of some events, the oldest first.
func (g *ring) sorted(of func(*slot) bool) (places []int) {
	for i := range g.places {
		if s := g.place(i); s[0] != 0 && (!g.lane || int(s[0]-1)&(g.places-1) == i) && of(s) {
			places = append(places, i)
		}
	}
	slices.SortFunc(places, func(a, b int) int { return cmp.Compare(g.place(a)[0], g.place(b)[0]) })
	return places
}

// all are the events of a lane in memory that is not known more of: those that have ended, and those that go on, the oldest first.
func (g *ring) all(ended, open []Event) (_, _ []Event) {
	for _, i := range g.held() {
		if s := g.place(i); s[slotDone] == 0 {
			open = append(open, s.get())
		} else {
			ended = append(ended, s.get())
		}
	}
	return ended, open
}
