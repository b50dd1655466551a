package main

import (
	"math"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/model"
)

// Predictions are as far from outputs as they are, whatever they are of; an order of classes that is not that of their probabilities shows.
func TestApartFrom(t *testing.T) {
	ln := func(p float64) float32 { return float32(math.Log(p)) }
	two := []float32{ln(0.75), ln(0.25), ln(0.5), ln(0.5)}
	number := data.Description{Encoder: &table.Encoder{Columns: []table.Column{{Name: "y", Kind: table.Target, Mean: 100, Deviation: 10}}}}
	for name, c := range map[string]struct {
		text    string
		outputs []float32
		d       data.Description
		spec    model.Spec
		far     float64
		fault   string
	}{
		"numbered classes": {"row,prediction,probability\n0,0,0.75\n1,1,0.5\n", two, data.Description{}, model.Spec{}, 0, ""},
		"named classes":    {"row,a,b,c,d\n0,x,0.75,y,0.25\n1,y,0.5,x,0.5\n", two, data.Description{Words: []string{"x", "y"}}, model.Spec{}, 0, ""},
		"another":          {"row,a,b\n0,0,0.65\n1,1,0.5\n", two, data.Description{}, model.Spec{}, 0.1, ""},
		"wrong order":      {"row,a,b,c,d\n0,1,0.25,0,0.75\n1,1,0.5,0,0.5\n", two, data.Description{}, model.Spec{}, 0.5, ""},
		"no class":         {"row,a,b\n0,z,0.65\n1,x,0.5\n", two, data.Description{Words: []string{"x", "y"}}, model.Spec{}, 0, `row 0: "z" is no class`},
		"clicks":           {"row,probability\n0,0.25\n1,0.75\n", two, data.Description{}, model.Spec{Task: model.Click}, 0.25, ""},
		"numbers":          {"row,prediction\n0,120\n1,90\n", []float32{2, -2}, number, model.Spec{Targets: 1}, 10.0 / 120, ""},
		"no numbers":       {"row,prediction\n0,NaN\n1,90\n", []float32{2, -2}, number, model.Spec{Targets: 1}, 0, "no finite numbers"},
		"none":             {"row,prediction\n", two, number, model.Spec{Targets: 1}, 0, "0 predictions and 4 outputs"},
	} {
		far, err := apartFrom(c.text, c.outputs, c.d, c.spec)
		if math.Abs(far-c.far) > 1e-7 || (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %v apart, %v, want %v, %q", name, far, err, c.far, c.fault)
		}
	}
}

// Language models alone are left out, for they take no data.
func TestRehearsals(t *testing.T) {
	have := map[string]int{}
	for _, r := range rehearsals("x") {
		have[r.model]++
	}
	if have["mlp"] != 3 || have["resnet50"] != 1 || have["ctr-dnn"] != 3 || have["din"] != 2 || have["gpt"] != 0 || have["lstm"] != 0 {
		t.Errorf("%v", have)
	}
}
