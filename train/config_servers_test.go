package train

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/tune"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/train/internal/tensornames"
)

// What parameters on servers rule out is told together.
func TestServersRuleOut(t *testing.T) {
	c := Defaults(zoo("ctr-dnn"), data.Synthetic)
	c.Servers.Consistency = "bsp"
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	for _, consistency := range Consistencies() {
		own := c
		own.Servers.Consistency, own.Servers.GeoSteps = consistency, 1
		own.Exchange.Strategy, own.Exchange.Plan, own.Tuning.Choices = tune.Auto, "exact", tune.Choices{{}}
		err := fmt.Sprint(own.Validate())
		for _, want := range []string{"exchange.strategy auto with sync " + consistency + ": pushes", "exchange.plan exact with sync " + consistency + ": pushes"} {
			if !strings.Contains(err, want) {
				t.Errorf("%q is not in %v", want, err)
			}
		}
		own.Exchange = distopt.Config{Plan: distopt.PlanFixed, BucketBytes: 64}
		if err = fmt.Sprint(own.Validate()); strings.Contains(err, "copies are exchanged whole") != (consistency == "geo") {
			t.Errorf("buckets in %s: %v", consistency, err)
		}
	}
	click := c
	click.SetOptimizer(OptimizerClick)
	click.Exchange.ClipNorm = 1
	if err := click.Validate(); err == nil || !strings.Contains(err.Error(), "training.clip-norm 1 with training.optimizer click") {
		t.Errorf("got %v", err)
	}
	c.Servers.Consistency = "later"
	c.Exchange.Strategy, c.Exchange.ClipNorm, c.Exchange.Accumulation, c.Heter.Count = distopt.TopK, 1, 3, 1
	c.Tuning = Tuning{Measure: true, Report: func(tune.Report) {}}
	c.Servers.Start = -1
	c.Servers.Threads, c.Servers.Values = -1, "fp8"
	err := c.Validate()
	for _, want := range []string{`sync "later" is no optimizer of parameter servers: use one of bsp, ssp, async, geo`, "exchange.strategy topk with sync later", "training.clip-norm 1 with", "training.accumulate 3", "no exchange is tuned", "start -1 of the job", "ps.trainer-threads -1", `no code "fp8"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

// Settings of servers have no effect without them, geo needs its steps, and threads do not keep in
// step.
func TestServersSettings(t *testing.T) {
	for _, c := range []struct {
		servers Servers
		want    string
	}{
		{Servers{Threads: 2}, "ps.trainer-threads has no effect: it needs sync ssp or async or geo"},
		{Servers{Start: 1}, "start 1 of the job is for parameters on servers"},
		{Servers{Consistency: "bsp", Start: 7}, ""},
		{Servers{GeoSteps: 8, Threads: 1, Values: "fp32"}, ""}, // as Defaults has them
		{Servers{Consistency: "geo"}, "ps.geo-steps 0: want"},
		{Servers{Consistency: "bsp", Threads: 2}, "ps.trainer-threads has no effect: it needs sync ssp or async or geo"},
		{Servers{Consistency: "geo", GeoSteps: 3, Threads: 2, Values: "int8"}, ""},
		{Servers{Consistency: "ssp", Threads: 1, Values: "bf16"}, ""},
	} {
		cfg := Defaults(zoo("ctr-dnn"), data.Synthetic)
		cfg.Servers = c.servers
		if err := cfg.Validate(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.servers, err, c.want)
		}
	}
	for _, c := range []struct {
		model, optimizer, consistency string
		geo                           int
		click                         map[string]float64
		want                          string
	}{
		{"ctr-dnn", OptimizerClick, "bsp", 0, nil, ""},
		{"ctr-dnn", OptimizerClick, "ssp", 0, map[string]float64{"decay": 0.5, "rate": 2}, ""},
		{"ctr-dnn", OptimizerClick, "geo", 2, nil, "bsp, ssp or async"},
		{"ctr-dnn", OptimizerClick, "", 0, nil, "with sync bsp, ssp or async"},
		{"mlp", OptimizerClick, "bsp", 0, nil, "only for click models such as ctr-dnn"},
		{"ctr-dnn", OptimizerClick, "async", 0, map[string]float64{"decay": 2, "speed": 1}, "speed = 1"},
		{"ctr-dnn", OptimizerClick, "async", 0, map[string]float64{"decay": 2}, "decay 2"},
		{"ctr-dnn", "adagrad", "async", 0, map[string]float64{"decay": 0.5}, "ps.click has no effect: it needs training.optimizer click"},
		{"ctr-dnn", "adagrad", "", 0, map[string]float64{"decay": 0.5}, "ps.click has no effect: it needs training.optimizer click"},
	} {
		cfg := Defaults(zoo(c.model), data.Synthetic)
		cfg.SetOptimizer(c.optimizer)
		cfg.Servers = Servers{Consistency: c.consistency, GeoSteps: c.geo, Click: c.click}
		if err := cfg.Validate(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c, err, c.want)
		}
	}
	var codes client.Config
	if err := (Servers{Values: "int8"}).codes(&codes); err != nil || codes.Push != message.Int8 || codes.Pull != message.FP16 || codes.Dense != message.FP16 {
		t.Errorf("int8: %+v, %v", codes, err)
	}
	cfg := Defaults(zoo("ctr-dnn"), data.Synthetic)
	cfg.Servers.Consistency = "async"
	if _, err := RunSeeds(t.Context(), nil, cfg.Model, nil, cfg, 2, nil); err == nil || !strings.Contains(err.Error(), "servers hold the parameters of one run") {
		t.Errorf("several seeds: %v", err)
	}
}

// The tallies of threads add up, the waits that no checkpoint holds too.
func TestTalliesAdd(t *testing.T) {
	r := &runEnv{replica: &Replica{model: model.Model{Metrics: []model.Metric{model.Accuracy()}}}}
	sum, one := r.replica.newTally(), r.replica.newTally()
	for i, f := range one.values() {
		*f = float64(i + 1)
	}
	one.spent.add(StepTimes{Pull: time.Second, Data: time.Minute})
	for range 3 {
		sum.add(&one)
	}
	for i, f := range one.values() {
		if *sum.values()[i] != 3**f {
			t.Errorf("figure %d is %v, want 3 times %v", i, *sum.values()[i], *f)
		}
	}
	if sum.spent.pull != 3 {
		t.Errorf("waits of %v s, want 3", sum.spent.pull)
	}
	var w StepTimer
	w.Begin(time.Unix(0, 0))
	w.Pulled(time.Second)
	w.Pulled(time.Second)
	if s := w.End(time.Unix(9, 0), distopt.StepTimes{}); s.Pull != 2*time.Second || s.Whole != 9*time.Second {
		t.Errorf("%+v", s)
	}
	if s := w.End(time.Unix(10, 0), distopt.StepTimes{}); s.Pull != 0 {
		t.Errorf("the next step: %+v", s)
	}
}

// The servers' rule is the one that the ranks would have.
func TestSchemaOf(t *testing.T) {
	for _, name := range Optimizers() {
		c := Defaults(zoo("mlp"), data.Synthetic)
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
		s, err := c.schemaOf(ps, c.LR/4)
		if name == "adagrad" && (len(s.Sparse) != 1 || s.Sparse[0].Init != nn.UniformRows(0.5) || s.Sparse[0].Dim != 4) {
			t.Errorf("tables %+v", s.Sparse)
		}
		if err == nil {
			t.Errorf("%s: an array of no values is valid", name)
		}
		rule, err := s.Dense[0].Rule.Dense()
		if err != nil || rule.Name() != c.newOptimizer(ps).Name() || rule.CurrentLR() != c.LR/4 {
			t.Errorf("%s: %v, %v", name, rule, err)
		}
	}
	c := Defaults(zoo("ctr-dnn"), data.Synthetic)
	c.SetOptimizer(OptimizerClick)
	c.Servers.Click = map[string]float64{"decay": 0.5}
	one := nn.NewParams(7)
	one.NewTable("table", nn.UniformRows(0.5), 10, 4)
	s, err := c.schemaOf(one, 0.02)
	rule := s.Sparse[0].Rule
	if err == nil || rule.Name != OptimizerClick || rule.LR != 0.02 || rule.Settings["decay"] != 0.5 || rule.Settings["rate"] != 5 || rule.Settings["delete_after"] != 30 {
		t.Errorf("click: %+v, %v", rule, err)
	}
	if dense := s.Dense[0].Rule; dense.Name != "adagrad" || dense.LR != 0.02 || len(dense.Settings) > 0 {
		t.Errorf("click: dense parameters by %+v", dense)
	}
	ps := nn.NewParams(1)
	ps.NewTable("a", nn.UniformRows(1), 1, 1)
	ps.NewTable("b", nn.UniformRows(1), 1, 1)
	if _, err := Defaults(zoo("ctr-dnn"), data.Synthetic).schemaOf(ps, 1); err == nil || !strings.Contains(err.Error(), "has 2 tables that ids are looked up in") {
		t.Errorf("got %v", err)
	}
}

// Data whose inputs or outputs differ in name, order or meaning have other texts of them, and equal
// data the same ones.
func TestMeaningsOfInputsAndOutputs(t *testing.T) {
	table := func(columns ...string) data.Description { return tableOfColumns(t, columns...) }
	clicks := func(columns ...string) data.Description { return clicksOf(t, columns...) }
	base, slots := table("a", "b", "city=x,y", "label=p,q"), clicks("P", "Q", "user", "item")
	colder := table("a", "b", "city=x,y", "label=p,q")
	colder.Encoder.Columns[1].Mean = 7
	moved := clicks("P", "Q", "user", "item")
	for i := range moved.Layout.Columns {
		if c := &moved.Layout.Columns[i]; c.Name == "item" {
			c.Table = "user"
		}
	}
	images := func(classes ...string) data.Description { return classesOf([]int{28, 28, 1}, classes...) }
	for name, of := range map[string][]data.Description{
		"a table": {base, table("b", "a", "city=x,y", "label=p,q"), table("a", "c", "city=x,y", "label=p,q"), table("a", "b", "city=y,x", "label=p,q"),
			table("a", "b", "city=x,y", "label=q,p"), table("a", "b", "city=x,y", "label2=p,q"), table("a", "b", "city=x,y", "target"), table("a", "b=1,2", "city=x,y", "label=p,q"), colder},
		"clicks": {slots, clicks("Q", "P", "user", "item"), clicks("P", "Q", "item", "user"), clicks("P", "Q", "user", "thing"), clicks("P", "Q", "user", "item+"), moved},
		"images": {images("a", "b"), images("b", "a"), images("a", "c")},
		"text":   {wordsOf(0, 1), wordsOf(1, 0)},
	} {
		if again := tensornames.Meanings(of[0]); len(again) == 0 || !slices.Equal(again, tensornames.Meanings(of[0])) {
			t.Errorf("%s: %q and %q", name, again, tensornames.Meanings(of[0]))
		}
		for i, other := range of[1:] {
			if slices.Equal(tensornames.Meanings(of[0]), tensornames.Meanings(other)) {
				t.Errorf("%s, number %d: %q for both", name, i+1, tensornames.Meanings(other))
			}
		}
	}
	if of := tensornames.Meanings(data.Description{Name: "arrays"}); of != nil {
		t.Errorf("data without names have %q", of)
	}
}
