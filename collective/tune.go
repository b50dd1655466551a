package collective

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	tuneRounds = 200     // round trips of a byte
	tuneBytes  = 4 << 20 // exchanged by two ranks at once
	tuneSwaps  = 8
	tuneMost   = 1 << 30 // bytes of the longest operand that is told apart
	maxProfile = 1 << 20 // bytes of a profile as text
)

// Tune measures the group's links and returns the rules that the formulas of
// docs/costs.md make of them: for each class of links, within a host and between
// two, the time of short messages back and forth and of long ones both ways, and the
// time that a rank takes to add, all at once as in an operation. All
// ranks must call it together, with no operation in flight; it takes some tenths of
// a second. Rank 0 decides, and all ranks get the same. It changes nothing: see Use.
//
// What is measured differs from run to run, and with it may the order of sums; a run
// that is to be repeated names a saved Profile.
func Tune(g *Group) (Profile, error) {
	p := Profile{Ranks: g.size, Hosts: g.hosts}
	var err error
	if a, b, ok := g.neighbours(true); ok {
		if p.SameHost, err = measureLink(g, a, b); err != nil {
			return Profile{}, err
		}
	}
	if a, b, ok := g.neighbours(false); ok {
		if p.Between, err = measureLink(g, a, b); err != nil {
			return Profile{}, err
		}
	}
	if g.size > 1 {
		p.AddBytesPerSecond = g.timeAdding()
		p.Rules = p.rules(g)
	}
	return g.agree(p)
}

// neighbours returns two ranks next to each other in the ring of hosts, of the same
// host or of two.
func (g *Group) neighbours(same bool) (a, b int, ok bool) {
	order := g.ring.ranks
	for i := 1; i < len(order); i++ {
		if (g.hostOf[order[i-1]] == g.hostOf[order[i]]) == same {
			return order[i-1], order[i], true
		}
	}
	return 0, 0, false
}

// measureLink measures the link between a and b; what a sees holds.
func measureLink(g *Group, a, b int) (Link, error) {
	seen := make([]float64, 2)
	var err error
	switch g.rank {
	case a:
		seen[0], seen[1], err = timeLink(g, b, true)
	case b:
		_, _, err = timeLink(g, a, false)
	}
	if err == nil {
		err = Broadcast(g, seen, a)
	}
	return Link{LatencySeconds: seen[0], BytesPerSecond: seen[1]}, err
}

func timeLink(g *Group, peer int, first bool) (latency, bandwidth float64, err error) {
	short := make([]uint8, 1)
	trips := make([]float64, tuneRounds)
	for i := range trips {
		start := time.Now()
		if first {
			err = sendViaMesh(g, short, peer, true).Wait()
		}
		if err == nil {
			err = Receive(g, short, peer)
		}
		if err == nil && !first {
			err = sendViaMesh(g, short, peer, true).Wait()
		}
		if err != nil {
			return 0, 0, err
		}
		trips[i] = time.Since(start).Seconds() / 2
	}
	in, out := make([]uint8, tuneBytes), make([]uint8, tuneBytes)
	swaps := make([]float64, tuneSwaps)
	for i := range swaps {
		start := time.Now()
		w := sendViaMesh(g, out, peer, false)
		err := Receive(g, in, peer)
		if sent := w.Wait(); err == nil {
			err = sent
		}
		if err != nil {
			return 0, 0, err
		}
		swaps[i] = time.Since(start).Seconds()
	}
	slices.Sort(trips)
	slices.Sort(swaps)
	return max(trips[tuneRounds/2], 1e-9), tuneBytes / max(swaps[tuneSwaps/2], 1e-9), nil
}

// timeAdding is how many bytes of an operand this rank adds to another in a second.
// The slices are longer than what a core keeps close, as those are for which it
// matters.
func (g *Group) timeAdding() float64 {
	sum, x := make([]float32, tuneBytes/4), make([]float32, tuneBytes/4)
	times := make([]float64, tuneSwaps)
	for i := range times {
		start := time.Now()
		g.kernels.Add(sum, x)
		times[i] = time.Since(start).Seconds()
	}
	slices.Sort(times)
	return tuneBytes / max(times[tuneSwaps/2], 1e-9)
}

// add is how long adding takes, in seconds a byte; nothing where it was not measured.
func (p Profile) add() float64 {
	if p.AddBytesPerSecond > 0 {
		return 1 / p.AddBytesPerSecond
	}
	return 0
}

// rules are what the links make quickest.
func (p Profile) rules(g *Group) Rules {
	fixed, t, flat := g.defaults(), new(ruleSet), flatOn(g.hostOf)
	for k := range kindSend {
		if len(fixed[k]) == 1 && fixed[k][0].method == byDirect {
			t[k] = fixed[k] // no links are involved
			continue
		}
		hosts := g.hosting != nil && g.hosting.carries(k)
		for bytes := 1; bytes <= tuneMost; bytes *= 2 {
			m := p.quickest(flat, k, bytes, hosts)
			if last := len(t[k]) - 1; last >= 0 && t[k][last].method == m {
				t[k][last].upTo = bytes
			} else {
				t[k] = append(t[k], rule{bytes, m})
			}
		}
		t[k][len(t[k])-1].upTo = 0
	}
	return rulesOf(t, kindAllReduce, kindReduceScatter, kindAllGather, kindAllGatherV, kindBroadcast, kindReduce,
		kindGather, kindScatter, kindAllToAll, kindAllToAllV, kindBarrier)
}

