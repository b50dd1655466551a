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

// A model that carries a state begins with what the run before it left.
func TestStateGoesOn(t *testing.T) {
	spec, o, ids := smaller(mustLookup(t, "lstm"))
	c := newTrial(t, spec, o, Config{})
	b, in := c.inputs(2, ids)
	first, err := c.read.twin(in)
	if err != nil {
		t.Fatal(err)
	}
	for name := range in {
		if strings.HasPrefix(name, "state") {
			in[name] = first[name+".next"]
		}
	}
	second, err := c.read.twin(in)
	if err != nil {
		t.Fatal(err)
	}
	c.outputs(b) // resets, and leaves a state
	tape := nn.NewTape(nn.TapeConfig{})
	defer tape.Close()
	tape.ResetEval()
	y := c.model.Forward(tape, b)[0]
	width := len(y.Data) / b.N / spec.IDs
	for i, v := range y.Data {
		row := i / width
		sample, step := row%b.N, row/b.N
		got := second["logits"].at(sample, step, i%width)
		if d := got - float64(v); d > 1e-5 || d < -1e-5 {
			t.Fatalf("logit %d of sample %d, step %d is %v, want %v", i%width, sample, step, got, v)
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
