package collective

import (
	"math/bits"
	"slices"
	"time"
)

// formulas are the costs of an operation by an algorithm, as functions of the number of ranks N,
// with L = ceil(log2 N), P = 2^floor(log2 N) and K the bytes of the whole: the operand of an
// allreduce, the result of an allgather or gather, the initial data of other operations.
// docs/costs.md shows the formulas; tests compare them with the counters of a mesh.
type formulas struct {
	kind   kind
	method algorithm

	steps    func(n int) int     // sequential steps, one message per rank and step
	busiest  func(n int) float64 // bytes sent by the busiest rank, in K
	all      func(n int) float64 // bytes sent by all ranks together, in K
	adds     func(n int) float64 // bytes added sequentially, in K; nil: none
	messages func(n int) int     // messages of all ranks, if no chunk is longer than a segment

	text [4]string // table cells of docs/costs.md: steps, busiest, all, messages
}

func less1(n int) int { return n - 1 }
func twice(n int) int { return 2 * (n - 1) }
func one(int) int     { return 1 }
func full(n int) int  { return 1 << (bits.Len(uint(n)) - 1) }
func whole(f func(int) int) func(int) float64 {
	return func(n int) float64 { return float64(f(n)) }
}
func perRank(f func(int) int) func(int) float64 {
	return func(n int) float64 { return float64(f(n)) / float64(n) }
}

// height returns log2 P, the height of a binomial tree.
func height(n int) int { return bits.Len(uint(full(n))) - 1 }

// extra returns 1 if doubling needs extra steps because n is not a power of two, else 0.
func extra(n int) int { return min(1, n-full(n)) }

// wrapped returns the number of messages of one pass of halving or doubling. Chunks that wrap past
// the last rank to rank 0 take two messages.
func wrapped(n int) int { return n*rounds(n) + n - 1 - rounds(n) }

// treeBundles returns the number of parts that all ranks send in a gather or scatter by a tree.
func treeBundles(n int) int {
	sum := 0
	for place := 1; place < n; place++ {
		sum += treeSpan(place, n)
	}
	return sum
}

