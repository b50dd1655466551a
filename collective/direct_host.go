package collective

import "slices"

// The two halves of the hierarchical allreduce within a host with shared memory. Both are one
// operation of the shmGroup: one arrival, then steps.

// hostSharesMemory reports whether the hierarchy's ranks of this host are exactly the ranks that
// share memory.
func (g *Group) hostSharesMemory() bool {
	return g.share != nil && g.hosting != nil && slices.Equal(g.share.ranks, g.hosting.local.ranks)
}

// hostPart returns the bounds in x of place p's part.
func (w *Work) hostPart(p int) (lo, hi int) {
	if p > 0 {
		lo = w.ends[p-1]
	}
	return lo, w.ends[p]
}

// hostScatter reduces x over the ranks of the host: part p, up to w.ends[p], to the rank with place
// p. Operands are read in place, in one pass, if all are in arenas; otherwise all pass through
// staging in pieces of all parts.
func (w *Work) hostScatter() error {
	s := w.g.share
	ranks := len(s.ranks)
	w.steps = 0
	place, room := w.place(w.x), len(s.staging[0])/2/ranks&^(cacheLine-1)
	if place == nowhere {
		w.stageHost(0, room)
	}
	if err := w.arrive(place, len(w.x)); err != nil {
		return err
	}
	most := 0
	for p := range ranks {
		lo, hi := w.hostPart(p)
		most = max(most, hi-lo)
	}
	placed := w.placed()
	if placed == ranks {
		room = max(most, 1)
	} else if placed > 0 { // ranks with an arena have not staged a first piece
		if place != nowhere {
			w.stageHost(0, room)
		}
		if err := w.nextStep(); err != nil {
			return err
		}
	}
	for t := 0; ; t++ {
		w.reduceHost(t, room, placed == ranks)
		if (t+1)*room >= most {
			return nil
		}
		w.stageHost(t+1, room)
		if err := w.nextStep(); err != nil {
			return err
		}
	}
}

// nextStep is step with the next number.
func (w *Work) nextStep() error {
	w.steps++
	return w.step(w.steps)
}

// stageHost copies piece t of the other ranks' parts to staging.
func (w *Work) stageHost(t, room int) {
	s := w.g.share
	to := s.stage(w.number, s.me)
	for p := range s.ranks {
		lo, hi := w.hostPart(p)
		if from := lo + t*room; p != s.me && from < hi {
			copy(to[(t%2*len(s.ranks)+p)*room:][:room], w.x[from:hi])
		}
	}
}

// reduceHost reduces piece t of this rank's part.
func (w *Work) reduceHost(t, room int, inPlace bool) {
	s := w.g.share
	lo, hi := w.hostPart(s.me)
	lo += t * room
	if hi = min(hi, lo+room); lo >= hi {
		return
	}
	w.srcs = w.srcs[:0]
	for i := range s.ranks {
		switch {
		case i == s.me:
			w.srcs = append(w.srcs, w.x[lo:hi])
		case inPlace:
			off, _ := w.placeOf(i)
			w.srcs = append(w.srcs, s.arenas[i][off+lo:off+hi])
		default:
			w.srcs = append(w.srcs, s.stage(w.number, i)[(t%2*len(s.ranks)+s.me)*room:][:hi-lo])
		}
	}
	w.dsts = append(w.dsts[:0], w.x[lo:hi])
	w.fold(w.dsts, w.srcs)
}

// hostGather copies the parts that hostScatter reduced to all ranks of the host. The first step
// reports a complete part, and the end of reads from other ranks' operands.
func (w *Work) hostGather() error {
	s := w.g.share
	if err := w.nextStep(); err != nil {
		return err
	}
	if w.placed() == len(s.ranks) {
		for k := range s.ranks {
			i := (s.me + k) % len(s.ranks)
			lo, hi := w.hostPart(i)
			if off, _ := w.placeOf(i); i != s.me {
				copyCached(w.x[lo:hi], s.arenas[i][off+lo:off+hi])
			}
		}
		return w.nextStep() // no rank reads x after this step
	}
	most, room := 0, len(s.staging[0])/2
	for p := range s.ranks {
		lo, hi := w.hostPart(p)
		most = max(most, hi-lo)
	}
	own, end := w.hostPart(s.me)
	for t := 0; t*room < most; t++ {
		if from := own + t*room; from < end {
			copy(s.stage(w.number, s.me)[t%2*room:][:room], w.x[from:end])
		}
		if err := w.nextStep(); err != nil {
			return err
		}
		for i := range s.ranks {
			lo, hi := w.hostPart(i)
			if from := lo + t*room; i != s.me && from < hi {
				copy(w.x[from:min(hi, from+room)], s.stage(w.number, i)[t%2*room:][:room])
			}
		}
	}
	return nil
}
