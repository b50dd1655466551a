package collective

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/transport/mem"
)

// All ranks get the same profile, of all links that there are, and can use it.
func TestTune(t *testing.T) {
	for _, hosts := range [][]int{{0}, {0, 0}, {0, 1}, {0, 0, 1}, {0, 1, 0, 1, 2}} {
		profiles := make([]Profile, len(hosts))
		onRanks(t, len(hosts), Config{Hosts: hosts}, func(g *Group) error {
			p, err := Tune(g)
			if err != nil {
				return err
			}
			profiles[g.Rank()] = p
			if (p.AddBytesPerSecond > 0) != (g.Size() > 1) {
				return fmt.Errorf("%d ranks add %v bytes a second", g.Size(), p.AddBytesPerSecond)
			}
			if err := errors.Join(p.Validate(), g.Use(p)); err != nil {
				return fmt.Errorf("%+v: %w", p, err)
			}
			return (&trial[float32]{g: g}).all([]int{0, 3, 300})
		})
		for r, p := range profiles {
			if !reflect.DeepEqual(p, profiles[0]) {
				t.Errorf("hosts %v: rank %d has %+v, rank 0 %+v", hosts, r, p, profiles[0])
			}
		}
		sorted := slices.Sorted(slices.Values(hosts))
		if p := profiles[0]; (p.SameHost != Link{}) != (len(slices.Compact(sorted)) < len(hosts)) || (p.Between != Link{}) != (distinct(hosts) > 1) {
			t.Errorf("hosts %v: links %+v and %+v", hosts, p.SameHost, p.Between)
		}
	}
}

// What the formulas make of links: few steps for short slices, few bytes for long
// ones, and the hierarchy where links between hosts are slow.
func TestRulesOfLinks(t *testing.T) {
	near, far := Link{1e-6, 1e10}, Link{100e-6, 1e8}
	for _, c := range []struct {
		hosts []int
		bytes int
		want  algorithm
	}{
		{[]int{0, 0}, 1, byExchange},
		{make([]int, 8), 8, byDoubling},
		{make([]int, 8), 1 << 26, byHalving},
		{[]int{0, 0, 0, 0, 1, 1, 1, 1}, 1 << 26, byHierarchy},
		{[]int{0, 1, 2, 3}, 4 << 10, byDoubling}, // 200 us in place of 600
		{[]int{0, 1, 2, 3}, 64 << 10, byHalving}, // 1.4 ms in place of 1.6
		{[]int{0, 1, 2, 3}, 1 << 20, byRing},     // 15.9 ms in place of 16.1 do not pay
		{[]int{0, 1}, 1 << 26, byRing},
	} {
		p := Profile{Ranks: len(c.hosts), Hosts: distinct(c.hosts), SameHost: near, Between: far}
		g, err := New(mem.New(len(c.hosts))[0], Config{Hosts: c.hosts})
		if err != nil {
			t.Fatal(err)
		}
		p.Rules = p.rules(g)
		tab, err := p.Rules.ruleSet(p.Ranks)
		if err != nil {
			t.Fatal(err)
		}
		if got := tab.choose(kindAllReduce, c.bytes); got != c.want {
			t.Errorf("hosts %v, %d bytes: %v, want %v; %+v", c.hosts, c.bytes, got, c.want, p.Rules)
		}
		g.Close()
	}
}

