package distopt

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/setting"
)

// The table of the documentation is that of the code.
func TestTableOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../docs/strategies.md")
	if err != nil {
		t.Fatal(err)
	}
	var have, want []string
	page, _, _ := strings.Cut(string(text), "\n## ")
	for _, line := range strings.Split(page, "\n") {
		if strings.HasPrefix(line, "| `") {
			have = append(have, line)
		}
	}
	for _, i := range Infos() {
		plan := i.Plan
		if plan == "" {
			plan = "any"
		}
		var takes []string
		for _, p := range i.Takes {
			takes = append(takes, strings.TrimPrefix(string(p), "exchange."))
		}
		want = append(want, fmt.Sprintf("| `%s` | %s | %s | %s | %s | %s | %s |", i.Name, i.About, i.Codec, i.Scope, i.Exchange, plan, strings.Join(takes, ", ")))
	}
	if a, b := strings.Join(have, "\n"), strings.Join(want, "\n"); a != b {
		t.Errorf("docs/strategies.md has\n%s\nthe code has\n%s", a, b)
	}
}

// A row's codec is the chain that its strategy makes of all its settings.
func TestCodecsOfTheTable(t *testing.T) {
	for _, i := range Infos() {
		c := Config{Strategy: i.Name}
		text := i.Codec
		for path, set := range map[setting.Path]func() any{
			SettingSpars:    func() any { c.Spars = 0.125; return c.Spars },
			SettingEvery:    func() any { c.Every = 7; return c.Every },
			pathRule:        func() any { c.Rule = compress.RulePaper; return c.Rule },
			pathClipValue:   func() any { c.ClipValue = 3; return c.ClipValue },
			SettingMomentum: func() any { c.Momentum = 0.75; return c.Momentum },
		} {
			if i.HasEffect(path) {
				text = strings.ReplaceAll(text, strings.TrimPrefix(string(path), "exchange."), fmt.Sprint(set()))
			}
		}
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
		chain, err := c.chain()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if chain != nil {
			got = chain.String()
		}
		if got != text {
			t.Errorf("%s: chain %q, the table says %q", i.Name, got, text)
		}
		if chain != nil && chain.Sparse() != i.Selects() {
			t.Errorf("%s selects: %v, its chain: %v", i.Name, i.Selects(), chain.Sparse())
		}
	}
}

// What has no effect on a strategy is refused with both values, and named
// strategies take no chain.
func TestIdleSettings(t *testing.T) {
	chain, err := compress.NewChain(compress.Int8{})
	if err != nil {
		t.Fatal(err)
	}
	settings := map[setting.Path]Config{
		SettingSpars: {Spars: 0.5}, SettingEvery: {Every: 3}, pathRule: {Rule: compress.RuleCorrected}, pathPartitions: {Partitions: 2}, pathClipValue: {ClipValue: 1},
		SettingMomentum: {Momentum: 0.5}, pathLayerThresholds: {LayerThresholds: true}, fieldAlgorithm: {SparseAlgorithm: "split"}, pathLimitSum: {LimitSum: true},
	}
	for path, c := range settings {
		for _, i := range Infos() {
			c.Strategy = i.Name
			err := c.Validate()
			if i.HasEffect(path) != (err == nil) {
				t.Errorf("%s under %s: %v", path, i.Name, err)
			}
			if want := fmt.Sprintf("%s has no effect: it needs exchange.strategy %s", path, strings.Join(Takers(path), " or ")); err != nil && err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
	for want, c := range map[string]Config{
		"exchange.strategy topk with a custom chain": {Strategy: TopK, Chain: chain}, "exchange.strategy custom needs a chain": {Strategy: Custom},
		"exchange.spars has no effect: it needs":                    {Chain: chain, Spars: 0.5},
		"exchange.plan one has no effect on exchange.strategy lags": {Strategy: LAGS, Plan: PlanOne},
		`"x" of sparse exchanges is not known`:                      {Strategy: DLGS, SparseAlgorithm: "x"},
		"SparseAlgorithm split has no effect on a reducer":          {Strategy: DLGS, SparseAlgorithm: "split", Reducer: newNaive(nil)},
		"limit-sum has no effect with SparseAlgorithm tree":         {Strategy: DLGS, SparseAlgorithm: "tree", LimitSum: true},
		"Config.Update sharded is for exchange.strategy fp32":       {Strategy: DLGS, Update: UpdateSharded},
		"exchange.spars 2: want a share":                            {Strategy: DLGS, Spars: 2},
		"exchange.spars -1: want a magnitude":                       {Strategy: SparseThreshold, Spars: -1},
		"exchange.clip-value NaN":                                   {Strategy: FP16, ClipValue: math.NaN()},
		`rule "x" is not known: use corrected or`:                   {Strategy: DLGS, Rule: "x"},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := (Config{Chain: chain, Plan: PlanOne}).Validate(); err != nil {
		t.Error(err)
	}
}
