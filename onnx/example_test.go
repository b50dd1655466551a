package onnx_test

import (
	"bytes"
	"fmt"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/onnx"
)

// A model of one's own, for images of 8x8 pixels, becomes a graph for any number of them.
func ExampleNew() {
	spec := model.Spec{Name: "own", Input: []int{8, 8, 1}, Classes: 3}
	ps := nn.NewParams(1)
	conv, out := ps.Conv2D("conv", 1, 4, 3), ps.Dense("out", 4, 3)
	m := model.Model{Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
		x := t.Conv2D(b.Values, conv, nn.Conv{Pad: 1, Activation: nn.ReLU})
		return model.Outputs{t.Dense(t.GlobalAvgPool(x), out, nn.Identity)}
	}}

	g, err := onnx.New(spec, m, ps, onnx.Config{About: map[string]string{"classes": `["cat","dog","bird"]`}})
	if err != nil {
		fmt.Println(err)
		return
	}
	var file bytes.Buffer
	if err := g.Write(&file); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(g)
	fmt.Println(g.External())
	// Output:
	// values [batch 1 8 8] -> logits [batch 3]
	// false
}
