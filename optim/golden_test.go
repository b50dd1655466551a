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
	"adam": func(f *golden.File) Optimizer {
		a := NewAdam(f.Attr("lr"))
		a.Beta1, a.Beta2, a.Eps = f.Attr("beta1"), f.Attr("beta2"), f.Attr("eps")
		return a
	},
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

// A row that is updated in every step moves as PyTorch's parameters do: its own
// count is the step.
func TestRowGolden(t *testing.T) {
	rules := map[string]func(f *golden.File) RowRule{
		"sgd": func(f *golden.File) RowRule {
			return &MomentumRows{LR: f.Attr("lr"), Momentum: f.Attr("momentum")}
		},
		"adagrad": func(f *golden.File) RowRule { return &AdagradRows{LR: f.Attr("lr"), Eps: f.Attr("eps")} },
		"adam": func(f *golden.File) RowRule {
			return &AdamRows{LR: f.Attr("lr"), Beta1: f.Attr("beta1"), Beta2: f.Attr("beta2"), Eps: f.Attr("eps")}
		},
		"adamw": func(f *golden.File) RowRule {
			return &AdamRows{LR: f.Attr("lr"), Beta1: f.Attr("beta1"), Beta2: f.Attr("beta2"), Eps: f.Attr("eps"), WeightDecay: f.Attr("weight_decay")}
		},
	}
	golden.Each(t, "testdata/golden", func(t *testing.T, f *golden.File) {
		if f.Op == "sgd" && f.Attr("weight_decay") != 0 {
			return // rows have no decay
		}
		table := rowTable{rule: rules[f.Op](f), dim: len(f.Floats("params"))}
		table.grow(make([]float32, table.dim)) // another row
		table.grow(f.Floats("params"))
		var got []float32
		for grads := range slices.Chunk(f.Floats("grads"), table.dim) {
			table.update([]int32{1}, grads, 1)
			got = append(got, table.data[table.dim:]...)
		}
		f.Compare(t, "y", got)
	})
}