func allFormulas() []formulas {
	return []formulas{
		{kindAllReduce, byRing, twice, perRank(twice), whole(twice), perRank(less1), func(n int) int { return n * twice(n) },
			[4]string{"2(N-1)", "2(N-1)/N K", "2(N-1) K", "2N(N-1)"}},
		{kindAllReduce, byHalving, func(n int) int { return 2 * rounds(n) }, perRank(twice), whole(twice), perRank(less1), func(n int) int { return 2 * wrapped(n) },
			[4]string{"2L", "2(N-1)/N K", "2(N-1) K", "2(NL + N-1 - L)"}},
		{kindAllReduce, byDoubling, func(n int) int { return height(n) + 2*extra(n) },
			func(n int) float64 { return float64(height(n) + extra(n)) },
			func(n int) float64 { return float64(full(n)*height(n) + 2*(n-full(n))) },
			func(n int) float64 { return float64(height(n) + extra(n)) },
			func(n int) int { return full(n)*height(n) + 2*(n-full(n)) },
			[4]string{"log2 P, +2 if N > P", "log2 P K, +K if N > P", "(P log2 P + 2(N-P)) K", "P log2 P + 2(N-P)"}},
		{kindAllReduce, byTree, func(n int) int { return height(n) + rounds(n) }, whole(rounds), whole(twice), whole(rounds), twice,
			[4]string{"log2 P + L", "L K", "2(N-1) K", "2(N-1)"}},
		{kindAllReduce, byPairs, twice, perRank(twice), whole(twice), perRank(less1), func(n int) int { return n * twice(n) },
			[4]string{"2(N-1)", "2(N-1)/N K", "2(N-1) K", "2N(N-1)"}},
		{kindAllReduce, byExchange, one, whole(one), whole(func(n int) int { return n }), whole(one), func(n int) int { return n },
			[4]string{"1", "K", "2 K", "2"}},
		{kindAllReduce, byNaive, func(n int) int { return n }, whole(less1), whole(twice), whole(less1), twice,
			[4]string{"N", "(N-1) K", "2(N-1) K", "2(N-1)"}},

		{kindReduceScatter, byRing, less1, perRank(less1), whole(less1), perRank(less1), func(n int) int { return n * (n - 1) },
			[4]string{"N-1", "(N-1)/N K", "(N-1) K", "N(N-1)"}},
		{kindReduceScatter, byPairs, less1, perRank(less1), whole(less1), perRank(less1), func(n int) int { return n * (n - 1) },
			[4]string{"N-1", "(N-1)/N K", "(N-1) K", "N(N-1)"}},
		{kindReduceScatter, byHalving, rounds, perRank(less1), whole(less1), perRank(less1), wrapped,
			[4]string{"L", "(N-1)/N K", "(N-1) K", "NL + N-1 - L"}},

		{kindAllGather, byRing, less1, perRank(less1), whole(less1), nil, func(n int) int { return n * (n - 1) },
			[4]string{"N-1", "(N-1)/N K", "(N-1) K", "N(N-1)"}},
		{kindAllGather, byPairs, less1, perRank(less1), whole(less1), nil, func(n int) int { return n * (n - 1) },
			[4]string{"N-1", "(N-1)/N K", "(N-1) K", "N(N-1)"}},
		{kindAllGather, byDoubling, rounds, perRank(less1), whole(less1), nil, wrapped,
			[4]string{"L", "(N-1)/N K", "(N-1) K", "NL + N-1 - L"}},

		{kindBroadcast, byTree, rounds, whole(rounds), whole(less1), nil, less1,
			[4]string{"L", "L K", "(N-1) K", "N-1"}},
		{kindBroadcast, byRing, less1, whole(one), whole(less1), nil, less1,
			[4]string{"N-1", "K", "(N-1) K", "N-1"}},
		{kindReduce, byTree, height, whole(one), whole(less1), whole(rounds), less1,
			[4]string{"log2 P", "K", "(N-1) K", "N-1"}},
		{kindReduce, byRing, less1, whole(one), whole(less1), whole(one), less1,
			[4]string{"N-1", "K", "(N-1) K", "N-1"}},

		{kindGather, byPairs, one, perRank(one), perRank(less1), nil, less1,
			[4]string{"1", "1/N K", "(N-1)/N K", "N-1"}},
		{kindGather, byTree, height, perRank(largestSpan), perRank(treeBundles), nil, less1,
			[4]string{"log2 P", "S/N K", "Σ spans/N K", "N-1"}},
		{kindScatter, byPairs, less1, perRank(less1), perRank(less1), nil, less1,
			[4]string{"N-1", "(N-1)/N K", "(N-1)/N K", "N-1"}},
		{kindScatter, byTree, rounds, perRank(less1), perRank(treeBundles), nil, less1,
			[4]string{"L", "(N-1)/N K", "Σ spans/N K", "N-1"}},

		{kindAllToAll, byPairs, less1, perRank(less1), whole(less1), nil, func(n int) int { return n * (n - 1) },
			[4]string{"N-1", "(N-1)/N K", "(N-1) K", "N(N-1)"}},
		{kindAllToAll, byDoubling, rounds, perRank(setBits), whole(setBits), nil, func(n int) int { return n * rounds(n) },
			[4]string{"L", "B/N K", "B K", "NL"}},
		{kindBarrier, byDoubling, rounds, whole(func(int) int { return 0 }), whole(func(int) int { return 0 }), nil, func(n int) int { return n * rounds(n) },
			[4]string{"L", "0", "0", "NL"}},
	}
}

// formulasOf returns the formulas of an operation by algorithm m.
func formulasOf(k kind, m algorithm) formulas {
	all := allFormulas()
	return all[slices.IndexFunc(all, func(f formulas) bool { return f.kind == k && f.method == m })]
}

// setBits returns the total number of bits set in 0 to n-1.
func setBits(n int) int {
	sum := 0
	for i := range n {
		sum += bits.OnesCount(uint(i))
	}
	return sum
}

// largestSpan returns the number of ranks in the largest subtree below the root.
func largestSpan(n int) int {
	most := 0
	for place := 1; place < n; place++ {
		most = max(most, treeSpan(place, n))
	}
	return most
}

// over predicts an operation's duration: l's latency for all steps, plus the additions at add
// seconds per byte, plus a transfer. The transfer has the maximum of three sizes, in K: the sends
// of the busiest rank, the operands that it receives, and wire, the traffic of a host. The overlap
// of transfer and addition is ignored. Messages to one receiver are sequential.
func (f formulas) over(l Link, add float64, n int, wire, bytes float64) time.Duration {
	sent := max(f.busiest(n), wire)
	if f.kind == kindGather {
		sent = f.all(n)
	}
	if f.adds != nil {
		sent = max(sent, f.adds(n))
	}
	seconds := float64(f.steps(n))*l.LatencySeconds + sent*bytes/l.BytesPerSecond
	if f.adds != nil {
		seconds += f.adds(n) * bytes * add
	}
	return time.Duration(seconds * float64(time.Second))
}
