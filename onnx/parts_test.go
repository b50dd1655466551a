package onnx

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

func TestFit(t *testing.T) {
	for _, c := range []struct {
		at   [3]int // with 2, 3 and 1 samples
		want string // "" where it is no multiple and no sum
	}{
		{[3]int{7, 7, 7}, "7"},
		{[3]int{2, 3, 1}, "batch"},
		{[3]int{10, 15, 5}, "5*batch"},
		{[3]int{5, 7, 3}, "2*batch+1"},
		{[3]int{4, 9, 1}, ""}, // all pairs
		{[3]int{1, 1, 0}, ""}, // half of them
	} {
		if d, ok := fit(c.at); ok != (c.want != "") || ok && d.String() != c.want {
			t.Errorf("%v is %v, %v, want %q", c.at, d, ok, c.want)
		}
	}
}

func TestStrided(t *testing.T) {
	data := []float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	var got []float32
	err := strided(data, []int{3, 2, 2}, []int{1, 6, 3})(func(values []float32) error { // [2, 2, 3] with its axes reversed
		got = append(got, values...)
		return nil
	})
	if want := []float32{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

// failing is a writer that takes so many bytes.
type failing struct{ left int }

var errFull = errors.New("the disk is full")

func (f *failing) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// A fault of writing is told wherever it happens.
func TestWriteFails(t *testing.T) {
	c := newTrial(t, operations["columns of ids"], model.Options{}, Config{About: map[string]string{"a": "b"}})
	var all lengthOf
	if err := c.graph.Write(&all); err != nil {
		t.Fatal(err)
	}
	for left := 0; left < int(all); left += int(all)/7 + 1 {
		if err := c.graph.Write(&failing{left}); !errors.Is(err, errFull) {
			t.Errorf("with room for %d of %d bytes: %v", left, all, err)
		}
	}
}

type lengthOf int

func (n *lengthOf) Write(b []byte) (int, error) { *n += lengthOf(len(b)); return len(b), nil }

var _ io.Writer = (*lengthOf)(nil)

// carrying is a model whose two layers, [n, 3, 4] to [n·3, 5], go on from the batch before, a state of two sequences each.
func carrying(ps *nn.Params) (model.Model, [][]float32) {
	gru, lstm := ps.GRU("gru", nn.FanIn(5), 4, 5), ps.LSTM("lstm", nn.FanIn(5), 5, 5)
	var of [3][]float32
	for i := range of {
		of[i] = make([]float32, 3*5)
	}
	forward := func(t *nn.Tape, b model.Batch) model.Outputs {
		n := b.N * 5
		y := t.GRU(steps(t, b.Values), gru, of[0][:n], 3)
		return model.Outputs{t.LSTM(y, lstm, &nn.LSTMState{H: of[1][:n], C: of[2][:n]}, 3)}
	}
	return model.Model{Forward: forward}, of[:]
}

// A model that carries states begins with what the run before it left.
func TestStateGoesOn(t *testing.T) {
	var state [][]float32
	spec := own([]int{3, 4}, 0, nil)
	spec.Build = func(ps *nn.Params, _ model.Options) (m model.Model) {
		m, state = carrying(ps)
		return m
	}
	c := newTrial(t, spec, model.Options{}, Config{})
	b, in := c.inputs(2, 0)
	var names []string
	for _, p := range c.read.inputs {
		names = append(names, p.name)
	}
	if want := []string{"values", "state0.h", "state1.h", "state1.c"}; !slices.Equal(names, want) {
		t.Fatalf("inputs %v, want %v", names, want)
	}
	for _, s := range state {
		clear(s)
	}
	for round := range 3 {
		got, err := c.read.twin(in)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range c.outputs(b)[0] {
			if d := got["logits"].data[i] - float64(v); d > 1e-5 || d < -1e-5 {
				t.Fatalf("round %d: output %d is %v, want %v", round, i, got["logits"].data[i], v)
			}
		}
		for k, name := range names[1:] {
			in[name] = got[name+".next"]
			for i, v := range in[name].data {
				if d := v - float64(state[k][i]); d > 1e-5 || d < -1e-5 {
					t.Fatalf("round %d: %s[%d] is %v, want %v", round, name, i, v, state[k][i])
				}
			}
		}
	}
}

// What a configuration cannot be is refused.
func TestConfig(t *testing.T) {
	spec := operations["activations"]
	for want, cfg := range map[string]Config{"weights of -1 bytes": {External: -1}, "weights of 3000000000 bytes": {External: 3_000_000_000}} {
		ps := nn.NewParams(1)
		if _, err := New(spec, spec.Build(ps, model.Options{}), ps, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := New(spec, model.Model{}, nn.NewParams(1), Config{}); err == nil {
		t.Error("a model without Forward has a graph")
	}
}
