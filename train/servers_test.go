package train

import (
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/tune"
)

// What parameters on servers rule out is told together.
func TestServersRuleOut(t *testing.T) {
	c := Defaults("ctr-dnn", data.Synthetic)
	c.Servers.Consistency = "sync"
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	c.Servers.Consistency = "later"
	c.Exchange.Strategy, c.Exchange.ClipNorm, c.Exchange.Accumulation = distopt.TopK, 1, 3
	c.Tuning, c.Warmup = Tuning{Measure: true, Report: func(tune.Report) {}}, schedule.Warmup{Steps: 1}
	c.Checkpoint = Checkpoint{Dir: "x", Every: 1}
	err := c.Validate()
	for _, want := range []string{"(later): that consistency is not known: use one of sync, async, ssp", "strategy topk", "a norm of 1", "3 backwards", "nothing is tuned", "a warm-up", "checkpoints of ranks"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

// The servers' rule is the one that the ranks would have.
func TestSchemaOf(t *testing.T) {
	for _, name := range Optimizers() {
		c := Defaults("mlp", data.Synthetic)
		c.SetOptimizer(name)
		c.WeightDecay = 0
		if name == "sgd" {
			c.Momentum, c.WeightDecay = 0.5, 0.25
		}
		if name == "adam" || name == "adagrad" {
			c.Eps = 1e-3
		}
		ps := nn.NewParams(7)
		if name == "adagrad" {
			ps.NewTable("table", nn.UniformRows(0.5), 10, 4)
		}
		s, err := c.schemaOf(ps)
		if name == "adagrad" && (len(s.Sparse) != 1 || s.Sparse[0].Init != nn.UniformRows(0.5) || s.Sparse[0].Dim != 4) {
			t.Errorf("tables %+v", s.Sparse)
		}
		if err == nil {
			t.Errorf("%s: an array of no values is valid", name)
		}
		rule, err := s.Dense[0].Rule.Dense()
		if err != nil || rule.Name() != c.newOptimizer(ps).Name() || rule.CurrentLR() != c.LR {
			t.Errorf("%s: %v, %v", name, rule, err)
		}
	}
	ps := nn.NewParams(1)
	ps.NewTable("a", nn.UniformRows(1), 1, 1)
	ps.NewTable("b", nn.UniformRows(1), 1, 1)
	if _, err := Defaults("ctr-dnn", data.Synthetic).schemaOf(ps); err == nil || !strings.Contains(err.Error(), "has 2 tables") {
		t.Errorf("got %v", err)
	}
}
