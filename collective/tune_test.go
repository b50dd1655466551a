package collective

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/transport/mem"
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
		want  method
	}{
		{[]int{0, 0}, 1, byExchange},
		{make([]int, 8), 8, byDoubling},
		{make([]int, 8), 1 << 26, byHalving},
		{[]int{0, 0, 0, 0, 1, 1, 1, 1}, 1 << 26, byHierarchy},
	} {
		p := Profile{Ranks: len(c.hosts), Hosts: distinct(c.hosts), SameHost: near, Between: far}
		g, err := New(mem.New(len(c.hosts))[0], Config{Hosts: c.hosts})
		if err != nil {
			t.Fatal(err)
		}
		p.Rules = p.rules(g)
		tab, err := p.table()
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
		want         method
	}{
		{2, 1 << 14, 0, byExchange}, {2, 1 << 14, 1e9, byRing}, {2, 64, 1e9, byExchange},
		{8, 1 << 13, 0, byDoubling}, {8, 1 << 13, 1e9, byHalving}, {8, 64, 1e9, byDoubling},
	} {
		p := Profile{Ranks: c.ranks, Hosts: 1, SameHost: near, AddBytesPerSecond: c.add}
		if got := p.quickest(allFigures(), kindAllReduce, kindAllReduce, c.bytes); got != c.want {
			t.Errorf("%d ranks, %d bytes, adding %v bytes a second: %v, want %v", c.ranks, c.bytes, c.add, got, c.want)
		}
	}
	all := func(add float64) (out [2]float64) {
		p := Profile{Ranks: 8, Hosts: 2, SameHost: near, Between: near, AddBytesPerSecond: add}
		took, _ := p.hierarchical(1 << 20)
		for _, f := range allFigures() {
			if f.kind == kindAllGather && f.method == byRing {
				out[1] = f.over(near, p.add(), 8, 1<<20).Seconds()
			}
		}
		out[0] = took.Seconds()
		return out
	}
	free, slow := all(0), all(1e9)
	// within a host 3/4 of the operand is added, between the two half of a quarter
	if more := slow[0] - free[0]; more < 0.874*(1<<20)*1e-9 || more > 0.876*(1<<20)*1e-9 {
		t.Errorf("the hierarchy takes %v s longer, want 7/8 of the operand", more)
	}
	if free[1] != slow[1] {
		t.Errorf("an allgather takes %v s where adding is free and %v where it is not", free[1], slow[1])
	}
}
