package train

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// keptRows are rows of one table as a fake of servers has saved them, two at a time.
type keptRows struct {
	keys    []uint64
	weights []float32
	err     error
}

func (k keptRows) Array(context.Context, int, []float32) error { return k.err }

func (k keptRows) Each(_ context.Context, _ int, do func(keys []uint64, weights []float32) error) error {
	dim := len(k.weights) / max(1, len(k.keys))
	for i := 0; i < len(k.keys); i += 2 {
		end := min(i+2, len(k.keys))
		if err := do(k.keys[i:end], slices.Clone(k.weights[i*dim:end*dim])); err != nil {
			return err
		}
	}
	return k.err
}

// tableOf is a table of 10 rows of 3 weights, with its rows here or elsewhere.
func tableOf(elsewhere bool) (*nn.Params, *nn.Table) {
	ps := nn.NewParams(5)
	if elsewhere {
		ps.TablesElsewhere()
	}
	return ps, ps.NewTable("rows", nn.UniformRows(0.5), 10, 3)
}

// Each id has its row: the saved one, or the first values that a table with its rows here has. Batches leave nothing behind.
func TestRecalledRows(t *testing.T) {
	_, twin := tableOf(false)
	ps, table := tableOf(true)
	p := &checkpointParams{replicatedParams: replicatedParams{replica: &Replica{Params: ps}}}
	saved := keptRows{keys: []uint64{7, 0, 3}, weights: []float32{1, 2, 3, 4, 5, 6, 7, 8, 9}}
	if err := p.take(saved); err != nil {
		t.Fatal(err)
	}
	for i, key := range saved.keys {
		copy(twin.Data[key*3:][:3], saved.weights[i*3:])
	}
	for _, ids := range [][]int32{{0, 9, 3, 9, 7}, {1, 2, 3, 4, 5, 6, 8}, {7}} {
		b, err := p.fetch(model.Batch{N: 1, IDs: ids}, false)
		if err != nil || len(b.IDs) != len(ids) {
			t.Fatal(b.IDs, err)
		}
		for i, at := range b.IDs {
			if got, want := table.Data[at*3:][:3], twin.Data[ids[i]*3:][:3]; !slices.Equal(got, want) {
				t.Errorf("row %d is %v, want %v", ids[i], got, want)
			}
		}
	}
	if n := len(p.tables[0].weights); n != 9 {
		t.Errorf("%d weights are held after a batch of saved rows alone", n)
	}
	for _, id := range []int32{-1, 10} {
		if _, err := p.fetch(model.Batch{N: 1, IDs: []int32{id}}, false); err == nil || !strings.Contains(err.Error(), "want one below 10") {
			t.Errorf("id %d: %v", id, err)
		}
	}
}

// Rows of another table, and what cannot be read, are errors.
func TestRecalledFaults(t *testing.T) {
	for want, saved := range map[string]keptRows{
		"want 3 each":                   {keys: []uint64{1}, weights: []float32{1, 2}},
		"row 10: the model has 10 rows": {keys: []uint64{1, 10}, weights: make([]float32, 6)},
		"damaged":                       {err: errors.New("damaged")},
	} {
		ps, _ := tableOf(true)
		p := &checkpointParams{replicatedParams: replicatedParams{replica: &Replica{Params: ps}}}
		if err := p.take(saved); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := (Servers{}).recall("f", 1, ServersPart{Start: 1}); err == nil || !strings.Contains(err.Error(), "offline.At") {
		t.Errorf("nobody opens them: %v", err)
	}
}
