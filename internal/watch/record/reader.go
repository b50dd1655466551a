package record

import "slices"

// Each reader has a position in each ring, and the recorder only wakes readers. Writers therefore
// wait for readers only while at most 32 events are copied under the common lock. A reader that is
// more than a ring behind continues with the oldest event left.

// Reader follows a Recorder: it gets each ended event, per ring in order, and the number of missed
// events. A Reader is for one goroutine. An idle Reader costs the writers no time.
type Reader struct {
	r      *Recorder
	rings  []*ring
	next   []uint64 // position in each ring
	ready  chan struct{}
	closed bool
}

// Follow returns a Reader of events that end from now on. A nil Recorder's Reader gets no events.
func (r *Recorder) Follow() *Reader {
	if r == nil {
		return r.follow()
	}
	return r.follow(&r.operations, &r.phases)
}

// FollowPhases returns a Reader of phases and steps only.
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

// Ready receives after each quarter of a ring, and after a Fault: early enough for Next to miss no
// event unless the reader is delayed for three more quarters. Next may be called at any time.
func (d *Reader) Ready() <-chan struct{} { return d.ready }

func (d *Reader) wake() {
	select {
	case d.ready <- struct{}{}:
	default:
	}
}

// Next copies as many events as available into dst, operations before phases, and returns their
// number and the number of overwritten events. Next does not wait; n is 0 without new events.
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

// batch is the events read under a lock: recording waits for about a microsecond.
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

// Close ends the Reader. Ready receives no more.
func (d *Reader) Close() {
	if d.r == nil || d.closed {
		return
	}
	d.closed = true
	d.r.mu.Lock()
	d.r.readers = slices.DeleteFunc(slices.Clone(d.r.readers), func(o *Reader) bool { return o == d })
	d.r.mu.Unlock()
}
