package collective

// The algorithms. Not every operation has each of them: see carrier.
const (
	Ring   = "ring"   // bandwidth-optimal, see RingSchedule
	Tree   = "tree"   // a binomial tree, or a chain for long slices
	Direct = "direct" // in shared memory; where all ranks share it
	Naive  = "naive"  // everything to rank 0 and back, the straw man
)

// method is an algorithm in a table or a tag.
type method uint8

const (
	byTable method = iota // as the table of Choose says
	byRing
	byDoubling
	byHalving
	byTree
	byHierarchy
	byExchange
	byDirect
	byNaive
	methods
)

var methodNames = [methods]string{"", Ring, "doubling", "halving", Tree, "hierarchical", "exchange", Direct, Naive}

func (m method) String() string { return methodNames[m] }

// methodOf returns the algorithm of that name; ok is false if no operation has
// it.
func methodOf(name string) (m method, ok bool) {
	for m, n := range methodNames {
		if n == name && (m == 0 || offered(method(m))) {
			return method(m), true
		}
	}
	return 0, false
}

func offered(m method) bool {
	for k := range kinds {
		if carrier(k, m) != nil {
			return true
		}
	}
	return false
}

// Algorithms lists the algorithms that can be named.
func Algorithms() []string {
	var out []string
	for m := byTable + 1; m < methods; m++ {
		if offered(m) {
			out = append(out, m.String())
		}
	}
	return out
}

// carrier returns what carries an operation out by an algorithm, nil where the
// operation has no such algorithm.
func carrier(k kind, m method) func(*Work) error {
	switch k {
	case kindAllReduce:
		switch m {
		case byRing:
			return (*Work).ringAllReduce
		case byNaive:
			return (*Work).naiveAllReduce
		case byDirect:
			return (*Work).directAllReduce
		}
	case kindBroadcast:
		if m == byTree {
			return (*Work).broadcast
		}
	case kindAllGather, kindAllGatherV:
		if m == byRing {
			return (*Work).allGather
		}
	case kindBarrier:
		if m == byTree {
			return (*Work).barrier
		}
	}
	return nil
}
