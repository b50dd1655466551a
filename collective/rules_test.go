package collective

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/transport/mem"
)

func TestRulesAsText(t *testing.T) {
	want := Rules{{"allreduce", 100, Tree}, {"allreduce", 128 << 10, Doubling}, {"allreduce", 0, Pairwise}, {"barrier", 0, Doubling}}
	const text = "allreduce=tree:100,doubling:128KiB,pairwise; barrier=doubling"
	var got Rules
	if err := got.UnmarshalText([]byte(text)); err != nil || !reflect.DeepEqual(got, want) || want.String() != text {
		t.Errorf("%q is read as %+v, %v, and written as %q", text, got, err, want)
	}
	mixed := Rules{want[0], want[3], want[1], want[2]} // one operation's need not stand together
	if mixed.String() != text {
		t.Errorf("%+v is written as %q", mixed, mixed)
	}
	if err := got.UnmarshalText(nil); err != nil || got != nil {
		t.Errorf("no text is read as %+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"allreduce":                              `"allreduce": want an operation and its algorithms`,
		"allreduce=":                             `rule 0: allreduce has no algorithm ""`,
		"allreduce=rng":                          `allreduce has no algorithm "rng"`,
		"barrier=ring":                           `barrier has no algorithm "ring"`,
		"allreduce=auto":                         `allreduce has no algorithm "auto"`,
		"send=ring":                              `there is no operation "send"`,
		"all=ring":                               `there is no operation "all"`,
		"allreduce=ring:4KiB":                    "the last rule of allreduce must have no bound",
		"allreduce=ring,tree":                    "up to 0 bytes of allreduce does not follow the rule before",
		"allreduce=ring:2KiB,tree:1KiB,doubling": "up to 1024 bytes of allreduce does not follow",
		"allreduce=ring:0,tree":                  `ring is taken up to "0": want a size such as 4KiB`,
		"allreduce=ring:-1,tree":                 `ring is taken up to "-1"`,
		"allreduce=ring; allreduce=tree":         `"allreduce=tree": allreduce is there twice`,
		"allreduce=ring;barrier=doubling":        `allreduce has no algorithm "ring;barrier=doubling"`,
		"allreduce=ring; ":                       `"": want an operation`,
	} {
		before := Rules{{"barrier", 0, Doubling}}
		got := slices.Clone(before)
		if err := got.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || !reflect.DeepEqual(got, before) {
			t.Errorf("%q is read as %v, %v: want an error with %q", text, got, err, want)
		}
	}
}

// What is read is written so that it is read the same.
func FuzzRules(f *testing.F) {
	for _, text := range []string{"", "allreduce=tree:100,doubling:128KiB,pairwise; barrier=doubling", "allgather=ring:1e3,doubling", "gather=tree:4KiB,pairwise; allreduce=direct", "allreduce=exchange"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var l, again Rules
		if l.UnmarshalText([]byte(text)) != nil {
			return
		}
		v := setting.Textual(&again)
		if err := v.Set(l.String()); err != nil || !reflect.DeepEqual(again, l) || v.String() != l.String() || strings.ContainsAny(l.String(), "\n\r\"'#") {
			t.Errorf("%q is written as %q and read again as %q, %v", text, l, again, err)
		}
	})
}

// A group that is told a tuned one's rules chooses as that does, and so do its duplicates.
func TestRulesOfATunedGroup(t *testing.T) {
	for _, hosts := range [][]int{{0}, {0, 0}, {0, 0, 1}, {0, 1, 0, 1, 2}} {
		var told [2]string
		var rules Rules
		onRanks(t, len(hosts), Config{Hosts: hosts}, func(g *Group) error {
			if len(g.Rules()) != 0 {
				t.Errorf("a new group was told %v", g.Rules())
			}
			p, err := Tune(g)
			if err == nil {
				err = g.Use(p)
			}
			if g.Rank() == 0 {
				told[0], rules = g.Explain(), g.Rules()
			}
			return err
		})
		var again Rules
		if err := again.UnmarshalText([]byte(rules.String())); err != nil {
			t.Fatal(err)
		}
		onRanks(t, len(hosts), Config{Hosts: hosts, Rules: again}, func(g *Group) error {
			d, err := g.Dup()
			if err != nil {
				return err
			}
			defer d.Close()
			if g.Rank() == 0 {
				told[1] = g.Explain()
			}
			if g.Explain() != d.Explain() || !reflect.DeepEqual(g.Rules(), rules) || !reflect.DeepEqual(d.Rules(), rules) {
				t.Errorf("hosts %v: told %v, has %v, a duplicate %v", hosts, rules, g.Rules(), d.Rules())
			}
			return nil
		})
		if len(rules) > 0 == (len(hosts) == 1) || len(hosts) > 1 && told[0] != told[1] {
			t.Errorf("hosts %v, rules %v:\n%s\nand then\n%s", hosts, rules, told[0], told[1])
		}
	}
}

func TestRulesThatDoNotFit(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Rules: Rules{{"allreduce", 0, Exchange}}}, "tuning.algorithms allreduce=exchange: rule 0: exchange: only for groups of two ranks, this group has 3"},
		{Config{Rules: Rules{{"allreduce", 0, Direct}}}, "tuning.algorithms allreduce=direct: allreduce has algorithm direct, which this group cannot use"},
		{Config{Rules: Rules{{"allreduce", 5, Ring}}}, "tuning.algorithms allreduce=ring:5: the last rule of allreduce must have no bound"},
		{Config{Rules: Rules{{"allreduce", 0, Ring}}, Profile: &Profile{Ranks: 3, Hosts: 1}}, "tuning.algorithms allreduce=ring and tuning.profile, of 3 ranks, both set the algorithms"},
	} {
		if _, err := New(mem.New(3)[0], c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", c.cfg, err, c.want)
		}
	}
}
