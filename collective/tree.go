package collective

import "math/bits"

// Broadcast down a tree, and the barrier.

// broadcast receives x from the parent, if there is one, and passes every
// segment on to the children as soon as it is here.
func (w *Work) broadcast() error {
	place := mod(w.g.rank-w.root, w.g.size)
	chain := prefersChain(w.segments(), w.g.size)
	if place > 0 {
		parent := (w.root + treeParent(place, chain)) % w.g.size
		return w.receiveInPlace(parent, func(i int) error { return w.passOn(i, place, chain) })
	}
	for i := range w.segments() {
		if err := w.passOn(i, place, chain); err != nil {
			return err
		}
	}
	return nil
}

// passOn sends segment i to all children, the one with the most descendants
// first.
func (w *Work) passOn(i, place int, chain bool) error {
	for c := treeChild(place, w.g.size, 0, chain); c > 0; c = treeChild(place, w.g.size, c, chain) {
		if err := w.send(i, (w.root+c)%w.g.size, w.segment(i)); err != nil {
			return err
		}
	}
	return nil
}

// prefersChain reports whether a chain is quicker than a binomial tree. In
// times of one segment, the last rank of a chain has all after segments+size-2,
// while the root of the tree sends each one ceil(log2 size) times.
func prefersChain(segments, size int) bool {
	return segments+size-2 < segments*rounds(size)
}

// rounds is ceil(log2 size).
func rounds(size int) int { return bits.Len(uint(size - 1)) }

// treeParent is the place, relative to the root, of the parent of place > 0.
func treeParent(place int, chain bool) int {
	if chain {
		return place - 1
	}
	return place & (place - 1)
}

// treeChild is the place of the child that comes after child last, or of the
// first one if last is 0; it returns 0 after the last child.
func treeChild(place, size, last int, chain bool) int {
	if chain {
		if last > 0 || place+1 == size {
			return 0
		}
		return place + 1
	}
	bit := last - place
	switch {
	case last == 0 && place == 0:
		bit = 1 << rounds(size)
	case last == 0:
		bit = place & -place
	}
	for bit >>= 1; bit > 0; bit >>= 1 {
		if place+bit < size {
			return place + bit
		}
	}
	return 0
}

// barrier: in round r every rank tells the one 2^r to the right that it, and
// all it has heard of, are here.
func (w *Work) barrier() error {
	for r := range rounds(w.g.size) {
		from, to := mod(w.g.rank-1<<r, w.g.size), (w.g.rank+1<<r)%w.g.size
		w.post(r, from, nil)
		if err := w.send(r, to, nil); err != nil {
			return err
		}
		if err := w.wait(r, from); err != nil {
			return err
		}
	}
	return nil
}
