package collective

import (
	"cmp"
	"slices"
)

// rankSet is the ranks that an algorithm runs on: the whole group, the ranks of a host, or one rank
// of every host. A rank's index in it is its place.
type rankSet struct {
	ranks []int // ranks of the group, by place
	rank  int   // place of this rank
	size  int
	steps []RingStep // steps of an allreduce around the ring of places
	// absent marks ranks that have their part in another rankSet (hierarchy_parts.go); nil: none.
	absent []bool
}

func newScope(ranks []int, own int) rankSet {
	rank := slices.Index(ranks, own)
	return rankSet{ranks: ranks, rank: rank, size: len(ranks), steps: RingSchedule(rank, len(ranks))}
}

// byHost orders the ranks by host, so that in a ring one rank of each host sends to another host.
// Hosts are ordered by their first rank, and a host's ranks ascend.
func byHost(hosts []int) []int {
	first := map[int]int{}
	order := make([]int, len(hosts))
	for r, h := range hosts {
		if _, ok := first[h]; !ok {
			first[h] = r
		}
		order[r] = r
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(first[hosts[a]], first[hosts[b]]) })
	return order
}

// Ranks returns the ranks of a group of n: 0 to n-1.
func Ranks(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}
