package models

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// TestSizedMLPIsNaive compares mlp:7x3 with a naive forward pass over its parameters.
func TestSizedMLPIsNaive(t *testing.T) {
	s, err := Lookup("mlp:7x3")
	if err != nil {
		t.Fatal(err)
	}
	ps := nn.NewParams(5)
	m := s.Build(ps, model.Options{Input: []int{4}, Classes: 3})
	x := []float32{0.5, -1, 2, 0.25, 1, 1, -0.5, 3}
	b := model.Batch{N: 2, Values: &nn.Tensor{Shape: []int{2, 4}, Data: x}, Labels: []int32{0, 2}}
	if err := m.Arrange(ps, b); err != nil {
		t.Fatal(err)
	}
	var names []string
	at := map[string]*nn.Param{}
	for _, p := range ps.List() {
		names, at[p.Name] = append(names, p.Name), p
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "hidden.bias hidden.weight hidden2.bias hidden2.weight hidden3.bias hidden3.weight out.bias out.weight" {
		t.Fatalf("parameters %s", got)
	}
	got := m.Forward(nn.NewTape(nn.TapeConfig{}), b)[0].Data
	for row := range 2 {
		values := x[4*row : 4*row+4]
		for _, layer := range []string{"hidden", "hidden2", "hidden3", "out"} {
			w, bias := at[layer+".weight"].Data, at[layer+".bias"].Data
			next := make([]float32, len(bias))
			for i := range next {
				sum := float64(bias[i])
				for k, v := range values {
					sum += float64(v) * float64(w[i*len(values)+k])
				}
				if next[i] = float32(sum); layer != "out" {
					next[i] = max(0, next[i])
				}
			}
			values = next
		}
		for k, want := range values {
			if math.Abs(float64(got[3*row+k]-want)) > 1e-5 {
				t.Errorf("row %d, class %d: %v, want %v", row, k, got[3*row+k], want)
			}
		}
	}
}

// TestSizedMLPCountsParameters compares the described number of parameters with the model's; one
// layer of 100 units has the values of mlp.
func TestSizedMLPCountsParameters(t *testing.T) {
	for _, name := range []string{"mlp:1", "mlp:5x4", "mlp:100", "mlp:100x1", "mlp:256x2"} {
		s, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		ps, plain := nn.NewParams(1), nn.NewParams(1)
		m := s.Build(ps, model.Options{})
		if err := m.Arrange(ps, s.Sample(1)); err != nil {
			t.Fatal(err)
		}
		if ps.Count() != s.Params || s.Name != name {
			t.Errorf("%s: %d parameters, described as %s with %d", name, ps.Count(), s.Name, s.Params)
		}
		if strings.HasPrefix(name, "mlp:100") {
			m := mlp().Build(plain, model.Options{})
			if err := m.Arrange(plain, s.Sample(1)); err != nil || !slices.Equal(plain.Values(), ps.Values()) {
				t.Errorf("%s has other first values than mlp, %v", name, err)
			}
		}
	}
	for _, name := range []string{"mlp:", "mlp:0", "mlp:x", "mlp:3x", "mlp:3x0", "mlp:03", "mlp:+3", "mlp:3x65", "mlp:20000", "mlp:3x3x3", "mlp:-1"} {
		if _, err := Lookup(name); err == nil || !strings.Contains(err.Error(), `"`+name+`": want mlp:WIDTH or mlp:WIDTHxDEPTH`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
