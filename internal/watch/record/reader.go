package record

import "slices"

// A reader keeps a place in each ring, and the recorder knows it only to wake it. So writers never wait for readers, but for
// the copying of at most 32 events under the lock that both take; and a reader that has fallen behind by more than a ring
// goes on with the oldest event that is left.

// Reader follows a Recorder: it gets each event that has ended, in the order in which those of a ring ended, and is told
// how many it was too slow for. It is used by one goroutine. Who does not read costs the writers nothing.
type Reader struct {
	r      *Recorder
	rings  []*ring
	next   []uint64 // of each
	ready  chan struct{}
	closed bool
}

// Follow makes a Reader of what ends from now on; of a nil Recorder one that gets nothing.
func (r *Recorder) Follow() *Reader {
	if r == nil {
		return r.follow()
	}
	return r.follow(&r.operations, &r.phases)
}

// FollowPhases makes a Reader of phases and steps alone.
func (r *Recorder) FollowPhases() *Reader {
	if r == nil {
		return r.follow()
	}
	return r.follow(&r.phases)
}

func (r *Recorder) follow(rings ...*ring) *Reader {
	out := &Reader{r: r, ready: make(chan struct{}, 1), rings: rings}
	if r == nil {
		return out
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range rings {
		out.next = append(out.next, *g.count)
	}
	r.readers = append(r.readers, out)
	return out
}

// Ready receives when a quarter of a ring has been written since it did last, or a fault: early enough for Next to miss nothing
// unless the reader is held up for three times as long again. Who wants to be up to date reads when he likes.
func (d *Reader) Ready() <-chan struct{} { return d.ready }

func (d *Reader) wake() {
	select {
	case d.ready <- struct{}{}:
	default:
	}
}

// Next moves events into dst, as many as there are and fit, those of operations before those of phases, and returns how many, and how
// many were overwritten before they were read. It does not wait; n is 0 when there is nothing new.
func (d *Reader) Next(dst []Event) (n int, missed int64) {
	if d.r == nil {
		return 0, 0
	}
	for i, g := range d.rings {
		for n < len(dst) {
			got, lost := d.take(i, g, dst[n:])
			missed += lost
			if n += got; got == 0 {
				break
			}
		}
	}
	return n, missed
}

// batch is how many events are read under one lock, during which nobody records: about a microsecond.
const batch = 32

func (d *Reader) take(i int, g *ring, dst []Event) (n int, missed int64) {
	d.r.mu.Lock()
	defer d.r.mu.Unlock()
	end := *g.count
	if kept := end - min(end, uint64(g.places)); d.next[i] < kept {
		missed = int64(kept - d.next[i])
		d.next[i] = kept
	}
	for ; n < min(len(dst), batch) && d.next[i] < end; n++ {
		dst[n] = g.slot(d.next[i]).get()
		d.next[i]++
	}
	return n, missed
}

// Close ends the reader. Ready receives no more.
func (d *Reader) Close() {
	if d.r == nil || d.closed {
		return
	}
	d.closed = true
	d.r.mu.Lock()
	d.r.readers = slices.DeleteFunc(slices.Clone(d.r.readers), func(o *Reader) bool { return o == d })
	d.r.mu.Unlock()
}
