package onnx

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/nn"
)

// clickSlots has two categories around a bag, so that sums and rows that the graph looks up
// alternate.
var clickSlots = []model.Slot{{Name: "user"}, {Name: "tags"}, {Name: "item"}, {Name: "seen", Sequence: true}}

// isCategory reports whether samples have at most one key in a slot.
func isCategory(slot int) bool { return slot == 0 || slot == 2 }

// bagged fills a batch with keys, of which some are missing, and returns the inputs that a program
// with the tables' rows makes of them.
func bagged(c *trial, b *model.Batch, in map[string]*array) {
	r := rand.New(rand.NewPCG(uint64(b.N), 9))
	b.Bags.Keys = nil
	for i := range len(c.spec.Slots) * b.N {
		n := r.IntN(2)
		if slot := i / b.N; !isCategory(slot) {
			n = r.IntN(60) // more than the steps of a sequence
		}
		for range n {
			b.Bags.Keys = append(b.Bags.Keys, r.Uint64())
		}
		b.Bags.Offsets[i+1] = int32(len(b.Bags.Keys))
	}
	for _, bag := range c.graph.Bags {
		i := slices.IndexFunc(c.ps.Tables(), func(t *nn.Table) bool { return t.Name == bag.Table })
		t := c.ps.Tables()[i]
		steps, width := max(1, bag.Steps), t.Dim
		if bag.Rows {
			width = 1
		}
		a := newArray(b.N, len(bag.Slots)*steps*width)
		for sample := range b.N {
			for k, slot := range bag.Slots {
				at := sample*len(a.data)/b.N + k*steps*width
				keys := b.Bags.Keys[b.Bags.Offsets[slot*b.N+sample]:b.Bags.Offsets[slot*b.N+sample+1]]
				if bag.Rows {
					if a.data[at] = float64(t.Rows); len(keys) > 0 {
						a.data[at] = float64(nn.RowOf(keys[0], t.Rows))
					}
					continue
				}
				if bag.Steps > 0 {
					keys = keys[max(0, len(keys)-bag.Steps):]
				}
				for _, key := range keys {
					for d, v := range t.Data[int(nn.RowOf(key, t.Rows))*t.Dim:][:t.Dim] {
						a.data[at+d] += float64(v)
					}
					if bag.Steps > 0 {
						at += t.Dim
					}
				}
			}
		}
		in[bag.Input] = a
	}
}

// keyed returns a click model of the zoo with clickSlots, and its options.
func keyed(spec model.Spec, numbers int) (model.Spec, model.Options) {
	spec.IDs, spec.Slots, spec.Input = 0, clickSlots, nil
	if numbers > 0 {
		spec.Input = []int{numbers}
	}
	return spec, model.Options{Batch: 1, Rows: 60, Slots: spec.Slots, Input: spec.Input}
}

// TestBagsAgree compares the graphs of click models with the models, on bags, sequences and
// categories, present and missing.
func TestBagsAgree(t *testing.T) {
	for _, spec := range models.All() {
		if !spec.AnySlots || spec.Name == "ctr-dnn-4096" {
			continue
		}
		for _, numbers := range []int{0, 2} {
			for _, single := range []func(int) bool{nil, isCategory, func(s int) bool { return s == 0 }} {
				spec, o := keyed(spec, numbers)
				c := newTrial(t, spec, o, Config{Single: single})
				if rows := slices.ContainsFunc(c.graph.Bags, func(b Bag) bool { return b.Rows }); rows != (single != nil) {
					t.Errorf("%s: inputs %v", spec.Name, c.graph)
				}
				for _, n := range []int{1, 3} {
					c.agree(t, n, 60)
				}
			}
		}
	}
}

// TestBagsElsewhere checks that a table whose rows are elsewhere has no row in the graph.
func TestBagsElsewhere(t *testing.T) {
	spec, o := keyed(mustLookup(t, "deepfm"), 2)
	ps := nn.NewParams(1)
	ps.TablesElsewhere()
	g, err := New(spec, spec.Build(ps, o), ps, Config{Single: isCategory})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(g), "values [batch 2], embedding [batch 40], wide [batch 4] -> logits [batch 1]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, c := range g.constants {
		if strings.Contains(c.name, "embedding") || strings.Contains(c.name, "wide") {
			t.Errorf("the graph has %s", c.name)
		}
	}
}
