package collective

import (
	"cmp"
	"slices"
)

// rankSet is the ranks that an algorithm runs on, numbered by their places: all of
// the group, those of one host, or one of each host.
type rankSet struct {
	ranks []int // of the group, by place
	rank  int   // this one's place
	size  int
	steps []RingStep // of an allreduce around the ring of places
	// absent says whose parts are of another scope: see hierarchy_parts.go. Nil: all
	// are of this one.
	absent []bool
}

func newScope(ranks []int, own int) rankSet {
	rank := slices.Index(ranks, own)
	return rankSet{ranks: ranks, rank: rank, size: len(ranks), steps: RingSchedule(rank, len(ranks))}
}

// byHost returns the ranks so that those of one host are neighbours and a ring
// over them crosses each host boundary once in each direction. The hosts come
// in the order of their first ranks, and a host's ranks ascend.
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

// Ranks are those of a group of n: 0 to n-1.
func Ranks(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}