// Adding counts: of two algorithms that send as much, the one whose ranks add less is
// taken, and one that sends in fewer steps loses where each rank adds everything.
func TestRulesOfAdding(t *testing.T) {
	near := Link{1e-6, 1e10}
	for _, c := range []struct {
		ranks, bytes int
		add          float64
		want         algorithm
	}{
		{2, 1 << 14, 0, byExchange}, {2, 1 << 14, 1e9, byRing}, {2, 64, 1e9, byExchange},
		{8, 1 << 13, 0, byDoubling}, {8, 1 << 13, 1e9, byHalving}, {8, 64, 1e9, byDoubling},
	} {
		p := Profile{Ranks: c.ranks, Hosts: 1, SameHost: near, AddBytesPerSecond: c.add}
		if got := p.quickest(flatOn(make([]int, c.ranks)), kindAllReduce, c.bytes, false); got != c.want {
			t.Errorf("%d ranks, %d bytes, adding %v bytes a second: %v, want %v", c.ranks, c.bytes, c.add, got, c.want)
		}
	}
	all := func(add float64) (out [2]float64) {
		p := Profile{Ranks: 8, Hosts: 2, SameHost: near, Between: near, AddBytesPerSecond: add}
		took, _ := p.hierarchical(kindAllReduce, 1<<20)
		for _, f := range allFormulas() {
			if f.kind == kindAllGather && f.method == byRing {
				out[1] = f.over(near, p.add(), 8, 0, 1<<20).Seconds()
			}
		}
		out[0] = took.Seconds()
		return out
	}
	free, slow := all(0), all(1e9)
	// within a host 3/4 of the operand is added; two hosts swap a quarter, and each adds all of it
	if more := slow[0] - free[0]; more < 0.999*(1<<20)*1e-9 || more > 1.001*(1<<20)*1e-9 {
		t.Errorf("the hierarchy takes %v s longer, want the whole operand", more)
	}
	if free[1] != slow[1] {
		t.Errorf("an allgather takes %v s where adding is free and %v where it is not", free[1], slow[1])
	}
}

// The hierarchy is weighed for every operation that has it, with what the others send
// over the wires of hosts: it wins where links between hosts are slow, and where links are
// alike only against what crosses from host to host over and over.
func TestRulesOfHosts(t *testing.T) {
	near, far := Link{1e-6, 1e10}, Link{100e-6, 1e8}
	blocks, mixed, uneven := []int{0, 0, 0, 0, 1, 1, 1, 1}, []int{0, 1, 0, 1, 0, 1, 0, 1}, []int{0, 0, 0, 1, 1, 2, 0, 0}
	const long = 1 << 26
	for _, c := range []struct {
		op      string
		hosts   []int
		between Link
		bytes   int
		want    string
	}{
		{"allreduce", uneven, far, long, Hierarchical}, {"allreduce", blocks, near, long, Ring},
		{"reducescatter", blocks, far, long, Hierarchical}, {"reducescatter", mixed, far, 1 << 10, Hierarchical},
		{"reducescatter", blocks, near, long, Ring}, {"reducescatter", make([]int, 8), near, long, Halving},
		{"allgather", blocks, far, long, Hierarchical}, {"allgather", mixed, near, long, Ring}, // as long as doubling but for latency
		{"allgather", mixed, near, 1 << 12, Doubling},
		{"allgatherv", uneven, far, long, Hierarchical}, {"allgatherv", mixed, far, 1, Hierarchical},
		{"broadcast", blocks, far, 1, Hierarchical}, {"broadcast", blocks, near, long, Ring}, {"broadcast", mixed, near, long, Hierarchical},
		{"reduce", mixed, far, long, Hierarchical}, {"reduce", blocks, near, long, Ring}, {"reduce", Ranks(8), far, 1 << 20, Ring}, {"reduce", make([]int, 8), near, 1, Tree}, {"reduce", make([]int, 8), near, long, Ring},
		{"alltoall", blocks, far, long, Pairwise}, {"gather", blocks, far, long, Pairwise},
	} {
		g, err := New(mem.New(len(c.hosts))[0], Config{Hosts: c.hosts})
		if err != nil {
			t.Fatal(err)
		}
		p := Profile{Ranks: g.Size(), Hosts: g.Hosts(), SameHost: near, Between: c.between}
		p.Rules = p.rules(g)
		if err := g.Use(p); err != nil {
			t.Fatal(err)
		}
		if got := g.Choice(c.op, c.bytes); got != c.want {
			t.Errorf("%s of %d bytes, hosts %v, %v between them: %s, want %s", c.op, c.bytes, c.hosts, c.between, got, c.want)
		}
		g.Close()
	}
}

// Where the numbers of messages have no room for all parts, a hierarchical allgather would
// be a ring: it is not weighed.
func TestRulesOfManyHosts(t *testing.T) {
	var hosts []int
	for h := range 40 {
		for range 26 { // 26 slices of 40 hosts
			hosts = append(hosts, h)
		}
	}
	h := newHierarchy(hosts, 0)
	if h.carries(kindAllGather) || h.carries(kindReduceScatter) || !h.carries(kindAllReduce) || !h.carries(kindBroadcast) {
		t.Errorf("%d slices of %d hosts", h.slices, len(h.lists))
	}
}
