package models

import (
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/nn"
)

func TestModelsAreAsDescribed(t *testing.T) {
	for _, s := range All() {
		t.Run(s.Name, func(t *testing.T) {
			if s.Params > 1e8 && testing.Short() {
				t.Skip("takes gigabytes")
			}
			ps := nn.NewParams(1)
			model := s.Build(ps, Options{Batch: 2})
			labels := make([]int32, 2*max(1, s.Labels))
			labels[0] = int32(s.Classes - 1)
			b := Batch{N: 2, IDs: make([]int32, 2*s.IDs), Labels: labels}
			if s.Input != nil {
				b.Values = nn.NewTensor(append([]int{2}, s.Input...)...)
			}
			var out Outcome
			err := ps.Arrange(func(t *nn.Tape) (loss *nn.Tensor) {
				loss, out = model.Loss(t, b)
				return loss
			})
			if err != nil {
				t.Fatal(err)
			}
			if ps.Count() != s.Params {
				t.Errorf("%d parameters, described as %d", ps.Count(), s.Params)
			}
			if out.Count != len(labels) {
				t.Errorf("the loss is a mean of %d, want %d", out.Count, len(labels))
			}
			if (out.Scores != nil) != (s.Task == Click) {
				t.Errorf("%d scores of task %d", len(out.Scores), s.Task)
			}
			if s.Defaults.Batch < 1 || s.Defaults.Epochs < 1 || s.Defaults.LR <= 0 || s.Defaults.Optimizer == "" || s.Data == "" {
				t.Errorf("defaults %+v for data %q", s.Defaults, s.Data)
			}
			if s.About == "" || !slices.Contains(Names(), s.Name) {
				t.Error("no description, or not among the names")
			}
		})
	}
}

// A model has as many outputs as the data has classes.
func TestClassesAreTheDatas(t *testing.T) {
	for _, s := range All() {
		if s.Task != Classify || s.Params > 1e7 { // these are built alike
			continue
		}
		ps := nn.NewParams(1)
		s.Build(ps, Options{Classes: s.Classes + 3})
		out := ps.List()[len(ps.List())-1]
		if n := len(out.Data); n != s.Classes+3 {
			t.Errorf("%s: %s has %d values, want %d", s.Name, out.Name, n, s.Classes+3)
		}
	}
}

func TestMNISTSlots(t *testing.T) {
	spec, err := Lookup("mnist")
	if err != nil {
		t.Fatal(err)
	}
	ps := nn.NewParams(1)
	model := spec.Build(ps, Options{})
	err = ps.Arrange(func(t *nn.Tape) *nn.Tensor {
		loss, _ := model.Loss(t, Batch{N: 1, Values: nn.NewTensor(1, 28, 28, 1), Labels: []int32{0}})
		return loss
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range ps.Slots() {
		names = append(names, s.Name)
	}
	want := "fc2.weight fc2.bias fc1.weight fc1.bias conv2.weight conv2.bias conv1.weight conv1.bias"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("slots %s, want %s", got, want)
	}
}

func TestLookup(t *testing.T) {
	for name, want := range map[string]string{"mnist": "mnist-cnn", "mnist-cnn": "mnist-cnn", "mlp": "mlp"} {
		if s, err := Lookup(name); err != nil || s.Name != want {
			t.Errorf("Lookup(%q) = %q, %v", name, s.Name, err)
		}
	}
	for name, want := range map[string]string{
		"minst":     `did you mean "mnist"`,
		"MLP":       `did you mean "mlp"`,
		"mnist-cnm": `"mnist-cnn"`,
		"googlenet": "known are mlp, mnist-cnn, cifar-resnet20",
		"":          `unknown model ""`,
	} {
		_, err := Lookup(name)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Lookup(%q): %v, want it to hold %s", name, err, want)
		}
	}
	if _, err := Lookup("googlenet"); err == nil || strings.Contains(err.Error(), "mean") {
		t.Errorf("%v: nothing known is spelt alike", err)
	}
}
