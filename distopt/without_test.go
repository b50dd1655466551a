package distopt

import (
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/optim"
)

// Without an optimizer every bucket comes to the reducer as with one, and parameters stay as they are.
func TestWithoutOptimizer(t *testing.T) {
	g, err := collective.New(mem.New(1)[0], collective.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	layers := padded()
	with, err := newRig(g, layers, Config{BucketBytes: 1024})
	if err != nil {
		t.Fatal(err)
	}
	n := total(layers)
	without := &rig{r: newNaive(g), layers: layers, params: make([]float32, n), grads: make([]float32, n)}
	for i := range without.params {
		without.params[i] = float32(i)
	}
	before := slices.Clone(without.params)
	if without.o, err = New(g, nil, layers, without.params, without.grads, nil, Config{BucketBytes: 1024, Reducer: without.r}); err != nil {
		t.Fatal(err)
	}
	for _, w := range []*rig{with, without} {
		if err := w.o.Broadcast(); err != nil {
			t.Error(err)
		}
		if err := w.train(3); err != nil {
			t.Error(err)
		}
		defer w.o.Close()
	}
	if !slices.Equal(without.gave(), with.gave()) || without.o.Steps() != 3 || len(without.o.Plan()) < 3 {
		t.Errorf("after %d steps in %d buckets the reducer was given something else than with an optimizer", without.o.Steps(), len(without.o.Plan()))
	}
	if !slices.Equal(without.params, before) || slices.Equal(with.params, make([]float32, n)) {
		t.Error("parameters moved, or none do with an optimizer")
	}
	if err := without.o.SetStrategy(PartialUpdate); err == nil || !strings.Contains(err.Error(), "averages parameters that this rank has updated") {
		t.Errorf("partial update: %v", err)
	}
}

// What needs an optimizer is refused without one.
func TestWithoutOptimizerRefused(t *testing.T) {
	g, err := collective.New(mem.New(1)[0], collective.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	layers := padded()
	x := make([]float32, total(layers))
	table := []Table{{Name: "t", Rows: 1, Dim: 1, Data: make([]float32, 1)}}
	for _, c := range []struct {
		cfg    Config
		tables []Table
		want   string
	}{
		{Config{}, nil, "no optimizer, and 0 tables: want an optimizer, or no tables"},
		{Config{Reducer: newNaive(g)}, table, "no optimizer, and 1 tables"},
		{Config{Reducer: newNaive(g), Strategy: PartialUpdate}, nil, "averages parameters that this rank has updated"},
	} {
		if _, err := New(g, nil, layers, x, x, c.tables, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	if _, err := New(g, &optim.SGD{LR: 1}, layers, x, x, table, Config{}); err != nil {
		t.Errorf("with one: %v", err)
	}
}
