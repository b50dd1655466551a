package collective

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// The choice of an algorithm: each group makes rules once, from values equal on all ranks.

// situation is the input of the default rules: the numbers of ranks and hosts, and their memory.
type situation struct {
	ranks int
	hosts int // hosts of the ranks
	// shared reports whether all ranks share memory.
	shared bool
}

// several reports whether there are several hosts, at least one with several ranks.
func (s situation) several() bool { return 1 < s.hosts && s.hosts < s.ranks }

// rule assigns an algorithm to operations whose operand has at most upTo bytes.
type rule struct {
	upTo   int // bytes of the operand; 0: no limit
	method algorithm
}

// ruleSet has the rules of each operation, in ascending order of size.
type ruleSet [kinds][]rule

func (t *ruleSet) choose(k kind, bytes int) algorithm {
	for _, r := range t[k] {
		if bytes <= r.upTo || r.upTo == 0 {
			return r.method
		}
	}
	return byRules // send and receive have no rules
}

// defaultRules returns the rules of a group without a Profile. They depend on ranks and hosts
// alone: rules from measurements would change the order of sums, and with it results, from run to
// run. The bounds were measured over loopback TCP with 2 to 4 ranks.
func defaultRules(s situation) *ruleSet {
	t := new(ruleSet)
	for k := range kinds {
		t[k] = defaultRulesOf(k, s)
	}
	return t
}

func defaultRulesOf(k kind, s situation) []rule {
	if s.shared && implementation(k, byDirect) != nil {
		return []rule{{0, byDirect}}
	}
	switch k {
	case kindAllReduce:
		switch {
		case s.ranks == 2 && s.hosts == 1:
			return []rule{{128 << 10, byExchange}, {0, byPairs}} // above, adding the whole operand on both ranks costs more than a 2nd step
		case s.ranks == 2:
			return []rule{{128 << 10, byExchange}, {0, byRing}}
		case s.ranks <= 8 && s.hosts == 1:
			return []rule{{128 << 10, byDoubling}, {0, byPairs}}
		case s.several():
			return []rule{{128 << 10, byDoubling}, {0, byHierarchy}}
		}
		return []rule{{128 << 10, byDoubling}, {1 << 20, byHalving}, {0, byRing}}
	case kindReduceScatter:
		switch {
		case s.several():
			return []rule{{64 << 10, byPairs}, {0, byHierarchy}}
		case s.hosts > 1:
			return []rule{{64 << 10, byPairs}, {0, byRing}}
		}
		return []rule{{0, byPairs}}
	case kindAllGather, kindAllGatherV:
		if s.several() {
			return []rule{{256 << 10, byDoubling}, {0, byHierarchy}}
		}
		return []rule{{256 << 10, byDoubling}, {0, byRing}}
	case kindBroadcast, kindReduce:
		switch {
		case s.several():
			return []rule{{0, byHierarchy}}
		case s.ranks == 2:
			return []rule{{0, byTree}}
		}
		return []rule{{256 << 10, byTree}, {0, byRing}}
	case kindGather, kindScatter:
		if s.ranks > 8 {
			return []rule{{4 << 10, byTree}, {0, byPairs}} // limit in bytes of one part
		}
		return []rule{{0, byPairs}}
	case kindAllToAll, kindAllToAllV:
		if k == kindAllToAll && s.ranks >= 8 { // log2 N messages instead of N-1, with more bytes
			return []rule{{s.ranks << 10, byDoubling}, {0, byPairs}}
		}
		return []rule{{0, byPairs}}
	case kindBarrier:
		return []rule{{0, byDoubling}}
	}
	return nil
}

// defaults returns the default rules of this group.
func (g *Group) defaults() *ruleSet {
	hosts := g.hosts
	if g.hosting == nil { // a host has too many ranks
		hosts = g.size
	}
	return defaultRules(situation{ranks: g.size, hosts: hosts, shared: g.share.whole(g.size)})
}

// method returns the algorithm of an operation: the configured one if the operation has it, else
// the algorithm of the rule for this size.
func (g *Group) method(k kind, bytes int) algorithm {
	if k == kindSharded {
		return byDirect // the only algorithm
	}
	if g.named != byRules && implementation(k, g.named) != nil {
		return g.named
	}
	return g.rules.Load().choose(k, bytes)
}

// Choice returns the algorithm that the group uses for op, such as "allreduce", with an operand of
// this many bytes. The result is empty for an unknown operation, or one with a single algorithm.
func (g *Group) Choice(op string, bytes int) string {
	k := slices.Index(kindNames[:], op)
	if k < 0 {
		return ""
	}
	return g.method(kind(k), bytes).String()
}

// Explain returns lines of text with the algorithm of each operation, by the bytes of its operand
// (of one part in gather and scatter), and the source of the rules.
func (g *Group) Explain() string {
	t := g.rules.Load()
	why := "by the default rules"
	if g.tuned.Load() != nil {
		why = "by tuned rules"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s, %s", quantity.Count(g.size, "rank"), quantity.Count(g.hosts, "host"), why)
	if g.named != byRules {
		fmt.Fprintf(&b, "; %v wherever an operation has it", g.named)
	}
	for k := range kindSend {
		fmt.Fprintf(&b, "\n%-13s ", k)
		rules := t[k]
		if g.named != byRules && implementation(k, g.named) != nil {
			rules = []rule{{0, g.named}}
		}
		for i, r := range rules {
			switch {
			case r.upTo > 0:
				fmt.Fprintf(&b, "%v to %s, ", r.method, byteText(r.upTo))
			case i > 0:
				fmt.Fprintf(&b, "then %v", r.method)
			default:
				fmt.Fprint(&b, r.method)
			}
		}
	}
	b.WriteByte('\n')
	return b.String()
}

func byteText(n int) string {
	switch {
	case n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// Link is the cost of a message between two ranks: LatencySeconds, plus bytes divided by
// BytesPerSecond.
type Link struct {
	LatencySeconds float64 `json:"latency_seconds"`
	BytesPerSecond float64 `json:"bytes_per_second"`
}

// Profile is the rules that Tune made for a group of Ranks on Hosts, and the measurements. The
// rules affect the order of sums: runs with the same profile have the same bits.
type Profile struct {
	Ranks    int  `json:"ranks"`
	Hosts    int  `json:"hosts"`
	SameHost Link `json:"same_host"`  // link between ranks of one host; zero: no such ranks
	Between  Link `json:"other_host"` // link between ranks of two hosts; zero: one host
	// AddBytesPerSecond is a rank's speed of adding operands. 0 means unlimited.
	AddBytesPerSecond float64 `json:"add_bytes_per_second,omitempty"`
	Rules             Rules   `json:"rules"`
}

// Validate returns all errors of p together.
func (p Profile) Validate() error {
	_, err := p.Rules.ruleSet(p.Ranks)
	return err
}
