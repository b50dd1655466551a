package collective

import "slices"

// The hierarchical operations within a host with shared memory. Each is one direct operation: a
// rank arrives after it has the data for the other ranks; then rounds follow as in
// direct_exchange.go. Data in an arena are read in place; other data pass through staging.

// hostSharesMemory reports whether the hierarchy's ranks of this host are exactly the ranks that
// share memory.
func (g *Group) hostSharesMemory() bool {
	return g.share != nil && g.hosting != nil && slices.Equal(g.share.ranks, g.hosting.local.ranks)
}

// hostPlace returns the offset of x in this rank's arena, for the host's other ranks, or nowhere:
// also for short x, because a copy costs less than a wait until other ranks have read x.
func (w *Work) hostPlace() uint64 {
	if len(w.x) <= copyLimit {
		return nowhere
	}
	return w.place(w.x)
}

// hostRounds arrives, and runs rounds until most bytes have been read, room bytes per round.
// read(i) reports whether rank i's x is a source; stage copies a piece of this rank's x to staging,
// and take reads the pieces of a round.
func (w *Work) hostRounds(most, room int, read func(i int) bool, stage, take func(t, room int)) error {
	w.steps = 0
	place := nowhere
	if read(w.g.share.me) {
		if place = w.hostPlace(); place == nowhere {
			stage(0, room)
		}
	}
	if err := w.arrive(place, len(w.x)); err != nil {
		return err
	}
	return w.rounds(most, room, read, stage, take)
}

// rounds is the part of hostRounds after the arrival, with the first pieces already staged. One
// round suffices if every source is in an arena.
func (w *Work) rounds(most, room int, read func(i int) bool, stage, take func(t, room int)) error {
	me, all, some := w.g.share.me, true, false
	for i := range w.g.share.ranks {
		if _, placed := w.placeOf(i); read(i) {
			all, some = all && placed, some || placed
		}
	}
	if all {
		room = max(most, 1)
	}
	for t := 0; ; t++ {
		take(t, room)
		last := (t+1)*room >= most
		if last && !some {
			return nil
		}
		if _, placed := w.placeOf(me); !last && !placed && read(me) {
			stage(t+1, room)
		}
		if err := w.nextStep(); err != nil || last {
			return err
		}
	}
}

// nextStep calls step with the number after that of the last step.
func (w *Work) nextStep() error {
	w.steps++
	return w.step(w.steps)
}

// halfStage returns the size of a piece that all ranks read: half of a staging buffer.
func (s *shmGroup) halfStage() int { return len(s.staging[0]) / 2 }

// stagePiece copies piece t of x.
func (w *Work) stagePiece(t, room int) {
	s := w.g.share
	if from := t * room; from < len(w.x) {
		copy(s.stage(w.number, s.me)[t%2*room:][:room], w.x[from:])
	}
}

// hostView returns bytes [lo, hi) of the x of the rank at place i in round t: from its arena, or
// else from its staging buffer, where the piece that begins at base is at offset at.
func (w *Work) hostView(i, lo, hi, base, at int) []byte {
	s := w.g.share
	if off, placed := w.placeOf(i); placed {
		return s.arenas[i][off+lo : off+hi]
	}
	return s.stage(w.number, i)[base+at:][:hi-lo]
}

// hostSpread copies the leader's x to all ranks of the host.
func (w *Work) hostSpread(leader int) error {
	s := w.g.share
	return w.hostRounds(len(w.x), s.halfStage(), func(i int) bool { return i == leader }, w.stagePiece, func(t, room int) {
		lo := min(len(w.x), t*room)
		hi := min(len(w.x), lo+room)
		if s.me != leader && lo < hi {
			copyCached(w.x[lo:hi], w.hostView(leader, lo, hi, t%2*room, 0))
		}
	})
}

