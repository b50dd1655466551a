package collective

import (
	"fmt"
	"slices"
	"strings"
)

// The choice of an algorithm: rules that a group makes once, from what is the same on
// every rank.

// situation is what the default rules depend on.
type situation struct {
	ranks int
	hosts int // how many hosts the ranks are on
	// shared says that all ranks share memory.
	shared bool
}

// several says that there are hosts, and several ranks on one.
func (s situation) several() bool { return 1 < s.hosts && s.hosts < s.ranks }

// rule is what carries out operations of up to so many bytes.
type rule struct {
	upTo   int // of the operand; 0: all that are longer than the rule before says
	method algorithm
}

// ruleSet has the rules of each operation, the shortest operands first.
type ruleSet [kinds][]rule

func (t *ruleSet) choose(k kind, bytes int) algorithm {
	for _, r := range t[k] {
		if bytes <= r.upTo || r.upTo == 0 {
			return r.method
		}
	}
	return byRules // of send and receive
}

// defaultRules hold where nothing was tuned: results depend on the order of
// sums, so that runs are only reproducible when nothing that is measured has a
// say. Its bounds were measured over loopback TCP with 2 to 4 ranks.
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
			return []rule{{128 << 10, byExchange}, {0, byPairs}} // beyond, each adding all costs more than a step
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
			return []rule{{4 << 10, byTree}, {0, byPairs}} // bytes of one part
		}
		return []rule{{0, byPairs}}
	case kindAllToAll, kindAllToAllV:
		if k == kindAllToAll && s.ranks >= 8 { // log2 N messages in place of N-1, of more bytes
			return []rule{{s.ranks << 10, byDoubling}, {0, byPairs}}
		}
		return []rule{{0, byPairs}}
	case kindBarrier:
		return []rule{{0, byDoubling}}
	}
	return nil
}

// defaults are the rules of this group unless it was tuned.
func (g *Group) defaults() *ruleSet {
	hosts := g.hosts
	if g.hosting == nil { // too many ranks on one
		hosts = g.size
	}
	return defaultRules(situation{ranks: g.size, hosts: hosts, shared: g.share.whole(g.size)})
}

// method is the algorithm of an operation: the configured one where the
// operation has it, else what the rules say.
func (g *Group) method(k kind, bytes int) algorithm {
	if k == kindSharded {
		return byDirect // there is no other
	}
	if g.named != byRules && implementation(k, g.named) != nil {
		return g.named
	}
	return g.rules.Load().choose(k, bytes)
}

// Choice returns the algorithm of an operation of so many bytes, such as
// "allreduce"; empty where there is no such operation, or no choice.
func (g *Group) Choice(op string, bytes int) string {
	k := slices.Index(kindNames[:], op)
	if k < 0 {
		return ""
	}
	return g.method(kind(k), bytes).String()
}

// Explain describes in lines of text which algorithm carries out which operation, by
// the bytes of its operand (of one part in gather and scatter), and why.
func (g *Group) Explain() string {
	t := g.rules.Load()
	why := "by the default rules"
	if g.tuned.Load() != nil {
		why = "by tuned rules"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s, %s", counted(g.size, "rank"), counted(g.hosts, "host"), why)
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

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
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

// Link is what messages cost between two ranks: Latency, plus one part in
// BytesPerSecond for each byte.
type Link struct {
	LatencySeconds float64 `json:"latency_seconds"`
	BytesPerSecond float64 `json:"bytes_per_second"`
}

// Profile is the rules that Tune made for a group of Ranks on Hosts, and what it measured.
// Results depend on the order of sums and so on the rules: runs with the same profile give
// the same bits.
type Profile struct {
	Ranks    int  `json:"ranks"`
	Hosts    int  `json:"hosts"`
	SameHost Link `json:"same_host"`  // between ranks of one host; zero: there are none
	Between  Link `json:"other_host"` // between ranks of two hosts; likewise
	// AddBytesPerSecond is how fast a rank adds operands; 0: in no time.
	AddBytesPerSecond float64 `json:"add_bytes_per_second,omitempty"`
	Rules             Rules   `json:"rules"`
}

// Validate reports all faults of p.
func (p Profile) Validate() error {
	_, err := p.Rules.ruleSet(p.Ranks)
	return err
}
