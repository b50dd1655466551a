package main

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/nn"
)

func TestApart(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		got, want []float32
		apart     float64
	}{
		{[]float32{1, 2}, []float32{1, 2}, 0},
		{[]float32{0.25, 0}, []float32{0, 0}, 0.25},
		{[]float32{4, 8}, []float32{4, 10}, 0.2},
		{[]float32{1}, []float32{1, 2}, math.Inf(1)},
		{[]float32{nan}, []float32{1}, math.Inf(1)},
		{[]float32{nan}, []float32{nan}, math.Inf(1)},
	} {
		if got := maxDifference(c.got, c.want); got != c.apart {
			t.Errorf("%v and %v are %v apart, want %v", c.got, c.want, got, c.apart)
		}
	}
}

func TestChannelsFirst(t *testing.T) {
	x := &nn.Tensor{Shape: []int{2, 1, 2, 3}, Data: []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}
	data, dims := channelsFirst(x)
	if want := []float32{1, 4, 2, 5, 3, 6, 7, 10, 8, 11, 9, 12}; !slices.Equal(data, want) || !slices.Equal(dims, []int{2, 3, 1, 2}) {
		t.Errorf("got %v of shape %v, want %v", data, dims, want)
	}
}

// A model is trained, written and timed, and its samples are the same each time.
func TestNet(t *testing.T) {
	n, err := newNet("mlp", t.TempDir(), 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer n.tape.Close()
	untrained, err := newNet("mlp", t.TempDir(), 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer untrained.tape.Close()
	b := n.batch(3, 1)
	if y := n.logits(b); !slices.Equal(y, n.logits(n.batch(3, 1))) || slices.Equal(y, untrained.logits(b)) || len(y) != 30 {
		t.Errorf("logits %v are not those of a trained model, the same each time", y)
	}
	if d := n.time(b, time.Microsecond); d <= 0 {
		t.Errorf("a pass takes %v", d)
	}
	feed, err := n.feed(b)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(feed.Inputs[0].File)
	if err != nil || info.Size() != 4*3*784 || !slices.Equal(feed.Inputs[0].Dims, []int{3, 1, 28, 28}) {
		t.Errorf("fed %+v, %v", feed.Inputs[0], err)
	}
}

// A state is fed as zeros for the batch's samples, whatever number it was made for.
func TestFeedState(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a model of 20 million parameters")
	}
	n, err := newNet("lstm", t.TempDir(), 0, 5)
	if err != nil {
		t.Fatal(err)
	}
	defer n.tape.Close()
	feed, err := n.feed(n.batch(2, 1))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, in := range feed.Inputs {
		if names = append(names, in.Name); in.Name != "ids" && !slices.Equal(in.Dims, []int{2, 650}) {
			t.Errorf("%s has shape %v, want 2 of 650", in.Name, in.Dims)
		}
	}
	if want := []string{"ids", "state0.h", "state0.c", "state1.h", "state1.c"}; !slices.Equal(names, want) {
		t.Errorf("fed %v, want %v", names, want)
	}
}

// Without the runtime the error says how to get it.
func TestPeerWithoutRuntime(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed: what is said without the runtime was NOT tested")
	}
	var stderr bytes.Buffer
	p, err := start("peer.js", t.TempDir(), &stderr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.ask(request{Ask: "version"}); err == nil {
		t.Error("the runtime answers, although it is not there")
	}
	if err := p.close(); err == nil || !bytes.Contains(stderr.Bytes(), []byte("onnxruntime")) {
		t.Errorf("ended with %v and said %s", err, &stderr)
	}
}
