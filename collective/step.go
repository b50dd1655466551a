package collective

// step is an exchange with up to two ranks: out is sent to one while in arrives from the other.
// Both are cut into segments, so that one segment is added while the next ones arrive; at most
// `posted` more segments are sent than received, so that no rank floods another.
type step struct {
	number  int    // number of the step in the algorithm's phase, below 1024
	to      int    // place in the scope
	out     []byte // data to send; empty: no send
	from    int
	in      []byte // destination of the result; empty: no receive
	operand []byte // operand to combine with received data, of in's length; nil: in is overwritten

	// moreOut and moreIn are parts of the slice that follow out and in, with the next message
	// number. With them, in is combined in place or not at all.
	moreOut, moreIn []byte
}

// exchange executes s. Each segment is sent before the segment with the same number is combined, so
// that out, in and s.operand can be the same slice.
func (w *Work) exchange(s step) error {
	if w.inPlace(s) {
		w.room(min(max(len(s.in), len(s.moreIn)), w.segmentBytes()))
	}
	in, out := w.segmentsOf(s.in)+w.segmentsOf(s.moreIn), w.segmentsOf(s.out)+w.segmentsOf(s.moreOut)
	for asked, sent, i := 0, 0, 0; i < in || sent < out; i++ {
		for ; asked < min(in, i+posted); asked++ {
			at, dst := w.part(s.number, s.in, s.moreIn, asked)
			w.postTo(asked%posted, at, s.from, w.target(s, asked, dst))
		}
		for ; sent < out && (sent < i+posted || i >= in); sent++ {
			at, p := w.part(s.number, s.out, s.moreOut, sent)
			if err := w.send(at, s.to, p); err != nil {
				return err
			}
		}
		if i >= in {
			continue
		}
		if err := w.waitFor(i%posted, s.from); err != nil {
			return err
		}
		if s.operand != nil {
			_, dst := w.part(s.number, s.in, s.moreIn, i)
			w.merge(dst, w.operand(s, i, dst), w.target(s, i, dst), s.from)
		}
	}
	return nil
}

// part returns segment i of p followed by more, and the segment's message number.
func (w *Work) part(step int, p, more []byte, i int) (int, []byte) {
	if n := w.segmentsOf(p); i >= n {
		return number(step+1, i-n), w.cut(more, i-n)
	}
	return number(step, i), w.cut(p, i)
}

// inPlace reports whether s.in has this rank's operand, so that data must arrive in a buffer.
func (w *Work) inPlace(s step) bool {
	return s.operand != nil && (len(s.in) > 0 && &s.operand[0] == &s.in[0] || len(s.moreIn) > 0)
}

// target returns the memory that receives segment i, whose result will be in dst.
func (w *Work) target(s step, i int, dst []byte) []byte {
	if w.inPlace(s) {
		return w.space(i, len(dst))
	}
	return dst
}

// operand returns this rank's values to combine with segment i.
func (w *Work) operand(s step, i int, dst []byte) []byte {
	if w.inPlace(s) {
		return dst
	}
	return w.cut(s.operand, i)
}

// merge combines this rank's operand with a peer's, the operand of the lower place first.
func (w *Work) merge(dst, own, theirs []byte, from int) {
	if w.scope.rank < from {
		w.combine(dst, own, theirs)
	} else {
		w.combine(dst, theirs, own)
	}
}

// segmentBytes is the length of all segments but the last, whole values.
func (w *Work) segmentBytes() int { return w.g.cfg.SegmentBytes &^ (w.elem.size() - 1) }

// segmentsOf returns the number of segments of p.
func (w *Work) segmentsOf(p []byte) int { return (len(p) + w.segmentBytes() - 1) / w.segmentBytes() }

// cut returns segment i of p.
func (w *Work) cut(p []byte, i int) []byte {
	size := w.segmentBytes()
	return p[i*size : min(len(p), (i+1)*size)]
}

// chunk returns the bounds of chunk i of x. If chunks are by rank, it is the part of the rank at
// place i; otherwise x has as many equal chunks as the scope has ranks.
func (w *Work) chunk(i int) (lo, hi int) { return w.chunks(i, i+1) }

// chunks returns the bounds of chunks i to j-1. j must be i+1 if chunks are by rank and the places
// are not in the order of the ranks.
func (w *Work) chunks(i, j int) (lo, hi int) {
	size := w.scope.size
	if w.byRank {
		if w.scope.absent != nil && w.scope.absent[i] {
			return 0, 0
		}
		size = w.g.size
		n := j - i
		i = w.scope.ranks[i]
		j = i + n
	}
	if len(w.ends) > 0 {
		if i > 0 {
			lo = w.ends[i-1]
		}
		return lo, w.ends[j-1]
	}
	elem := w.elem.size()
	values := len(w.x) / elem
	lo, _ = RingChunk(values, size, i)
	_, hi = RingChunk(values, size, j-1)
	return lo * elem, hi * elem
}
