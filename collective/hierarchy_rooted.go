package collective

import "slices"

// Hierarchical broadcast and reduce. One rank of each host is its leader: the root on the root's
// host, the first rank on other hosts. A broadcast travels from the root to the leaders, by a tree
// or, if long, along a chain, and then within each host; a reduce travels in the other direction.
// Every host except the root's sends or receives the K bytes once: (H-1) K bytes with H hosts. In a
// tree or chain of all ranks each pair of neighbours on two hosts sends K bytes. With shared
// memory, all ranks of a host copy the leader's operand, or the leader reduces all operands.
//
// The leaders of a reduce, except the root, buffer K bytes for the sum of their host.

// treeBytes is the largest size at which a tree is faster than a chain, as in the default rules.
const treeBytes = 256 << 10

// usesChain reports whether an operand travels along a chain of the ranks, instead of a tree.
func (w *Work) usesChain() bool { return chained(w.scope.size, len(w.x)) }

func chained(ranks, bytes int) bool { return ranks > 2 && bytes > treeBytes }

// leadersOf returns the leaders of the hosts, root first. Ranks that lead no host have no place in
// it. The hosts have the order of the ring.
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

// leaderHere returns the number, within this host, of the host's leader.
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
		w.op = Sum // sum until the last addition
	}
	if leads && w.g.rank != root { // a leader's x is read-only, except at the root
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

// reduceHere reduces the operands of this host to the leader's x; own is the leader's operand.
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
