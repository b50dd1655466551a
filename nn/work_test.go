package nn

import (
	"reflect"
	"testing"
)

// What an outline says of a small network, counted by hand: a convolution, a
// dense layer, two samples.
func TestWork(t *testing.T) {
	for _, ps := range []*Params{NewOutline(), NewParams(1)} {
		conv, dense := ps.Conv2D("conv", 3, 16, 5), ps.Dense("dense", 4*4*16, 10)
		if err := ps.Arrange(func(t *Tape) *Tensor {
			x := t.Conv2D(NewTensor(2, 12, 12, 3), conv, Conv{MaxPool2: true})
			logits := t.Dense(t.Flatten(x), dense, Identity)
			loss, _ := t.SoftmaxCrossEntropy(logits, []int32{1, 2})
			return loss
		}); err != nil {
			t.Fatal(err)
		}
		const (
			places   = 2 * 8 * 8 // of the convolution, before pooling
			convOps  = 2 * places * 5 * 5 * 3 * 16
			denseOps = 2 * 2 * 256 * 10
		)
		forward, backward := ps.Work()
		if forward.FLOPs != convOps+denseOps || forward.Weights != 4*(5*5*3*16+2560) {
			t.Errorf("forward %+v, want %d operations", forward, convOps+denseOps)
		}
		// The gradient of the image is not asked for; biases come with their weights.
		want := []float64{2 * denseOps, 0, convOps, 0}
		var got []float64
		for _, w := range backward {
			got = append(got, w.FLOPs)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("backward %v, want %v", got, want)
		}
		// images, convolution before and pooled activations; flattening; the dense layer; the loss
		moved := 4.0 * (2*12*12*3 + places*16 + 2*512 + 512 + 20 + 20 + 1)
		if forward.Activations != moved {
			t.Errorf("forward moves %v bytes, want %v", forward.Activations, moved)
		}
	}
}

// An outline describes the same arenas, of which there are none.
func TestOutline(t *testing.T) {
	build := func(ps *Params) {
		table := ps.NewTable("table", UniformRows(1), 100, 8)
		embedding := ps.New("embedding", Normal(1), 50, 6)
		lstm := ps.LSTM("lstm", Uniform(1), 6, 8)
		dense := ps.Dense("dense", 8, 3)
		ps.New("unused", Zeros, 5)
		if err := ps.Arrange(func(t *Tape) *Tensor {
			x := t.LSTM(t.Embedding([]int32{1, 2, 3}, embedding), lstm, nil, 3)
			x = t.Add(x, t.EmbeddingTable([]int32{7, 8, 9}, 3, table, nil))
			loss, _ := t.SoftmaxCrossEntropy(t.Dense(x, dense, Identity), []int32{0, 1, 2})
			return loss
		}); err != nil {
			t.Fatal(err)
		}
	}
	full, outline := NewParams(1), NewOutline()
	build(full)
	build(outline)
	if !reflect.DeepEqual(full.Slots(), outline.Slots()) || full.Count() != outline.Count() {
		t.Errorf("slots %+v, outlined as %+v", full.Slots(), outline.Slots())
	}
	if outline.Values() != nil || outline.Grads() != nil {
		t.Error("an outline has arenas")
	}
	for _, p := range outline.List() {
		for _, v := range p.Data {
			if v != 0 {
				t.Fatalf("%s has values", p.Name)
			}
		}
	}
	f1, b1 := full.Work()
	f2, b2 := outline.Work()
	if f1 != f2 || !reflect.DeepEqual(b1, b2) || len(b1) != len(full.Slots()) {
		t.Errorf("work %+v %+v, outlined as %+v %+v", f1, b1, f2, b2)
	}
	byName := map[string]Work{}
	for i, s := range outline.Slots() {
		byName[s.Name] = b2[i]
	}
	if got, want := byName["lstm.weight_ih"], 2*2*3*4*8*(6+8.0); got.FLOPs != want {
		t.Errorf("the LSTM's backward has %v operations, want %v", got.FLOPs, want)
	}
	if w := byName["embedding"]; w.FLOPs != 0 || w.Weights != 4*50*6 {
		t.Errorf("the embedding's backward is %+v, want no operations and its gradient cleared", w)
	}
	if w := byName["unused"]; w != (Work{}) {
		t.Errorf("an unused parameter's backward is %+v", w)
	}
}
