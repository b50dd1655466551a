package nn_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
)

// learn makes steps of plain descent, and returns the first and the last loss.
func learn(params *nn.Params, loss func(t *nn.Tape) *nn.Tensor, rate float64, steps int) (first, last float32, err error) {
	if err := params.Arrange(loss); err != nil {
		return 0, 0, err
	}
	sgd := &optim.SGD{LR: rate}
	if err := sgd.Bind(len(params.Values())); err != nil {
		return 0, 0, err
	}
	tape := nn.NewTape(nn.TapeConfig{})
	defer tape.Close()
	for i := range steps {
		tape.Reset()
		l := loss(tape)
		if last = l.Data[0]; i == 0 {
			first = last
		}
		tape.Backward(l, func(int) {})
		sgd.Update(0, params.Values(), params.Grads(), 1)
	}
	return first, last, nil
}

// uniform is a tensor of values from -1 to 1.
func uniform(r *rand.Rand, shape ...int) *nn.Tensor {
	x := nn.NewTensor(shape...)
	for i := range x.Data {
		x.Data[i] = 2*r.Float32() - 1
	}
	return x
}

// A regression: a dense layer of one output finds the line that made the targets.
func ExampleTape_MeanSquaredError() {
	x, target := uniform(rand.New(rand.NewPCG(1, 2)), 64, 2), nn.NewTensor(64, 1)
	for i := range 64 {
		target.Data[i] = 3*x.Data[2*i] - 2*x.Data[2*i+1] + 0.5
	}
	params := nn.NewParams(1)
	line := params.Dense("line", 2, 1)
	_, _, err := learn(params, func(t *nn.Tape) *nn.Tensor {
		return t.MeanSquaredError(t.Dense(x, line, nn.Identity), target)
	}, 0.5, 100)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Printf("%.2f %.2f\n", line.W.Data, line.B.Data)
	// Output: [3.00 -2.00] [0.50]
}

// Two towers: users and things are embedded apart, and who likes what is the sign of their product.
func ExampleTape_RowDot() {
	const users, things = 12, 8
	var user, thing []int32
	likes := nn.NewTensor(users * things)
	for i := range users * things {
		u, v := i/things, i%things
		user, thing = append(user, int32(u)), append(thing, int32(v))
		if u%2 == v%2 { // the even like the even
			likes.Data[i] = 1
		}
	}
	params := nn.NewParams(1)
	left, right := params.New("users", nn.Normal(0.5), users, 4), params.New("things", nn.Normal(0.5), things, 4)
	towers := [2]nn.Layer{params.Dense("left", 4, 4), params.Dense("right", 4, 4)}
	var scores *nn.Tensor
	_, _, err := learn(params, func(t *nn.Tape) *nn.Tensor {
		scores = t.RowDot(
			t.Dense(t.Embedding(user, left), towers[0], nn.Tanh),
			t.Dense(t.Embedding(thing, right), towers[1], nn.Tanh))
		return t.BinaryCrossEntropy(scores, likes)
	}, 2, 200)
	if err != nil {
		fmt.Println(err)
	}
	found := 0
	for i, s := range scores.Data {
		if (s > 0) == (likes.Data[i] == 1) {
			found++
		}
	}
	fmt.Println(found, "of", users*things)
	// Output: 96 of 96
}

// A contrastive loss, InfoNCE (A. van den Oord and others 2018): of two views of the same samples, each shall be nearer to its own
// other one than to all others. The temperature is learnt, too.
func ExampleTape_MatMul() {
	const n, width = 16, 8
	r := rand.New(rand.NewPCG(3, 4))
	a, noise, rotation := uniform(r, n, width), uniform(r, n, width), uniform(r, width, width)
	b := nn.NewTensor(n, width)
	own := make([]int32, n)
	for i := range n {
		own[i] = int32(i)
		for j := range width {
			for k := range width {
				b.Data[i*width+j] += a.Data[i*width+k] * rotation.Data[k*width+j]
			}
			b.Data[i*width+j] += 0.1 * noise.Data[i*width+j]
		}
	}
	params := nn.NewParams(1)
	left, right := params.Dense("left", width, width), params.Dense("right", width, width)
	temperature := params.New("temperature", nn.Ones, 1)
	correct := 0
	first, last, err := learn(params, func(t *nn.Tape) *nn.Tensor {
		x, y := t.Normalize(t.Dense(a, left, nn.Identity)), t.Normalize(t.Dense(b, right, nn.Identity))
		near := t.Multiply(t.MatMul(x, y, nn.MatMul{TransposeB: true}), t.Scale(t.Parameter(temperature), 10))
		rows, found := t.SoftmaxCrossEntropy(near, own)
		columns, _ := t.SoftmaxCrossEntropy(t.Transpose(near), own)
		correct = found
		return t.Scale(t.Add(rows, columns), 0.5)
	}, 0.3, 200)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(first > 2, last < 0.1, correct, "of", n)
	// Output: true true 16 of 16
}

// An operation of one's own: the softplus, log(1 + exp(x)), whose slope is the sigmoid.
func ExampleTape_Apply() {
	softplus := &nn.Operation{
		Name: "softplus",
		Forward: func(p *nn.Pass) {
			for i, v := range p.Inputs[0].Data {
				p.Output.Data[i] = float32(math.Log1p(math.Exp(float64(v))))
			}
		},
		Backward: func(p *nn.Pass) {
			if dx := p.InputGrads[0]; dx != nil {
				for i, v := range p.Inputs[0].Data {
					dx[i] += p.OutputGrad[i] / float32(1+math.Exp(-float64(v)))
				}
			}
		},
	}
	x := nn.NewTensor(3)
	copy(x.Data, []float32{-1, 0, 1})
	x.RetainGrad()
	tape := nn.NewTape(nn.TapeConfig{})
	defer tape.Close()
	y := tape.Apply(softplus, x.Shape, []*nn.Tensor{x})
	tape.Backward(tape.Sum(y), nil)
	fmt.Printf("%.3f %.3f\n", y.Data, x.Grad())
	// Output: [0.313 0.693 1.313] [0.269 0.500 0.731]
}

// A model that is cut in two: what another process computes of it gives back the gradients of the first half's outputs.
func ExampleTape_BackwardFrom() {
	params := nn.NewParams(1)
	layer := params.Dense("first", 2, 2)
	x := nn.NewTensor(1, 2)
	copy(x.Data, []float32{1, 2})
	half := func(t *nn.Tape) []*nn.Tensor { return []*nn.Tensor{t.Dense(x, layer, nn.Identity)} }
	if err := params.ArrangeOutputs(half); err != nil {
		fmt.Println(err)
	}
	tape := nn.NewTape(nn.TapeConfig{})
	defer tape.Close()
	out := half(tape)
	tape.BackwardFrom(out, [][]float32{{10, 100}}, func(slot int) { fmt.Println(params.Slots()[slot].Name, params.List()[slot].Grad) })
	// Output:
	// first.weight [10 20 100 200]
	// first.bias [10 100]
}
