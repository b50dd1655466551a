package collective

import "slices"

// Hierarchical broadcast and reduce. One rank of each host is its leader: the root on
// its own, the first one elsewhere. A broadcast goes from the root to the leaders, by a
// tree or, if it is long, along a chain, and then within each host; a reduce goes the
// other way. So it crosses the boundary of each host but the root's once: (H-1) K bytes
// with H hosts, where a tree or chain of all ranks crosses as often as neighbours in it
// are on two hosts. Where the ranks of a host share memory, what is within it goes by
// that: the leader's operand is copied by all, or all are reduced by the leader.
//
// The leaders of a reduce, but for the root, keep K bytes for what their host has.

// treeBytes is the size up to which a tree is faster than a chain, as in the default rules.
const treeBytes = 256 << 10

// usesChain reports whether an operand travels along a chain of the scope's ranks.
func (w *Work) usesChain() bool { return chained(w.scope.size, len(w.x)) }

func chained(ranks, bytes int) bool { return ranks > 2 && bytes > treeBytes }

// leadersOf returns the leaders of the hosts if root, which is place 0, is its host's.
// A rank that is none has no place. The hosts follow each other as in the ring.
func (h *hierarchy) leadersOf(root int) *rankSet {
	if s := h.leaders[root].Load(); s != nil {
		return s
	}
	var after, ranks []int
	for _, list := range h.lists {
		switch {
		case slices.Contains(list, root):
			ranks = append(ranks, root)
		case len(ranks) > 0:
			ranks = append(ranks, list[0])
		default:
			after = append(after, list[0])
		}
	}
	s := newScope(append(ranks, after...), h.local.ranks[h.local.rank])
	h.leaders[root].Store(&s)
	return &s
}

// leaderHere is the place of this host's leader in it.
func (h *hierarchy) leaderHere(root int) int { return max(0, slices.Index(h.local.ranks, root)) }

func (w *Work) hierarchicalBroadcast() error {
	h := w.g.hosting
	leaders, here, root := h.leadersOf(w.root), h.leaderHere(w.root), w.root
	defer func() { w.root = root }()
	if leaders.rank >= 0 {
		w.scope, w.root = leaders, 0
		if err := w.spread(w.usesChain()); err != nil {
			return err
		}
	}
	if w.g.hostSharesMemory() {
		return w.hostSpread(here)
	}
	w.scope, w.root, w.base = &h.local, here, 1<<phaseBits
	return w.spread(w.usesChain())
}

func (w *Work) hierarchicalReduce() error {
	h, x, op, root := w.g.hosting, w.x, w.op, w.root
	leaders, here := h.leadersOf(root), h.leaderHere(root)
	leads := leaders.rank >= 0
	defer func() { w.x, w.op, w.root, w.inputCopied = x, op, root, false }()
	if w.g.hosts > 1 && op == Mean {
		w.op = Sum // until the sum is whole
	}
	if leads && w.g.rank != root { // whose x is only read
		if len(w.copied) < len(x) {
			w.copied = make([]byte, len(x))
		}
		w.x, w.inputCopied = w.copied[:len(x)], true
	}
	if err := w.reduceHere(x, here); err != nil || !leads || w.g.hosts == 1 {
		return err
	}
	w.scope, w.root, w.base, w.op = leaders, 0, 1<<phaseBits, op
	return w.collect(w.usesChain())
}

// reduceHere reduces the operands of this host to x of the leader, whose own is own.
func (w *Work) reduceHere(own []byte, leader int) error {
	if w.g.hostSharesMemory() {
		return w.hostCollect(own, leader)
	}
	if w.inputCopied {
		copy(w.x, own)
	}
	w.scope, w.root = &w.g.hosting.local, leader
	return w.collect(w.usesChain())
}
