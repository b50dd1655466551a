package distopt

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/compress"
)

// The table of the documentation is that of the code.
func TestTableOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../docs/strategies.md")
	if err != nil {
		t.Fatal(err)
	}
	var have, want []string
	for _, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "| `") {
			have = append(have, line)
		}
	}
	for _, i := range Infos() {
		plan := i.Plan
		if plan == "" {
			plan = "any"
		}
		want = append(want, fmt.Sprintf("| `%s` | %s | %s | %s | %s | %s | %s |", i.Name, i.About, i.Codec, i.Scope, i.Exchange, plan, strings.Join(i.Takes, ", ")))
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
		for setting, set := range map[string]func() any{
			SettingSpars:     func() any { c.Spars = 0.125; return c.Spars },
			SettingEvery:     func() any { c.Every = 7; return c.Every },
			SettingRule:      func() any { c.Rule = compress.RulePaper; return c.Rule },
			SettingClipValue: func() any { c.ClipValue = 3; return c.ClipValue },
			SettingMomentum:  func() any { c.Momentum = 0.75; return c.Momentum },
		} {
			if i.HasEffect(setting) {
				text = strings.ReplaceAll(text, setting, fmt.Sprint(set()))
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
	settings := map[string]Config{
		"spars 0.5": {Spars: 0.5}, "dlgs-every 3": {Every: 3}, "dlgs-rule paper": {Rule: compress.RulePaper}, "dlgs-rule corrected": {Rule: compress.RuleCorrected},
		"partitions 2": {Partitions: 2}, "clip-value 1": {ClipValue: 1},
		"momentum-correction 0.5": {Momentum: 0.5}, "layer-thresholds true": {LayerThresholds: true}, "sparse-algorithm tree": {SparseAlgorithm: "tree"},
	}
	for what, c := range settings {
		name, _, _ := strings.Cut(what, " ")
		for _, i := range Infos() {
			c.Strategy = i.Name
			err := c.Validate()
			if i.HasEffect(name) != (err == nil) {
				t.Errorf("%s under %s: %v", what, i.Name, err)
			}
			if want := fmt.Sprintf("%s has no effect on strategy %s", what, i.Name); err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q: %v", want, err)
			}
		}
	}
	for want, c := range map[string]Config{
		"strategy topk with a chain": {Strategy: TopK, Chain: chain}, "strategy custom needs a chain": {Strategy: Custom},
		"spars 0.5 has no effect on strategy custom": {Chain: chain, Spars: 0.5},
		`plan "one" has no effect on strategy lags`:  {Strategy: LAGS, Plan: PlanOne},
		`"x" of sparse exchanges is not known`:       {Strategy: DLGS, SparseAlgorithm: "x"},
		`rule "x" is not known: use corrected or`:    {Strategy: DLGS, Rule: "x"},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := (Config{Chain: chain, Plan: PlanOne}).Validate(); err != nil {
		t.Error(err)
	}
}
