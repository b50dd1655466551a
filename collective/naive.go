package collective

// The naive algorithm: every rank sends all of x to rank 0. Rank 0 adds in rank order, scales, and
// sends the result to each rank. Rank 0 moves (N-1)K bytes in each direction, so the time grows
// linearly with N: 2(N-1)K/B. The naive algorithm is the oracle of the ring's tests and the
// baseline of its measurements.

func (w *Work) naiveAllReduce() error {
	if w.g.rank == 0 {
		return w.naiveRoot()
	}
	for i := range w.segments() {
		if err := w.send(i, 0, w.segment(i)); err != nil {
			return err
		}
	}
	return w.receiveInPlace(0, func(int) error { return nil })
}

func (w *Work) naiveRoot() error {
	w.room(min(len(w.x), w.segmentBytes()))
	for from := 1; from < w.g.size; from++ {
		if err := w.naiveAdd(from); err != nil {
			return err
		}
	}
	w.average(w.x)
	for to := 1; to < w.g.size; to++ {
		for i := range w.segments() {
			if err := w.send(i, to, w.segment(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// naiveAdd adds a rank's operand to x.
func (w *Work) naiveAdd(from int) error {
	n, asked := w.segments(), 0
	for i := range n {
		for ; asked < min(n, i+posted); asked++ {
			w.post(asked, from, w.space(asked, len(w.segment(asked))))
		}
		if err := w.wait(i, from); err != nil {
			return err
		}
		part := w.segment(i)
		w.combine(part, part, w.space(i, len(part)))
	}
	return nil
}

// receiveInPlace receives all segments of x from a rank, and calls then after each segment.
func (w *Work) receiveInPlace(from int, then func(i int) error) error {
	n, asked := w.segments(), 0
	for i := range n {
		for ; asked < min(n, i+posted); asked++ {
			w.post(asked, from, w.segment(asked))
		}
		if err := w.wait(i, from); err != nil {
			return err
		}
		if err := then(i); err != nil {
			return err
		}
	}
	return nil
}

func (w *Work) segments() int { return w.segmentsOf(w.x) }

func (w *Work) segment(i int) []byte { return w.cut(w.x, i) }
