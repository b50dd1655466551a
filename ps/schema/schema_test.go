package schema

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/optim"
)

func sample() Schema {
	return Schema{
		Sparse: []Sparse{
			{Name: "items", Dim: 16, Rule: Rule{Name: "adagrad", LR: 0.1, Settings: map[string]float64{"initial": 0.5, "eps": 1e-6}}, Init: Init{Name: "uniform", Value: 0.01}, Seed: 7},
			{Name: "users", Dim: 8, Rule: Rule{Name: "sgd", LR: 0.1}},
		},
		Dense: []Dense{{Name: "net", Len: 1000, Rule: Rule{Name: "sgd", LR: 0.01, Settings: map[string]float64{"momentum": 0.9}}}},
	}
}

func TestJSON(t *testing.T) {
	s := sample()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back Schema
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(s, back) || s.Hash() != back.Hash() {
		t.Fatalf("%+v became %+v", s, back)
	}
	if err := back.Validate(); err != nil {
		t.Fatal(err)
	}
}

// The hash is part of what is saved: it must not change from one release to the next.
func TestHash(t *testing.T) {
	s := sample()
	const golden = "3e20e7978934600fc3af73f85c062b4a6cea85d023328e4ccbd02de3dc55971a"
	if h := s.Hash(); h != golden {
		t.Errorf("the hash is %s, was %s", h, golden)
	}
	same := sample()
	same.Sparse[1].Init.Name = "zeros"
	same.Sparse[1].Rule.Settings = map[string]float64{}
	if same.Hash() != s.Hash() {
		t.Error("schemas that mean the same have different hashes")
	}
	changes := []func(*Schema){
		func(s *Schema) { s.Sparse[0].Name = "item" },
		func(s *Schema) { s.Sparse[0].Dim++ },
		func(s *Schema) { s.Sparse[0].Seed++ },
		func(s *Schema) { s.Sparse[0].Init.Value = 0.02 },
		func(s *Schema) { s.Sparse[0].Rule.LR = 0.2 },
		func(s *Schema) { s.Sparse[0].Rule.Settings["eps"] = 1e-7 },
		func(s *Schema) { s.Dense[0].Len++ },
		func(s *Schema) { s.Sparse = s.Sparse[:1] },
		func(s *Schema) { s.Dense = nil },
	}
	seen := map[string]int{s.Hash(): -1}
	for i, change := range changes {
		c := sample()
		change(&c)
		if j, ok := seen[c.Hash()]; ok {
			t.Errorf("changes %d and %d have the same hash", i, j)
		}
		seen[c.Hash()] = i
	}
}

func TestFaultsTogether(t *testing.T) {
	s := Schema{
		Sparse: []Sparse{
			{Name: "", Dim: 0, Rule: Rule{Name: "none", LR: 1}, Init: Init{Name: "strange"}},
			{Name: "a", Dim: 4, Rule: Rule{Name: "adagrad", LR: -1}, Init: Init{Name: "uniform", Value: math.Inf(1)}},
			{Name: "b", Dim: 4, Rule: Rule{Name: "sgd", LR: 1, Settings: map[string]float64{"speed": 3, "bound": math.NaN()}}},
		},
		Dense: []Dense{{Name: "a", Len: 0, Rule: Rule{Name: "click", LR: 1}}},
	}
	err := s.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"table 0 has a name of 0 bytes", "rows of 0 weights", `rule "none"`, `"strange"`, "learning rate -1",
		"uniform of +Inf", "speed = 3", "bound = NaN", `two are named "a"`, `"a": 0 values`, `rule "click" for an array`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not reported in:\n%v", want, err)
		}
	}
	if err := (&Schema{}).Validate(); err == nil {
		t.Error("an empty schema was accepted")
	}
}

func TestRules(t *testing.T) {
	for _, name := range optim.RowRules() {
		rule, err := Rule{Name: name, LR: 0.25}.Rows()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := rule.(optim.Rated).CurrentLR(); rule.Name() != name || got != 0.25 {
			t.Errorf("%s became %s with a rate of %v", name, rule.Name(), got)
		}
	}
	for _, name := range []string{"sgd", "adagrad", "adam", "adamw", "ftrl"} {
		opt, err := Rule{Name: name, LR: 0.25}.Dense()
		if err != nil || opt.Name() != name || opt.CurrentLR() != 0.25 {
			t.Errorf("%s: %v %v", name, opt, err)
		}
	}
	r, err := Rule{Name: "ftrl", LR: 1, Settings: map[string]float64{"beta": 2, "l1": 3, "l2": 4, "initial": 5}}.Rows()
	if f, ok := r.(*optim.FTRLRows); err != nil || !ok || *f != (optim.FTRLRows{LR: 1, Beta: 2, L1: 3, L2: 4, Initial: 5}) {
		t.Errorf("ftrl: %+v %v", r, err)
	}
	r, err = Rule{Name: "sgd", LR: 1, Settings: map[string]float64{"bound": 2}}.Rows()
	if b, ok := r.(*optim.Bounded); err != nil || !ok || b.Bound != 2 {
		t.Errorf("bounded: %+v %v", r, err)
	}
	click := Rule{Name: "click", LR: 1, Settings: map[string]float64{"bound": 2, "decay": 0.5, "rate": 3}}
	r, err = click.Rows()
	if c, ok := r.(*optim.ClickRows); err != nil || !ok || c.Bound != 2 || c.Policy.Decay != 0.5 || c.RateTimes != 3 || c.CurrentLR() != 1 {
		t.Errorf("click: %+v %v", r, err)
	}
	settled, err := click.Settled()
	if again, e := settled.Settled(); err != nil || e != nil || !reflect.DeepEqual(settled, again) || len(settled.Settings) != 10 || settled.Settings["decay"] != 0.5 || settled.Settings["extend_at"] != 10 {
		t.Errorf("settled: %+v %v %v", settled, err, e)
	}
	if _, err := (Rule{Name: "none", LR: 1}).Settled(); err == nil {
		t.Error("a rule that there is not is settled")
	}
	for rule, want := range map[string]int{"click": 2, "adagrad": 0, "none": 0} {
		if got := (&Sparse{Dim: 3, Rule: Rule{Name: rule, LR: 1}}).Counts(); got != want {
			t.Errorf("%s wants %d counts, not %d", rule, got, want)
		}
	}
	if parts, err := (&Sparse{Name: "a", Dim: 3, Rule: Rule{Name: "adagrad", LR: 1}}).Parts(); err != nil || len(parts) != 1 || parts[0].Width != 3 {
		t.Errorf("parts %v %v", parts, err)
	}
}
