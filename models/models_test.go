package models

import (
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

func TestModelsAreAsDescribed(t *testing.T) {
	for _, s := range All() {
		t.Run(s.Name, func(t *testing.T) {
			ps := nn.NewOutline() // of the same slots and counts: nn.TestOutline
			m := s.Build(ps, model.Options{Batch: 2})
			b := s.Sample(2)
			b.Labels[0] = int32(s.Classes - 1)
			terms := 0
			loss := m.Loss
			m.Loss = func(t *nn.Tape, b model.Batch, out model.Outputs) model.Loss {
				l := loss(t, b, out)
				terms = l.Terms
				return l
			}
			if err := m.Arrange(ps, b); err != nil {
				t.Fatal(err)
			}
			if ps.Count() != s.Params {
				t.Errorf("%d parameters, described as %d", ps.Count(), s.Params)
			}
			if terms != len(b.Labels) {
				t.Errorf("the loss is a mean of %d, want %d", terms, len(b.Labels))
			}
			if scored := len(m.NewWords()) > 0; scored != (s.Task == model.Click) || len(m.Metrics) == 0 {
				t.Errorf("%d metrics of task %d", len(m.Metrics), s.Task)
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
		if s.Task != model.Classify || s.Params > 1e7 { // these are built alike
			continue
		}
		ps := nn.NewParams(1)
		s.Build(ps, model.Options{Classes: s.Classes + 3})
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
	err = spec.Build(ps, model.Options{}).Arrange(ps, spec.Sample(1))
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