// flat is an algorithm that knows of no hosts, and what it sends over the wire of one.
type flat struct {
	formulas
	wire float64 // in K
}

func flatOn(hosts []int) []flat {
	var out []flat
	for _, f := range allFormulas() {
		if fits(f.method, len(hosts)) == nil && f.method != byNaive {
			out = append(out, flat{f, f.hostTraffic(hosts)})
		}
	}
	return out
}

// even is the operation whose formulas another one of parts that differ in length has.
func (k kind) even() kind {
	switch k {
	case kindAllGatherV:
		return kindAllGather
	case kindAllToAllV:
		return kindAllToAll
	}
	return k
}

// ringBonus is what another algorithm's time must be below, of the ring's, to be taken
// between hosts. The formulas say that both take what their bytes do, but the ring keeps one
// stream to one neighbour full, while TCP has to fill the link anew for each partner:
// at 20 and 100 Mbit/s halving and pairs took 1.3 to 1.6 times as long as the ring.
const ringBonus = 0.9

// quickest returns the algorithm of k that takes the least time, the ring where none is
// clearly faster; the hierarchical one only if hosts says that it can be had.
func (p Profile) quickest(all []flat, k kind, bytes int, hosts bool) (best algorithm) {
	least, ring, whole := time.Duration(math.MaxInt64), time.Duration(0), bytes
	if k == kindGather || k == kindScatter {
		whole *= p.Ranks // tables count a part
	}
	for _, f := range all {
		if f.kind != k.even() || implementation(k, f.method) == nil {
			continue
		}
		took := f.over(p.slowest(), p.add(), p.Ranks, f.wire, float64(whole))
		if took < least || took == least && f.method == byExchange {
			least, best = took, f.method
		}
		if f.method == byRing {
			ring = took
		}
	}
	if p.Hosts > 1 && ring > 0 && float64(least) > ringBonus*float64(ring) {
		least, best = ring, byRing
	}
	if took, ok := p.hierarchical(k.even(), whole); hosts && ok && took < least {
		best = byHierarchy
	}
	return best
}

// slowest is the link that bounds an algorithm for which all links are alike.
func (p Profile) slowest() Link {
	if p.Hosts > 1 {
		return p.Between
	}
	return p.SameHost
}

// hierarchical predicts an operation by the hierarchical algorithm, on hosts of equal
// numbers of ranks, as what goes on within each and between them, one after the other;
// ok is false where there is no hierarchy. The ranks of a host share its wire and, but in
// rooted operations, what is to be added between hosts. Within a host all goes by
// messages here: where its ranks share memory, it takes less.
func (p Profile) hierarchical(k kind, bytes int) (took time.Duration, ok bool) {
	if p.Hosts < 2 || p.Hosts >= p.Ranks || implementation(k, byHierarchy) == nil {
		return 0, false
	}
	local := (p.Ranks + p.Hosts - 1) / p.Hosts
	within, between, add := byPairs, byRing, p.add()/float64(local)
	switch {
	case k.rooted():
		within, between, add = treeOrChain(local, bytes), treeOrChain(p.Hosts, bytes), p.add()
	case k == kindAllReduce && p.Hosts == 2:
		between = byExchange
	case k != kindAllReduce: // parts go one by one, a host's each
		took = time.Duration(float64((p.Hosts-1)*(local-1)) * p.SameHost.LatencySeconds * float64(time.Second))
	}
	took += formulasOf(k, within).over(p.SameHost, p.add(), local, 0, float64(bytes))
	return took + formulasOf(k, between).over(p.Between, add, p.Hosts, 0, float64(bytes)), true
}

// treeOrChain is what a hierarchical broadcast or reduce takes among so many ranks.
func treeOrChain(ranks, bytes int) algorithm {
	if chained(ranks, bytes) {
		return byRing
	}
	return byTree
}

// agree hands rank 0's profile to all.
func (g *Group) agree(p Profile) (Profile, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return Profile{}, fmt.Errorf("collective: encoding a profile: %w", err)
	}
	size := []int64{int64(len(text))}
	if err := Broadcast(g, size, 0); err != nil {
		return Profile{}, err
	}
	if g.rank != 0 {
		if size[0] < 0 || size[0] > maxProfile {
			return Profile{}, fmt.Errorf("collective: rank 0's profile has %d bytes, want at most %d", size[0], maxProfile)
		}
		text = make([]byte, size[0])
	}
	if err := Broadcast(g, text, 0); err != nil {
		return Profile{}, err
	}
	var out Profile
	if err := json.Unmarshal(text, &out); err != nil {
		return Profile{}, fmt.Errorf("collective: rank 0's profile: %w", err)
	}
	return out, nil
}
