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
