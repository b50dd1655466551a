package collective

import "sync/atomic"

// Hierarchical allreduce, for hosts with several ranks. x is cut into S slices, with S the maximum
// number of ranks per host, and each host assigns the slices to its ranks. The ranks of a host
// reduce-scatter the slices (pairwise); then every rank allreduces its slices with the owners of
// the slices on the other hosts, so that all ranks of a host share its wire; then the ranks
// allgather within the host. The phases within a host use shared memory if the host has it.
//
// With H hosts and K bytes each host sends 2(H-1)/H K bytes over its wire and receives as much, the
// minimum. A ring of all N ranks sends 2(N-1)/N K. Inside a host of L ranks each rank sends
// 2(L-1)/L K. Source: Jia et al., "Highly scalable deep learning training system with
// mixed-precision" (2018).

// hierarchy describes the group by hosts, for this rank: the ranks of its host, and its slices.
type hierarchy struct {
	local  rankSet
	slices int
	first  int       // number of this rank's first slice
	cross  []rankSet // owners of each slice of this rank, one per host
	ends   []int     // number of the slice after the last one of each local rank

	lists   [][]int                   // ranks by host
	bundles [][]int                   // ranks of the parts that each local place has between the phases
	places  []int                     // numbers of the local places: an allreduce has one part for each
	leaders []atomic.Pointer[rankSet] // leaders by root: see leadersOf
}

// maxLocal is the maximum number of ranks per host; message numbers have no space for more.
const maxLocal = 512

// newHierarchy returns the hierarchy of a rank, or nil if a host has too many ranks.
func newHierarchy(hosts []int, rank int) *hierarchy {
	var lists [][]int // ranks by host
	own := 0
	for i, r := range byHost(hosts) {
		if i == 0 || hosts[r] != hosts[lists[len(lists)-1][0]] {
			lists = append(lists, nil)
		}
		last := len(lists) - 1
		lists[last] = append(lists[last], r)
		if r == rank {
			own = last
		}
	}
	h := &hierarchy{local: newScope(lists[own], rank), lists: lists, leaders: make([]atomic.Pointer[rankSet], len(hosts))}
	for _, list := range lists {
		h.slices = max(h.slices, len(list))
	}
	if h.slices > maxLocal {
		return nil
	}
	h.ends, h.bundles, h.places = make([]int, h.local.size), make([][]int, h.local.size), Ranks(h.local.size)
	for s := range h.slices {
		peers, absent := partsOf(lists, s, h.slices)
		owner := ownerOf(s, h.slices, h.local.size)
		h.ends[owner] = s + 1
		for i, r := range peers {
			if absent == nil || !absent[i] {
				h.bundles[owner] = append(h.bundles[owner], r)
			}
		}
		if owner != h.local.rank {
			continue
		}
		if len(h.cross) == 0 {
			h.first = s
		}
		h.cross = append(h.cross, newScope(peers, rank))
		h.cross[len(h.cross)-1].absent = absent
	}
	return h
}

func (w *Work) hierarchicalAllReduce() error {
	h, x, op := w.g.hosting, w.x, w.op
	w.scope = &h.local
	for _, s := range h.ends {
		_, hi := w.slice(x, s-1)
		w.ends = append(w.ends, hi)
	}
	if w.g.hosts > 1 && op == Mean {
		w.op = Sum // sum until the last addition
	}
	scatter, gather := (*Work).pairScatter, (*Work).pairGather
	if w.g.hostSharesMemory() {
		scatter, gather = (*Work).hostScatter, (*Work).hostRegather
	}
	if err := scatter(w); err != nil {
		return err
	}
	w.op = op
	if w.g.hosts > 1 {
		if err := w.acrossHosts(x); err != nil {
			return err
		}
	}
	w.scope, w.base = &h.local, 3<<phaseBits
	return gather(w)
}

// acrossHosts allreduces this rank's slices of x among the hosts.
func (w *Work) acrossHosts(x []byte) (err error) {
	h, ends := w.g.hosting, w.ends
	w.ends = nil
	for i := range h.cross {
		s := h.first + i
		lo, hi := w.slice(x, s)
		w.scope, w.x, w.base = &h.cross[i], x[lo:hi], 1<<phaseBits+uint32(s)<<(numberBits+1)
		if w.scope.size == 2 {
			err = w.exchangeAllReduce()
		} else {
			err = w.ring(w.scope.steps, true)
		}
		if err != nil {
			break
		}
	}
	w.x, w.ends = x, ends
	return err
}

// slice returns the bounds, in bytes, of slice s of x.
func (w *Work) slice(x []byte, s int) (lo, hi int) {
	elem := w.elem.size()
	lo, hi = RingChunk(len(x)/elem, w.g.hosting.slices, s)
	return lo * elem, hi * elem
}
