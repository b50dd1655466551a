package record

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// Unknown is the value of a time without a clock reading.
const Unknown = -1

// OpRing is a ring for the short operations of a group, with a duration of about two clock
// readings. An event begins and ends in the same slot, written under a lock that the writer holds
// anyway, with the known times only: an unknown Begun is 0 and an unknown Done is Unknown. Events
// in progress are never overwritten. Readers that follow a Recorder get no events of lanes; Open,
// Recent and snapshots include lanes.
//
// Cost: 10 ns from an event's beginning to its end.
type OpRing struct {
	r    *Recorder
	ring *ring
	used bool
	lock atomic.Pointer[sync.Locker] // writer's lock; nil after Free
	next uint64                      // number of the next event
}

// Lane returns an unused lane for a writer, or nil if all are used; no event can begin in a nil
// lane. The writer must hold lock when an event begins or ends. Readers lock it too: a holder must
// therefore not read the Recorder.
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

// Free ends the use of a lane, after all its events have ended. The events stay until another
// writer overwrites them. The caller holds the lane's lock, or is its only user.
func (l *OpRing) Free() {
	if l != nil {
		l.lock.Store(nil)
	}
}

// Draft is the words of an event about to begin in a lane: most are equal to the previous event's.
type Draft struct{ words slot }

// Draft returns a draft with the fields of e.
func (e *Event) Draft() (d Draft) {
	d.words.fill(e)
	return d
}

// Seq sets the number of the operation in its group.
func (d *Draft) Seq(n uint32) { d.words[slotSeq] = d.words[slotSeq]>>32<<32 | uint64(n) }

// Begin records a begin under the lane's lock. The Op is not Recorded if all slots are in progress.
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
			s[0] = l.next // readers after this process's death see these stores in order
			return Op{at: s}
		}
	}
	return Op{}
}

// copyOf copies all words except the stamp. As with fill, the call keeps the order of stores; an
// assignment would call memmove, at twice the time.
//
//go:noinline
func (s *slot) copyOf(from *slot) {
	s[1], s[2], s[3], s[4], s[5], s[6] = from[1], from[2], from[3], from[4], from[5], from[6]
	s[7], s[8], s[9], s[10], s[11] = from[7], from[8], from[9], from[10], from[11]
}

// Began sets the begin time of an event in a lane. The lane's lock is held.
func (o Op) Began(at int64) {
	if o.at != nil {
		o.at[slotBegun] = uint64(at)
	}
}

func (s *slot) endHere(done, sent int64, failed bool) {
	if failed {
		s[slotKind] |= 1 << 16
	}
	s[slotSent], s[slotDone] = uint64(sent), uint64(done)
}

// eachLane calls do for each lane under its lock. A free lane gets no writer during the call.
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
			do(l) // also if freed during the call
			(*lock).Unlock()
		}
	}
}

func (l *OpRing) open(dst []Event) []Event {
	for i := range l.ring.places {
		if s := l.ring.place(i); s[0] != 0 && s[slotDone] == 0 {
			dst = append(dst, s.get())
		}
	}
	return dst
}

// recent appends the ended ones of the last n events, oldest first.
func (l *OpRing) recent(dst []Event, n int) []Event {
	for at := l.next - min(l.next, uint64(n), uint64(l.ring.places)); at < l.next; at++ {
		if s := l.ring.slot(at); s[0] == at+1 && s[slotDone] != 0 {
			dst = append(dst, s.get())
		}
	}
	return dst
}

// held returns the slots with an event, oldest first.
func (g *ring) held() []int { return g.sorted(func(*slot) bool { return true }) }

// going returns the slots of events in progress. All events of the table are in progress.
func (g *ring) going() []int {
	return g.sorted(func(s *slot) bool { return !g.lane || s[slotDone] == 0 })
}

// sorted returns the slots of selected events, oldest first.
func (g *ring) sorted(of func(*slot) bool) (places []int) {
	for i := range g.places {
		if s := g.place(i); s[0] != 0 && (!g.lane || int(s[0]-1)&(g.places-1) == i) && of(s) {
			places = append(places, i)
		}
	}
	slices.SortFunc(places, func(a, b int) int { return cmp.Compare(g.place(a)[0], g.place(b)[0]) })
	return places
}

// all appends the events of another process's lane, oldest first, to ended or to open.
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