// hostCollect reduces the operands of the host to the leader's x. own is the leader's operand,
// which can be x.
func (w *Work) hostCollect(own []byte, leader int) error {
	s := w.g.share
	return w.hostRounds(len(w.x), s.halfStage(), func(i int) bool { return i != leader }, w.stagePiece, func(t, room int) {
		lo := min(len(w.x), t*room)
		hi := min(len(w.x), lo+room)
		if s.me != leader || lo == hi {
			return
		}
		w.srcs = w.srcs[:0]
		for i := range s.ranks {
			if i == leader {
				w.srcs = append(w.srcs, own[lo:hi])
			} else {
				w.srcs = append(w.srcs, w.hostView(i, lo, hi, t%2*room, 0))
			}
		}
		w.dsts = append(w.dsts[:0], w.x[lo:hi])
		w.fold(w.dsts, w.srcs)
	})
}

// largestBundle returns the size, in bytes, of the largest bundle of a rank of the host. A bundle
// has the parts of x that a rank exchanges with other hosts.
func (w *Work) largestBundle() int {
	most := 0
	for i := range w.g.hosting.bundles {
		most = max(most, w.bundleOf(i))
	}
	return most
}

// hostExchange copies the parts of each rank's bundle to all other ranks of the host.
func (w *Work) hostExchange() error {
	return w.hostRounds(w.largestBundle(), w.g.share.halfStage(), everyRank, w.stageBundle, w.takeBundles)
}

// hostRegather is hostExchange after hostScatter, as one operation with a single arrival. Its first
// step reports that this rank's part is complete and that it reads no other memory.
func (w *Work) hostRegather() error {
	s := w.g.share
	if err := w.nextStep(); err != nil {
		return err
	}
	if _, placed := w.placeOf(s.me); !placed {
		w.stageBundle(0, s.halfStage())
	}
	if w.placed() < len(s.ranks) {
		if err := w.nextStep(); err != nil {
			return err
		}
	}
	return w.rounds(w.largestBundle(), s.halfStage(), everyRank, w.stageBundle, w.takeBundles)
}

func everyRank(int) bool { return true }

// stageBundle copies piece t of this rank's bundle.
func (w *Work) stageBundle(t, room int) {
	to := w.g.share.stage(w.number, w.g.share.me)[t%2*room:]
	w.stretches(w.g.share.me, t*room, (t+1)*room, func(lo, hi, at int) { copy(to[at-t*room:], w.x[lo:hi]) })
}

// takeBundles copies piece t of the other ranks' bundles to x.
func (w *Work) takeBundles(t, room int) {
	s := w.g.share
	for k := 1; k < len(s.ranks); k++ {
		i := (s.me + k) % len(s.ranks)
		w.stretches(i, t*room, (t+1)*room, func(lo, hi, at int) {
			copyCached(w.x[lo:hi], w.hostView(i, lo, hi, t%2*room, at-t*room))
		})
	}
}

// hostScatter reduces x over the ranks of the host: the rank at place p gets part p, which ends at
// w.ends[p].
func (w *Work) hostScatter() error {
	lo, hi := w.partAt(w.g.share.me)
	return w.hostDeal(w.x[lo:hi])
}

// hostDeal reduces the parts of this rank's bundle over the host, into bundle.
func (w *Work) hostDeal(bundle []byte) error {
	s := w.g.share
	ranks := len(s.ranks)
	room := s.halfStage() / ranks &^ (cacheLine - 1)
	stage := func(t, room int) {
		for p := range s.ranks {
			if p == s.me {
				continue
			}
			to := s.stage(w.number, s.me)[(t%2*ranks+p)*room:]
			w.stretches(p, t*room, (t+1)*room, func(lo, hi, at int) { copy(to[at-t*room:], w.x[lo:hi]) })
		}
	}
	return w.hostRounds(w.largestBundle(), room, everyRank, stage, func(t, room int) {
		w.stretches(s.me, t*room, (t+1)*room, func(lo, hi, at int) {
			w.srcs = w.srcs[:0]
			for i := range s.ranks {
				if i == s.me {
					w.srcs = append(w.srcs, w.x[lo:hi])
				} else {
					w.srcs = append(w.srcs, w.hostView(i, lo, hi, (t%2*ranks+s.me)*room, at-t*room))
				}
			}
			w.dsts = append(w.dsts[:0], bundle[at:][:hi-lo])
			w.fold(w.dsts, w.srcs)
		})
	})
}
