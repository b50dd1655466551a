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
	tuneBytes  = 4 << 20 // bytes that two ranks exchange simultaneously
	tuneSwaps  = 8
	tuneMost   = 1 << 30 // bytes of the longest operand with a separate rule
	maxProfile = 1 << 20 // maximum bytes of a profile as text
)

// Tune measures the group's links, and returns the rules that the formulas of docs/costs.md derive.
// It measures links within a host and between two hosts: the time of short messages back and forth,
// the time of long messages in both directions, and a rank's speed of addition, with all ranks
// adding simultaneously as in an operation. All ranks must call Tune together, with no operation in
// flight; the call takes some tenths of a second. All ranks return the profile that rank 0
// computes. The group's rules do not change: see Use.
//
// Measurements differ from run to run, and with them possibly the order of sums. A reproducible run
// names a saved Profile.
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

// neighbours returns two adjacent ranks of the ring: of one host if same, else of two hosts.
func (g *Group) neighbours(same bool) (a, b int, ok bool) {
	order := g.ring.ranks
	for i := 1; i < len(order); i++ {
		if (g.hostOf[order[i-1]] == g.hostOf[order[i]]) == same {
			return order[i-1], order[i], true
		}
	}
	return 0, 0, false
}

// measureLink measures the link between a and b; all ranks return a's measurement.
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

// timeAdding returns the speed, in bytes per second, of adding one operand to another in this rank.
// The slices exceed a core's nearest caches, like the operands for which the speed matters.
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

// add returns the time of addition, in seconds per byte; 0 if p has no measurement.
func (p Profile) add() float64 {
	if p.AddBytesPerSecond > 0 {
		return 1 / p.AddBytesPerSecond
	}
	return 0
}

// rules returns the fastest algorithms for the measured links.
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

// flat is the formulas of an algorithm that ignores hosts, and its traffic over a host's wire.
type flat struct {
	formulas
	wire float64 // bytes over a host's wire, in K
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

// even returns the kind for parts of equal lengths that has the formulas for k.
func (k kind) even() kind {
	switch k {
	case kindAllGatherV:
		return kindAllGather
	case kindAllToAllV:
		return kindAllToAll
	}
	return k
}

// ringBonus is the largest predicted time, relative to the ring's, at which another algorithm
// replaces the ring between hosts. By the formulas equal bytes take equal times. But a ring sends
// to one neighbour without a pause, while TCP starts slowly with each new partner: at 20 and 100
// Mbit/s halving and pairwise took 1.3 to 1.6 times the ring's time.
const ringBonus = 0.9

// quickest returns the algorithm of k with the least time; the ring if none is clearly faster; the
// hierarchical one only if hosts reports that the group supports it.
func (p Profile) quickest(all []flat, k kind, bytes int, hosts bool) (best algorithm) {
	least, ring, whole := time.Duration(math.MaxInt64), time.Duration(0), bytes
	if k == kindGather || k == kindScatter {
		whole *= p.Ranks // rules count the bytes of one part
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

// slowest returns the slowest link, which limits an algorithm that ignores hosts.
func (p Profile) slowest() Link {
	if p.Hosts > 1 {
		return p.Between
	}
	return p.SameHost
}

// hierarchical predicts the time of the hierarchical algorithm, on hosts with equal numbers of
// ranks, as the sum of the phases within and between hosts. ok is false if the group has no
// hierarchy. The ranks of a host share its wire and, except in rooted operations, divide the
// additions of values from other hosts. The prediction assumes messages within a host; shared
// memory is faster.
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
	case k != kindAllReduce: // one message per part of a host
		took = time.Duration(float64((p.Hosts-1)*(local-1)) * p.SameHost.LatencySeconds * float64(time.Second))
	}
	took += formulasOf(k, within).over(p.SameHost, p.add(), local, 0, float64(bytes))
	return took + formulasOf(k, between).over(p.Between, add, p.Hosts, 0, float64(bytes)), true
}

// treeOrChain returns the algorithm among the leaders of a hierarchical broadcast or reduce.
func treeOrChain(ranks, bytes int) algorithm {
	if chained(ranks, bytes) {
		return byRing
	}
	return byTree
}

// agree sends rank 0's profile to all ranks.
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
