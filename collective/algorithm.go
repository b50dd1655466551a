package collective

import "fmt"

// The names of algorithms. Each operation has some of them: see docs/costs.md.
const (
	Ring     = "ring"     // optimal for bandwidth, see RingSchedule; a chain in a broadcast or reduce
	Doubling = "doubling" // log2 N steps with the whole operand; few messages
	Halving  = "halving"  // halves, then doubles the data sent: optimal for bandwidth in 2 log2 N steps
	Tree     = "tree"     // up and down a binomial tree
	// Hierarchical works first within each host, then between hosts: see hierarchy.go
	Hierarchical = "hierarchical"
	Exchange     = "exchange" // two ranks exchange whole operands
	Pairwise     = "pairwise" // each rank exchanges one part with every other rank
	Direct       = "direct"   // shared memory of all ranks
	Naive        = "naive"    // all data to rank 0 and back, the baseline
	Auto         = "auto"     // choice of the rules; in Config only
)

// algorithm is an algorithm in a rule or a tag.
type algorithm uint8

const (
	byRules algorithm = iota // choice of the rules
	byRing
	byDoubling
	byHalving
	byTree
	byHierarchy
	byExchange
	byDirect
	byPairs
	byNaive
	methods
)

var methodNames = [methods]string{"", Ring, Doubling, Halving, Tree, Hierarchical, Exchange, Direct, Pairwise, Naive}

func (m algorithm) String() string { return methodNames[m] }

// methodOf returns the algorithm with this name; ok is false if no algorithm has the name.
func methodOf(name string) (m algorithm, ok bool) {
	for m, n := range methodNames {
		if n == name && (m == 0 || offered(algorithm(m))) {
			return algorithm(m), true
		}
	}
	return 0, false
}

// fits returns an error with the reason if a group of size ranks cannot use m, or nil.
func fits(m algorithm, size int) error {
	if m == byExchange && size > 2 {
		return fmt.Errorf("%v: only for groups of two ranks, this group has %d", m, size)
	}
	return nil
}

func offered(m algorithm) bool {
	for k := range kinds {
		if implementation(k, m) != nil {
			return true
		}
	}
	return false
}

// Algorithms lists the algorithms that Config.Algorithm accepts, without Auto.
func Algorithms() []string {
	var out []string
	for m := byRules + 1; m < methods; m++ {
		if offered(m) {
			out = append(out, m.String())
		}
	}
	return out
}

// implementation returns the function that performs an operation by an algorithm; nil if the
// operation does not have the algorithm.
func implementation(k kind, m algorithm) func(*Work) error { return carriers[k][m] }

var carriers = [kinds][methods]func(*Work) error{
	kindAllReduce: {
		byRing:      (*Work).ringAllReduce,
		byDoubling:  (*Work).doublingAllReduce,
		byHalving:   (*Work).halvingAllReduce,
		byTree:      (*Work).treeAllReduce,
		byHierarchy: (*Work).hierarchicalAllReduce,
		byExchange:  (*Work).exchangeAllReduce,
		byPairs:     (*Work).pairAllReduce,
		byDirect:    (*Work).directAllReduce,
		byNaive:     (*Work).naiveAllReduce,
	},
	kindReduceScatter: {
		byRing:      (*Work).ringReduceScatter,
		byHalving:   (*Work).halvingReduceScatter,
		byHierarchy: (*Work).hierarchicalReduceScatter,
		byPairs:     (*Work).pairReduceScatter,
		byDirect:    (*Work).directExchange,
	},
	kindAllGather: {
		byRing:      (*Work).ringAllGather,
		byDoubling:  (*Work).doublingAllGather,
		byHierarchy: (*Work).hierarchicalAllGather,
		byPairs:     (*Work).pairAllGather,
		byDirect:    (*Work).directExchange,
	},
	kindAllGatherV: {
		byRing:      (*Work).ringAllGather,
		byDoubling:  (*Work).doublingAllGather,
		byHierarchy: (*Work).hierarchicalAllGather,
		byPairs:     (*Work).pairAllGather,
		byDirect:    (*Work).directExchange,
	},
	kindBroadcast: {
		byTree:      (*Work).treeBroadcast,
		byRing:      (*Work).chainBroadcast,
		byHierarchy: (*Work).hierarchicalBroadcast,
		byDirect:    (*Work).directExchange,
	},
	kindReduce: {
		byTree:      (*Work).treeReduce,
		byRing:      (*Work).chainReduce,
		byHierarchy: (*Work).hierarchicalReduce,
		byDirect:    (*Work).directExchange,
	},
	kindGather: {
		byPairs:  (*Work).pairRoot,
		byTree:   (*Work).treeGather,
		byDirect: (*Work).directExchange,
	},
	kindScatter: {
		byPairs:  (*Work).pairRoot,
		byTree:   (*Work).treeScatter,
		byDirect: (*Work).directExchange,
	},
	kindAllToAll: {
		byPairs:    (*Work).pairAllToAll,
		byDoubling: (*Work).bruckAllToAll,
		byDirect:   (*Work).directExchange,
	},
	kindAllToAllV: {
		byPairs:  (*Work).pairAllToAll,
		byDirect: (*Work).directExchange,
	},
	kindBarrier: {
		byDoubling: (*Work).disseminate,
		byDirect:   (*Work).directExchange,
	},
	kindSend: {
		byRules: (*Work).sendPair,
	},
	kindReceive: {
		byRules: (*Work).receivePair,
	},
	kindSharded: {
		byDirect: (*Work).directSharded,
	},
}

// kind is an operation.
type kind uint8

const (
	kindAllReduce kind = iota
	kindBroadcast
	kindAllGather
	kindBarrier
	kindAllGatherV
	kindReduceScatter
	kindReduce
	kindGather
	kindScatter
	kindAllToAll
	kindAllToAllV
	kindSend
	kindReceive
	kindSharded
	kinds
)

var kindNames = [kinds]string{
	"allreduce", "broadcast", "allgather", "barrier", "allgatherv", "reducescatter",
	"reduce", "gather", "scatter", "alltoall", "alltoallv", "send", "receive", "sharded update",
}

func (k kind) String() string { return kindNames[k] }

// reduces reports whether the operation combines values of ranks; rooted, whether it has a root.
func (k kind) reduces() bool {
	return k == kindAllReduce || k == kindReduceScatter || k == kindReduce
}

func (k kind) rooted() bool {
	return k == kindBroadcast || k == kindReduce || k == kindGather || k == kindScatter
}

// pairs reports whether only two ranks take part in the operation, in a group of any size.
func (k kind) pairs() bool { return k == kindSend || k == kindReceive }
