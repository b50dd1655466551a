package train

import (
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/schema"
)

// A table has the rule of the last pattern that matches it, else its model's, else none of its own.
func TestRuleOf(t *testing.T) {
	c := Defaults(zoo("wide-deep"), data.Synthetic)
	c.TableRules = "*=adagrad-rowwise,w*=ftrl:rate=50:l1=0.01"
	for name, want := range map[string]string{"wide": "ftrl", "embedding": "adagrad-rowwise"} {
		r, ok, err := c.ruleOf(&nn.Table{Name: name, Rule: "adam"}, 0.5)
		if err != nil || !ok || r.Name != want || r.LR != 0.5 {
			t.Errorf("%s: %+v, %v, %v", name, r, ok, err)
		}
	}
	rule, err := mustRule(t, c, "wide").Rows()
	if rated, is := rule.(optim.Rated); err != nil || !is || rated.CurrentLR() != 0.5 || rule.Name() != "ftrl" {
		t.Errorf("%v, %v", rule, err)
	}
	c.TableRules = "wide=sgd"
	if r := mustRule(t, c, "embedding"); r.Name != "adam" {
		t.Errorf("the model's own: %+v", r)
	}
	if _, ok, err := c.ruleOf(&nn.Table{Name: "embedding"}, 1); ok || err != nil {
		t.Errorf("nobody says: %v, %v", ok, err)
	}
}

func mustRule(t *testing.T, c Config, name string) schema.Rule {
	t.Helper()
	r, ok, err := c.ruleOf(&nn.Table{Name: name, Rule: "adam"}, 0.5)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return r
}

// What is no rule, or of no table, is refused with what there is.
func TestTableRulesRefused(t *testing.T) {
	for rules, want := range map[string]string{
		"wide":               "want TABLE=RULE",
		"[=sgd":              "syntax error in pattern",
		"wide=best":          `row rule "best" is not known`,
		"wide=sgd:speed=3":   "speed = 3",
		"wide=ftrl:l1=x":     "want NAME=X, each name once",
		"wide=sgd:rate=-1":   "a rate of -1",
		"a=sgd,wide=sgd:l1=": "want NAME=X",
	} {
		c := Defaults(zoo("wide-deep"), data.Synthetic)
		c.TableRules = rules
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "training.table-optimizers") {
			t.Errorf("%s: %v, want %q", rules, err, want)
		}
	}
	c := Defaults(zoo("wide-deep"), data.Synthetic)
	c.TableRules = "deep=sgd"
	tables := []*nn.Table{{Name: "wide"}, {Name: "embedding"}}
	if err := c.checkTableRules(tables); err == nil || !strings.Contains(err.Error(), "deep: model wide-deep has no such table: it has wide, embedding") {
		t.Errorf("got %v", err)
	}
	c.TableRules = "wide=click"
	if _, err := c.withTableRules(&optim.SGD{LR: 1}, tables); err == nil || !strings.Contains(err.Error(), "table wide: rule click counts on servers") {
		t.Errorf("got %v", err)
	}
}
