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
			ps := nn.NewParams(1)
			forward := s.Build(ps)
			x := nn.NewTensor(append([]int{2}, s.Input...)...)
			err := ps.Arrange(func(t *nn.Tape) *nn.Tensor {
				loss, _ := t.SoftmaxCrossEntropy(forward(t, x), []int32{0, int32(s.Classes - 1)})
				return loss
			})
			if err != nil {
				t.Fatal(err)
			}
			if ps.Count() != s.Params {
				t.Errorf("%d parameters, described as %d", ps.Count(), s.Params)
			}
			tape := nn.NewTape(nn.TapeConfig{})
			if y := forward(tape, x); !slices.Equal(y.Shape, []int{2, s.Classes}) {
				t.Errorf("logits %v", y.Shape)
			}
			if s.About == "" || !slices.Contains(Names(), s.Name) {
				t.Error("no description, or not among the names")
			}
		})
	}
}

func TestMNISTSlots(t *testing.T) {
	spec, err := Lookup("mnist")
	if err != nil {
		t.Fatal(err)
	}
	ps := nn.NewParams(1)
	forward := spec.Build(ps)
	err = ps.Arrange(func(t *nn.Tape) *nn.Tensor {
		loss, _ := t.SoftmaxCrossEntropy(forward(t, nn.NewTensor(1, 1, 28, 28)), []int32{0})
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
		"resnet-50": "known are mlp, mnist-cnn",
		"":          `unknown model ""`,
	} {
		_, err := Lookup(name)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Lookup(%q): %v, want it to hold %s", name, err, want)
		}
	}
	if _, err := Lookup("resnet-50"); err == nil || strings.Contains(err.Error(), "mean") {
		t.Errorf("%v: nothing known is spelt alike", err)
	}
}
