package collective

// Hierarchical reduce-scatter and allgather. As in the hierarchical allreduce, each host assigns
// slices to its ranks. A slice is a bundle with one part per host: the part of the rank that has s
// as its first slice. The owners of a slice pass the bundle around a ring of hosts; within a host
// the ranks exchange parts, through shared memory or pairwise.
//
// With H hosts each host sends K less one host's part, (H-1)/H K for equal hosts, over its wire:
// the minimum. A ring of all N ranks sends K less one rank's part, (N-1)/N K. A rank of a
// reduce-scatter buffers the bundles that it reduces, about K divided by the ranks of its host.

// ownerOf returns the local number of the rank that owns slice s in a host of n ranks.
func ownerOf(s, slices, n int) int { return s * n / slices }

// leads reports whether slice s is the first slice of its owner in a host of n ranks.
func leads(s, slices, n int) bool {
	return s == 0 || ownerOf(s-1, slices, n) != ownerOf(s, slices, n)
}

// partsOf returns the owners of slice s, one per host. absent marks the owners that have their part
// in another slice; it is nil without such owners.
func partsOf(lists [][]int, s, slices int) (ranks []int, absent []bool) {
	silent := false
	for _, list := range lists {
		ranks = append(ranks, list[ownerOf(s, slices, len(list))])
		absent = append(absent, !leads(s, slices, len(list)))
		silent = silent || absent[len(absent)-1]
	}
	if !silent {
		absent = nil
	}
	return ranks, absent
}

// bundleParts returns the numbers (see partAt) of the parts that the host's i-th rank exchanges.
func (w *Work) bundleParts(i int) []int {
	if w.kind == kindAllReduce {
		return w.g.hosting.places[i : i+1]
	}
	return w.g.hosting.bundles[i]
}

// bundleOf returns the size in bytes of bundleParts(i).
func (w *Work) bundleOf(i int) int {
	n := 0
	for _, r := range w.bundleParts(i) {
		lo, hi := w.partAt(r)
		n += hi - lo
	}
	return n
}

// partAt returns the bounds in x of rank r's part. In an allreduce r is a number within the host.
func (w *Work) partAt(r int) (lo, hi int) {
	if len(w.ends) == 0 {
		n := len(w.x) / w.g.size
		return r * n, (r + 1) * n
	}
	if r > 0 {
		lo = w.ends[r-1]
	}
	return lo, w.ends[r]
}

// stretches calls do for each part of x that overlaps bytes [from, to) of the bundle of the host's
// i-th rank: bytes [lo, hi) of x are at offset at of the bundle.
func (w *Work) stretches(i, from, to int, do func(lo, hi, at int)) {
	at := 0
	for _, r := range w.bundleParts(i) {
		lo, hi := w.partAt(r)
		a, b := max(from, at), min(to, at+hi-lo)
		if a < b {
			do(lo+a-at, lo+b-at, a)
		}
		at += hi - lo
	}
}

// numbered reports whether messages have enough numbers for all slices and hosts.
func (h *hierarchy) numbered() bool { return h.slices*len(h.lists) <= 1<<stepBits }

// carries reports whether operation k can use the hierarchical algorithm.
func (h *hierarchy) carries(k kind) bool { return k == kindAllReduce || k.rooted() || h.numbered() }

func (w *Work) hierarchicalAllGather() error {
	h := w.g.hosting
	if !h.numbered() {
		return w.ringAllGather()
	}
	w.settle()
	for i := range h.cross {
		w.scope, w.base = &h.cross[i], 1<<phaseBits+uint32(h.first+i)<<(numberBits+1)
		if w.scope.size == 1 || len(w.x) == 0 {
			break
		}
		if err := w.ring(w.scope.steps[:w.scope.size-1], false); err != nil {
			return err
		}
	}
	if w.g.hostSharesMemory() {
		return w.hostExchange()
	}
	w.scope, w.base = &h.local, 0
	for k := 1; k < h.local.size; k++ {
		to, from := w.places(k)
		if err := w.swapParts(to, from, h.bundles[h.local.rank], h.bundles[from], nil); err != nil {
			return err
		}
	}
	return nil
}

// swapParts sends parts of x to one place and receives parts from another. Received parts overwrite
// x or, if own is not nil, are added to own. A message's number is the index of its part.
func (w *Work) swapParts(to, from int, out, in []int, own []byte) error {
	at := 0
	for k := range max(len(out), len(in)) {
		s := step{number: k, to: to, from: from}
		if k < len(out) {
			lo, hi := w.partAt(out[k])
			s.out = w.x[lo:hi]
		}
		if k < len(in) {
			lo, hi := w.partAt(in[k])
			s.in = w.x[lo:hi]
			if own != nil {
				s.in = own[at:][:hi-lo]
				s.operand = s.in
			}
			at += hi - lo
		}
		if err := w.exchange(s); err != nil {
			return err
		}
	}
	return nil
}

func (w *Work) hierarchicalReduceScatter() error {
	h, op := w.g.hosting, w.op
	if !h.numbered() {
		return w.ringReduceScatter()
	}
	defer func() { w.op = op }()
	if op == Mean {
		w.op = Sum // until the sum is whole
	}
	bundle := w.hold(w.bundleOf(h.local.rank))
	if err := w.reduceBundle(bundle); err != nil {
		return err
	}
	at := 0 // offset of the slice in the bundle
	for i := range h.cross {
		w.scope, w.base = &h.cross[i], 1<<phaseBits
		n, err := w.aroundHosts(bundle[at:], (h.first+i)*len(h.lists))
		if err != nil {
			return err
		}
		at += n
	}
	w.op = op
	w.average(w.dst)
	return nil
}

// reduceBundle reduces this rank's bundle of parts over the ranks of this host.
func (w *Work) reduceBundle(bundle []byte) error {
	h := w.g.hosting
	if w.g.hostSharesMemory() {
		return w.hostDeal(bundle)
	}
	w.stretches(h.local.rank, 0, len(bundle), func(lo, hi, at int) { copy(bundle[at:], w.x[lo:hi]) })
	w.scope, w.base = &h.local, 0
	for k := 1; k < h.local.size; k++ {
		to, from := w.places(k)
		if err := w.swapParts(to, from, h.bundles[to], h.bundles[h.local.rank], bundle); err != nil {
			return err
		}
	}
	return nil
}

// aroundHosts passes the parts of a slice around the ring of its owners, which reduce them. The
// part of this rank's own host, reduced, is in dst at the end. n is the size in bytes of all parts.
func (w *Work) aroundHosts(parts []byte, first int) (n int, err error) {
	s := w.scope
	part := func(place int) []byte {
		place = mod(place, s.size)
		at := 0
		for p := range s.size {
			size := 0
			if s.absent == nil || !s.absent[p] {
				lo, hi := w.partAt(s.ranks[p])
				size = hi - lo
			}
			if p == place {
				return parts[at:][:size]
			}
			at += size
		}
		return nil
	}
	for p := range s.size {
		n += len(part(p))
	}
	for k := range s.size - 1 {
		in := part(s.rank - 2 - k)
		err := w.exchange(step{
			number: first + k, to: (s.rank + 1) % s.size, out: part(s.rank - 1 - k),
			from: mod(s.rank-1, s.size), in: in, operand: in,
		})
		if err != nil {
			return 0, err
		}
	}
	copy(w.dst, part(s.rank)) // empty if this rank's part is in another slice
	return n, nil
}
