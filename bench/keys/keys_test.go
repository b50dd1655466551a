package main

import (
	"math"
	"testing"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// Ranks and keys are one to one.
func TestKeyOf(t *testing.T) {
	for _, rank := range []uint64{0, 1, 2, 1e8, math.MaxUint64 - 1, math.MaxUint64} {
		if back := rankOf(keyOf(rank)); back != rank {
			t.Errorf("rank %d comes back as %d", rank, back)
		}
	}
}

// Samples name every key, and as often as the oracle counts: what a batch has is what its samples' numbers say, in any order.
func TestSamplesNameAllKeys(t *testing.T) {
	all := newSamples(options{Keys: 5000, Batch: 64, Seed: 3})
	if all.Len()%64 != 0 || all.Len()*slots < 5000*5/4 {
		t.Fatalf("%d samples", all.Len())
	}
	want, got := all.counts(), make([]uint8, 5000)
	var b data.Batch
	for lo := all.Len() - 2; lo >= 0; lo -= 2 {
		if err := all.Fill(&b, []int32{int32(lo + 1), int32(lo)}, data.Draw{}); err != nil {
			t.Fatal(err)
		}
		if len(b.Bags.Offsets) != 2*slots+1 || len(b.Bags.Keys) != 2*slots || b.N != 2 {
			t.Fatalf("%d offsets, %d keys, %d samples", len(b.Bags.Offsets), len(b.Bags.Keys), b.N)
		}
		for _, key := range b.Bags.Keys {
			got[rankOf(key)]++
		}
	}
	for rank := range want {
		if got[rank] != want[rank] || want[rank] == 0 {
			t.Fatalf("key %d is named %d times, counted %d times", rank, got[rank], want[rank])
		}
	}
}

// Descent with a rate of as many as there are samples adds exactly 1 to each value of a row whenever its key is named, twice in a batch
// too, and moves nothing else.
func TestCountingCounts(t *testing.T) {
	const batch, keys = 16, 40
	spec, ps := counting(), nn.NewParams(1)
	ps.TablesElsewhere()
	all := samples{n: batch, keys: keys, seed: 1}
	for range all.Shape().Slots[1:] {
		spec.Slots = append(spec.Slots, spec.Slots[0])
	}
	m := spec.Build(ps, model.Options{})
	if err := m.Arrange(ps, spec.Sample(1)); err != nil {
		t.Fatal(err)
	}
	var b data.Batch
	var idx, at []int32
	for i := range int32(batch) {
		idx = append(idx, i)
	}
	if err := all.Fill(&b, idx, data.Draw{}); err != nil {
		t.Fatal(err)
	}
	for _, key := range b.Bags.Keys {
		at = append(at, int32(rankOf(key)))
	}
	rows, table := make([]float32, keys*dim), ps.Tables()[0]
	tape := nn.NewTape(nn.TapeConfig{})
	defer tape.Close()
	for step := range 3 {
		table.Hold(rows, at)
		tape.Reset()
		pass := m.Pass(tape, model.Batch{N: batch, Labels: b.Labels, Bags: nn.Bags{Keys: b.Bags.Keys, Offsets: b.Bags.Offsets, N: batch}})
		tape.Backward(pass.Loss.Mean, func(int) {})
		ids, grads := table.Grad()
		for i, id := range ids {
			for k := range dim {
				rows[int(id)*dim+k] -= batch * grads[i*dim+k]
			}
		}
		for rank, named := range all.counts() {
			for _, v := range rows[rank*dim:][:dim] {
				if v != float32(step+1)*float32(named) {
					t.Fatalf("step %d: key %d has %v, named %d times a step", step, rank, v, named)
				}
			}
		}
		if bias := ps.Values()[0]; bias != 0 || ps.Grads()[0] != 0 {
			t.Errorf("the dense parameter is %v, with a gradient of %v", bias, ps.Grads()[0])
		}
	}
}

// What cannot be is refused before a server is started.
func TestMeasureRefuses(t *testing.T) {
	good := options{Keys: 1000, Batch: 64, Dir: t.TempDir()}
	for _, change := range []func(*options){
		func(o *options) { o.Keys = 10 }, func(o *options) { o.Batch = 63 }, func(o *options) { o.Kills = -1 }, func(o *options) { o.Dir = "" },
		func(*options) {}, // the folder is there
	} {
		o := good
		change(&o)
		if err := measure(t.Context(), o); err == nil {
			t.Errorf("%+v is measured", o)
		}
	}
}
