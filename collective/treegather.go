package collective

// Gather and scatter over the tree of tree.go: a rank sends the parts of all its descendants
// together. The places of descendants follow the rank's place, so the parts are contiguous. If the
// root is not rank 0 their ranks can wrap past the last to rank 0; the parts are then two messages.

func (w *Work) treeGather() error {
	place, n := w.treePlace(), w.share()
	parts := w.subtreeParts(place)
	copy(parts, w.src)
	if place == 0 {
		lo := w.root * n
		copy(w.x[lo:lo+n], w.src)
	}
	for c := range treeChildren(place, w.scope.size, false) {
		child := nearChild(place, c)
		if err := w.bundle(parts, place, child, treeSpan(child, w.scope.size), child); err != nil {
			return err
		}
	}
	if place == 0 {
		return nil
	}
	return w.bundle(parts, place, place, treeSpan(place, w.scope.size), treeParent(place, false))
}

func (w *Work) treeScatter() error {
	place, n := w.treePlace(), w.share()
	parts := w.subtreeParts(place)
	if place == 0 {
		lo := w.root * n
		copy(w.dst, w.x[lo:lo+n])
	} else if err := w.bundle(parts, place, place, treeSpan(place, w.scope.size), treeParent(place, false)); err != nil {
		return err
	}
	for c := treeChild(place, w.scope.size, 0, false); c > 0; c = treeChild(place, w.scope.size, c, false) {
		if err := w.bundle(parts, place, c, treeSpan(c, w.scope.size), c); err != nil {
			return err
		}
	}
	if place > 0 {
		copy(w.dst, parts)
	}
	return nil
}

// treeSpan returns the number of places in a place's subtree.
func treeSpan(place, size int) int { return min(place&-place, size-place) }

// subtreeParts returns a buffer for the parts of a place and its descendants; nil for the root,
// with all parts in x.
func (w *Work) subtreeParts(place int) []byte {
	if place == 0 {
		return nil
	}
	return w.hold(treeSpan(place, w.scope.size) * w.share())
}

// bundle sends the parts of count places, from place first on, to place peer, or receives the parts
// from there. own is this rank's place; parts is its subtreeParts.
func (w *Work) bundle(parts []byte, own, first, count, peer int) error {
	n, size := w.share(), w.scope.size
	up := w.kind == kindGather
	receives := up == (peer > own)
	for number := range 2 {
		begin, end := 0, count // message 0: up to the last rank; message 1: from rank 0 on
		if split := min(max(size-w.root-first, 0), count); number == 0 {
			end = split
		} else {
			begin = split
		}
		if begin == end || n == 0 {
			continue
		}
		var p []byte
		if own == 0 {
			lo := w.outOf(first+begin) * n
			p = w.x[lo : lo+(end-begin)*n]
		} else {
			p = parts[(first-own+begin)*n : (first-own+end)*n]
		}
		s := step{number: number, to: w.outOf(peer), out: p}
		if receives {
			s = step{number: number, from: w.outOf(peer), in: p}
		}
		if err := w.exchange(s); err != nil {
			return err
		}
	}
	return nil
}
