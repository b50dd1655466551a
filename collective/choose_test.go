package collective

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/transport/mem"
)

// The default rules do not change by accident: results of earlier runs depend on
// it.
func TestExplain(t *testing.T) {
	for _, c := range []struct {
		ranks int
		cfg   Config
		want  string
	}{
		{2, Config{}, `2 ranks on 1 host, by the default rules
allreduce     exchange to 128 KiB, then pairwise
broadcast     tree
allgather     doubling to 256 KiB, then ring
barrier       doubling
allgatherv    doubling to 256 KiB, then ring
reducescatter pairwise
reduce        tree
gather        pairwise
scatter       pairwise
alltoall      pairwise
alltoallv     pairwise
`},
		{4, Config{Hosts: []int{0, 0, 1, 1}}, `4 ranks on 2 hosts, by the default rules
allreduce     doubling to 128 KiB, then hierarchical
broadcast     hierarchical
allgather     doubling to 256 KiB, then hierarchical
barrier       doubling
allgatherv    doubling to 256 KiB, then hierarchical
reducescatter pairwise to 64 KiB, then hierarchical
reduce        hierarchical
gather        pairwise
scatter       pairwise
alltoall      pairwise
alltoallv     pairwise
`},
		{9, Config{Algorithm: Halving}, `9 ranks on 1 host, by the default rules; halving wherever an operation has it
allreduce     halving
broadcast     tree to 256 KiB, then ring
allgather     doubling to 256 KiB, then ring
barrier       doubling
allgatherv    doubling to 256 KiB, then ring
reducescatter halving
reduce        tree to 256 KiB, then ring
gather        tree to 4 KiB, then pairwise
scatter       tree to 4 KiB, then pairwise
alltoall      doubling to 9 KiB, then pairwise
alltoallv     pairwise
`},
	} {
		g, err := New(mem.New(c.ranks)[0], c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.Explain(); got != c.want {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
		g.Close()
	}
}

// A profile replaces the rules that it has, on all ranks, and one that cannot be used
// is refused.
func TestUse(t *testing.T) {
	good := Profile{Ranks: 3, Hosts: 1, Rules: []Rule{
		{"allreduce", 100, Tree}, {"allreduce", 0, Halving}, {"reducescatter", 0, Ring},
	}}
	onRanks(t, 3, Config{Profile: &good}, func(g *Group) error {
		if want := "\nallreduce     tree to 100 B, then halving\n"; !strings.Contains(g.Explain(), want) || !strings.Contains(g.Explain(), "by tuned rules") {
			return fmt.Errorf("%q is not in %s", want, g.Explain())
		}
		err := errors.Join((&trial[float32]{g: g}).all([]int{5, 200}), g.Use(Profile{Ranks: 3, Hosts: 1, Rules: []Rule{{"allreduce", 0, Pairwise}}}))
		return errors.Join(err, (&trial[float32]{g: g}).all([]int{5, 200}))
	})
	for want, p := range map[string]Profile{
		"3 ranks on 2 hosts":              {Ranks: 3, Hosts: 2},
		`no operation "sum"`:              {Ranks: 3, Hosts: 1, Rules: []Rule{{"sum", 0, Ring}}},
		`barrier has no algorithm "ring"`: {Ranks: 3, Hosts: 1, Rules: []Rule{{"barrier", 0, Ring}}},
		"two ranks":                       {Ranks: 3, Hosts: 1, Rules: []Rule{{"allreduce", 0, Exchange}}},
		"does not follow":                 {Ranks: 3, Hosts: 1, Rules: []Rule{{"allreduce", 5, Ring}, {"allreduce", 5, Tree}, {"allreduce", 0, Tree}}},
		"no bound":                        {Ranks: 3, Hosts: 1, Rules: []Rule{{"allreduce", 5, Ring}}},
		"cannot use":                      {Ranks: 3, Hosts: 1, Rules: []Rule{{"allreduce", 0, Direct}}},
	} {
		if _, err := New(mem.New(3)[0], Config{Profile: &p}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", p, err, want)
		}
	}
}

// A profile from wherever it may come is refused, or has an algorithm for every length of
// the operations that it has rules for.
func FuzzProfile(f *testing.F) {
	f.Add(`{"ranks":3,"hosts":1,"rules":"allreduce=tree:100,ring; barrier=doubling"}`)
	f.Add(`{"ranks":-1,"rules":"send=exchange:-5; =; barrier=naive"}`)
	f.Fuzz(func(t *testing.T, text string) {
		var p Profile
		if json.Unmarshal([]byte(text), &p) != nil {
			return
		}
		rules, err := p.Rules.ruleSet(p.Ranks)
		if (err == nil) != (p.Validate() == nil) {
			t.Errorf("%s: %v, Validate says %v", text, err, p.Validate())
		}
		for k := range kinds {
			for _, bytes := range []int{0, 1, 1 << 20, math.MaxInt} {
				if err == nil && len(rules[k]) > 0 && implementation(k, rules.choose(k, bytes)) == nil {
					t.Errorf("%s: nothing carries %v of %d bytes", text, k, bytes)
				}
			}
		}
	})
}

// Ranks with different profiles are told.
func TestProfilesDiffer(t *testing.T) {
	meshes := mem.New(2)
	errs := make(chan error, 2)
	for r, m := range meshes {
		go func() {
			g, err := New(m, Config{Profile: &Profile{Ranks: 2, Hosts: 1, Rules: []Rule{{"allreduce", 0, []string{Tree, Ring}[r]}}}})
			if err == nil {
				err = AllReduce(g, make([]float32, 100), Sum)
			}
			errs <- err
		}()
	}
	for range 2 {
		if err := <-errs; err == nil || !strings.Contains(err.Error(), "by tree") || !strings.Contains(err.Error(), "by ring") {
			t.Error(err)
		}
	}
}

func TestChoice(t *testing.T) {
	for _, c := range []struct {
		ranks int
		op    string
		bytes int
		want  string
	}{
		{3, "allreduce", 0, Doubling}, {3, "allreduce", 128 << 10, Doubling}, {3, "allreduce", 128<<10 + 1, Pairwise},
		{9, "allreduce", 128<<10 + 1, Halving}, {9, "allreduce", 1<<20 + 1, Ring},
		{3, "send", 100, ""}, {3, "allsum", 100, ""},
	} {
		g, err := New(mem.New(c.ranks)[0], Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		if got := g.Choice(c.op, c.bytes); got != c.want {
			t.Errorf("%s of %d bytes goes by %q, want %q", c.op, c.bytes, got, c.want)
		}
	}
}
