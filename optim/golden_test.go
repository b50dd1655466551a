package optim

import (
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/golden"
)

// goldenOptimizers are the optimizers that golden files name.
var goldenOptimizers = map[string]func(f *golden.File) Optimizer{
	"sgd": func(f *golden.File) Optimizer {
		return &SGD{LR: f.Attr("lr"), Momentum: f.Attr("momentum"), WeightDecay: f.Attr("weight_decay")}
	},
	"adagrad": func(f *golden.File) Optimizer { return &Adagrad{LR: f.Attr("lr"), Eps: f.Attr("eps")} },
	"adamw": func(f *golden.File) Optimizer {
		return &AdamW{LR: f.Attr("lr"), Beta1: f.Attr("beta1"), Beta2: f.Attr("beta2"), Eps: f.Attr("eps"), WeightDecay: f.Attr("weight_decay")}
	},
}

// Each optimizer agrees with PyTorch's after each of several steps.
func TestGolden(t *testing.T) {
	golden.Each(t, "testdata/golden", func(t *testing.T, f *golden.File) {
		build := goldenOptimizers[f.Op]
		if build == nil {
			t.Fatalf("no test runs %q", f.Op)
		}
		o, p := build(f), slices.Clone(f.Floats("params"))
		if err := o.Bind(len(p)); err != nil {
			t.Fatal(err)
		}
		var got []float32
		for grads := range slices.Chunk(f.Floats("grads"), len(p)) {
			o.BeginStep()
			o.Update(0, p, grads, 1)
			got = append(got, p...)
		}
		f.Compare(t, "y", got)
	})
}
