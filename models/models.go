// Package models is the zoo: models built from nn, a file per family, found by name.
package models

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/spelling"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// classifier is a network of values with logits as output, [n, classes].
func classifier(f func(t *nn.Tape, x *nn.Tensor) *nn.Tensor) model.Model {
	return model.Model{
		Forward: func(t *nn.Tape, b model.Batch) model.Outputs { return model.Outputs{f(t, b.Values)} },
		Loss:    model.CrossEntropy,
		Metrics: []model.Metric{model.Accuracy()},
	}
}

// language sets a language model's metrics.
func language(m model.Model) model.Model {
	m.Metrics = []model.Metric{detail(model.Accuracy()), model.Perplexity()}
	return m
}

// detail returns the metric for records only, without display.
func detail(m model.Metric) model.Metric {
	m.Detail = true
	return m
}

// classes returns the number of classes of the user's data, or by default own, the model's.
func classes(o model.Options, own int) int {
	if o.Classes > 0 {
		return o.Classes
	}
	return own
}

// All returns the known models.
func All() []model.Spec {
	all := []model.Spec{mlp(), mnistCNN(), resnet20(), vgg16(), resnet50(), lstmSmall(), lstm300M(), ctrDNN(), ctrDNN4096(), wideDeep(), deepFM(), dcnV2(), dlrm(), din(), gpt(), gptMini()}
	for i, s := range all {
		all[i].PyTorch = func(name string) string { return PyTorchName(s.Name, name) }
	}
	return all
}

// Names returns the names of the known models, aliases left out.
func Names() []string {
	var names []string
	for _, s := range All() {
		names = append(names, s.Name)
	}
	return names
}

// Lookup finds a model by its name or an alias, and mlp:WIDTHxDEPTH by its sizes. The error for an
// unknown name lists the known models and similar names.
func Lookup(name string) (model.Spec, error) {
	if s, ok, err := sizedMLP(name); ok {
		s.PyTorch = func(name string) string { return PyTorchName("mlp", name) }
		return s, err
	}
	for _, s := range All() {
		if s.Name == name || slices.Contains(s.Aliases, name) {
			return s, nil
		}
	}
	var known []string
	for _, s := range All() {
		known = append(append(known, s.Name), s.Aliases...)
	}
	return model.Spec{}, fmt.Errorf("models: unknown model %q%s: known are %s", name, spelling.Hint(name, known...), strings.Join(Names(), ", "))
}
