package collective

import "math/bits"

// Algorithms on a binomial tree or a chain, with places counted from the root, place 0. With L =
// ceil(log2 N):
//
//	broadcast down the tree    L hops, the root sends L K bytes
//	reduce up the tree         L hops, the root receives L K
//	allreduce                  reduce, then broadcast
//	gather, scatter            L hops, the root moves (N-1)/N K
//	along a chain              N-1 hops, but every rank sends K once, segment by segment

func (w *Work) treeBroadcast() error  { return w.spread(false) }
func (w *Work) chainBroadcast() error { return w.spread(true) }

// treePlace returns this rank's place in a tree.
func (w *Work) treePlace() int { return mod(w.scope.rank-w.root, w.scope.size) }

// outOf returns the place in the scope of the rank at a place in the tree.
func (w *Work) outOf(place int) int { return (w.root + place) % w.scope.size }

// spread receives x from the parent, if any, and sends every segment to the children immediately.
func (w *Work) spread(chain bool) error {
	place, n, asked := w.treePlace(), w.segments(), 0
	for i := range n {
		if place > 0 {
			parent := w.outOf(treeParent(place, chain))
			for ; asked < min(n, i+posted); asked++ {
				w.post(asked, parent, w.segment(asked))
			}
			if err := w.wait(i, parent); err != nil {
				return err
			}
		}
		if err := w.passOn(i, place, chain); err != nil {
			return err
		}
	}
	return nil
}

func (w *Work) segments() int { return w.segmentsOf(w.x) }

func (w *Work) segment(i int) []byte { return w.cut(w.x, i) }

// passOn sends segment i to all children, first to the child with the most descendants.
func (w *Work) passOn(i, place int, chain bool) error {
	for c := treeChild(place, w.scope.size, 0, chain); c > 0; c = treeChild(place, w.scope.size, c, chain) {
		if err := w.send(i, w.outOf(c), w.segment(i)); err != nil {
			return err
		}
	}
	return nil
}

func (w *Work) treeReduce() error  { return w.collect(false) }
func (w *Work) chainReduce() error { return w.collect(true) }

func (w *Work) treeAllReduce() error {
	if err := w.collect(false); err != nil {
		return err
	}
	return w.spread(false)
}

// collect reduces x, segment by segment, up to the root: each rank adds the sums of its children to
// its operand, the nearest child's first, in the order of the places, and sends the sum to its
// parent. In a reduce only the root, and ranks whose x is a copy, write to x.
func (w *Work) collect(chain bool) error {
	place, n := w.treePlace(), w.segments()
	children := treeChildren(place, w.scope.size, chain)
	largest := min(len(w.x), w.segmentBytes())
	w.room(largest)
	held := w.hold(largest)
	for i, asked := 0, 0; i < n; i++ {
		own := w.segment(i)
		sum := own
		if place > 0 && w.kind == kindReduce && !w.inputCopied {
			sum = held[:len(own)]
		}
		for c := range children {
			at := i*children + c
			for ; asked < min(n*children, at+posted); asked++ {
				from := w.outOf(nearChild(place, asked%children))
				w.postTo(asked%posted, asked/children, from, w.space(asked, len(w.segment(asked/children))))
			}
			if err := w.waitFor(at%posted, w.outOf(nearChild(place, c))); err != nil {
				return err
			}
			w.combine(sum, own, w.space(at, len(own)))
			own = sum
		}
		if place == 0 {
			w.average(sum)
		} else if err := w.send(i, w.outOf(treeParent(place, chain)), own); err != nil {
			return err
		}
	}
	return nil
}

// treeChildren returns the number of a place's children.
func treeChildren(place, size int, chain bool) int {
	if chain {
		return min(1, size-1-place)
	}
	n := 0
	for nearChild(place, n) < size && place>>n&1 == 0 {
		n++
	}
	return n
}

// nearChild returns child c of a place, nearest first; in a chain c is 0.
func nearChild(place, c int) int { return place + 1<<c }

// rounds returns ceil(log2 size).
func rounds(size int) int { return bits.Len(uint(size - 1)) }

// treeParent returns the parent of place > 0, relative to the root.
func treeParent(place int, chain bool) int {
	if chain {
		return place - 1
	}
	return place & (place - 1)
}

// treeChild returns the place of the child after child last, or of the first child if last is 0; 0
// after the last child.
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

// Gather and scatter over the tree of tree.go: a rank sends the parts of all its descendants
// together. The places of descendants follow the rank's place, so the parts are contiguous. If the
// root is not rank 0, the descendants' ranks can continue at rank 0 after the last rank; the parts
// are then two messages.

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

// subtreeParts returns a buffer for the parts of the rank at place and of its descendants; nil for
// the root, which has all parts in x.
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
