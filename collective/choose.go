package collective

// The choice of an algorithm.

// situation is what the choice depends on: the same on every rank, so that all
// choose alike.
type situation struct {
	kind  kind
	bytes int // of the operand
	ranks int
	hosts int // how many hosts the ranks are on
	// shared says that all ranks share memory.
	shared bool
}

// choose is the fixed table: results depend on the order of sums, so that runs
// are only reproducible when nothing that is measured has a say.
func choose(s situation) method {
	if s.shared && carrier(s.kind, byDirect) != nil {
		return byDirect
	}
	switch s.kind {
	case kindAllReduce:
		if s.ranks == 2 && s.bytes <= 128<<10 { // beyond, each adding all costs more than a step
			return byExchange
		}
		if s.bytes <= 8<<10 {
			return byDoubling
		}
		if 1 < s.hosts && s.hosts < s.ranks {
			return byHierarchy
		}
	case kindAllGather, kindAllGatherV:
		if s.bytes <= 64<<10 {
			return byDoubling
		}
	case kindReduceScatter:
		return byPairs
	case kindBroadcast, kindReduce:
		if s.bytes <= 64<<10 {
			return byTree
		}
	case kindGather, kindScatter, kindAllToAll, kindAllToAllV:
		return byPairs
	case kindBarrier:
		return byDoubling
	case kindSend, kindReceive:
		return byTable
	}
	return byRing
}

// method is the algorithm of an operation: the configured one where the
// operation has it, else the table's.
func (g *Group) method(k kind, bytes int) method {
	if g.named != byTable && carrier(k, g.named) != nil {
		return g.named
	}
	return choose(situation{kind: k, bytes: bytes, ranks: g.size, hosts: g.hosts, shared: g.share.whole(g.size)})
}
