package model_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// A model is parameters, a forward pass, a loss and metrics; one dry run finds everything else.
func ExampleModel() {
	ps := nn.NewParams(1)
	line := ps.New("line.weight", nn.Ones, 1, 2)
	m := model.Model{
		Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
			return model.Outputs{t.Dense(b.Values, nn.Layer{W: line}, nn.Identity)}
		},
		Loss:    model.Squared,
		Metrics: []model.Metric{model.MAE()},
	}
	spec := model.Spec{Name: "line", Input: []int{2}, Targets: 1}
	if err := m.Arrange(ps, spec.Sample(1)); err != nil {
		fmt.Println(err)
		return
	}
	tape := nn.NewTape(nn.TapeConfig{})
	defer tape.Close()
	b := model.Batch{N: 2, Values: &nn.Tensor{Shape: []int{2, 2}, Data: []float32{1, 2, 3, 4}}, Targets: []float32{2, 9}}
	pass := m.Pass(tape, b)
	counts := m.NewCounts()
	m.Count(&counts, pass, false)
	fmt.Println("outputs", pass.Outputs[0].Data, "loss", pass.Loss.Mean.Data[0], m.Figures(counts, nil, false))
	tape.Backward(pass.Loss.Mean, func(slot int) { fmt.Println(ps.Slots()[slot].Name, "has the gradient", line.Grad) })
	// Output:
	// outputs [3 7] loss 2.5 map[mae:1.5]
	// line.weight has the gradient [-5 -6]
}
