package onnx

import (
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// own is a model of one's own that takes samples of the given shape, and ids.
func own(input []int, ids int, build func(ps *nn.Params) func(t *nn.Tape, b model.Batch) model.Outputs) model.Spec {
	return model.Spec{
		Name: "own", Input: input, IDs: ids, Classes: 2,
		Build: func(ps *nn.Params, _ model.Options) model.Model { return model.Model{Forward: build(ps)} },
	}
}

// of is a model of one's own of one tensor to another.
func of(input []int, build func(ps *nn.Params) nn.Block) model.Spec {
	return own(input, 0, func(ps *nn.Params) func(t *nn.Tape, b model.Batch) model.Outputs {
		f := build(ps)
		return func(t *nn.Tape, b model.Batch) model.Outputs { return model.Outputs{f(t, b.Values)} }
	})
}

// plain is of a function of no parameters.
func plain(f nn.Block) func(*nn.Params) nn.Block { return func(*nn.Params) nn.Block { return f } }

// steps is the order of samples' steps that recurrent layers take: [n, steps, in] becomes [steps·n, in].
func steps(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
	return t.Reshape(t.Transpose(x, 1, 0, 2), x.Shape[0]*x.Shape[1], x.Shape[2])
}

// operations are models of one's own, by what is special about them.
var operations = map[string]model.Spec{
	"activations": of([]int{5}, plain(func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
		return t.GELU(t.Sigmoid(t.Tanh(t.ReLU(t.Scale(x, -1.5)))))
	})),
	"dense without bias": of([]int{6}, func(ps *nn.Params) nn.Block {
		l := nn.Layer{W: ps.New("w", nn.FanIn(6), 4, 6)}
		return func(t *nn.Tape, x *nn.Tensor) *nn.Tensor { return t.Dense(x, l, nn.GELU) }
	}),
	"broadcasting": of([]int{3, 4}, func(ps *nn.Params) nn.Block {
		p, q := ps.New("p", nn.FanIn(1), 4), ps.New("q", nn.FanIn(1), 3, 1)
		return func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
			y := t.Multiply(t.Subtract(x, t.Parameter(p)), t.Parameter(q))
			return t.Add(y, t.Broadcast(t.Parameter(p), x.Shape[0], 3, 4))
		}
	}),
	"broadcasting of images": of([]int{4, 5, 3}, func(ps *nn.Params) nn.Block {
		l, p, q := ps.Conv2D("conv", 3, 2, 3), ps.New("p", nn.FanIn(1), 2), ps.New("q", nn.FanIn(1), 1, 2, 3, 1)
		return func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
			y := t.Conv2D(x, l, nn.Conv{})
			return t.Flatten(t.Multiply(t.Add(y, t.Parameter(p)), t.Parameter(q)))
		}
	}),
	"concat and slice of images": of([]int{4, 5, 3}, func(ps *nn.Params) nn.Block {
		l := ps.Conv2D("conv", 3, 2, 3)
		return func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
			y := t.Concat(-1, x, t.Conv2D(x, l, nn.Conv{Pad: 1}))
			return t.Flatten(t.Slice(t.Slice(y, 3, 1, 4), 1, 2, 4))
		}
	}),
	"dense behind a flatten, twice": of([]int{4, 5, 3}, func(ps *nn.Params) nn.Block {
		conv, dense := ps.Conv2D("conv", 3, 2, 3), ps.Dense("dense", 2*3*2, 3)
		return func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
			flat := t.Tanh(t.Flatten(t.Conv2D(x, conv, nn.Conv{Activation: nn.ReLU})))
			return t.Concat(1, t.Dense(flat, dense, nn.Identity), t.Softmax(flat))
		}
	}),
	"strides and pooling": of([]int{9, 8, 3}, func(ps *nn.Params) nn.Block {
		l := ps.Conv2D("conv", 3, 4, 3)
		return func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
			y := t.Conv2D(x, l, nn.Conv{Stride: 2, Pad: 1})
			y = t.Concat(3, t.MaxPool(y, nn.Pool{Size: 3, Stride: 2, Pad: 1}), t.AvgPool(y, nn.Pool{Size: 3, Stride: 2, Pad: 1}))
			return t.GlobalAvgPool(t.SubsamplePad(y, 2, 11))
		}
	}),
	"images from rows": of([]int{24}, func(ps *nn.Params) nn.Block {
		l := ps.Conv2D("conv", 2, 3, 3)
		return func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
			return t.Mean(t.Conv2D(t.Reshape(x, x.Shape[0], 3, 4, 2), l, nn.Conv{Pad: 1}), 1, 2)
		}
	}),
	"normalisations": of([]int{6}, func(ps *nn.Params) nn.Block {
		batch, layer, group := ps.BatchNorm("b", 6), ps.LayerNorm("l", 6), ps.LayerNorm("g", 6)
		return func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
			return t.Normalize(t.GroupNorm(t.LayerNorm(t.BatchNorm(x, batch, x, nn.ReLU), layer), group, 3))
		}
	}),
	"group norm of images and sequences": of([]int{3, 2, 4}, func(ps *nn.Params) nn.Block {
		a, b := ps.LayerNorm("a", 4), ps.LayerNorm("b", 4)
		return func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
			x = t.GroupNorm(x, a, 2)
			return t.GroupNorm(t.Reshape(x, x.Shape[0], 6, 4), b, 1)
		}
	}),
	"sums": of([]int{3, 4}, plain(func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
		return t.Add(t.Sum(x, 1, 2), t.RowDot(t.Mean(x, -1), t.LogSoftmax(t.Mean(x, 2))))
	})),
	"a number for the whole batch": of([]int{3}, plain(func(t *nn.Tape, x *nn.Tensor) *nn.Tensor { return t.Sum(t.Mean(x, 0)) })),
	"products": of([]int{3, 4}, func(ps *nn.Params) nn.Block {
		p := ps.New("p", nn.FanIn(1), 3, 4)
		return func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
			square := t.MatMul(x, x, nn.MatMul{TransposeB: true})
			return t.MatMul(t.MatMul(square, t.Parameter(p), nn.MatMul{TransposeA: true}), t.Parameter(p), nn.MatMul{TransposeB: true})
		}
	}),
	"all pairs of a batch": of([]int{4}, plain(func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
		return t.MatMul(t.Normalize(x), x, nn.MatMul{TransposeB: true})
	})),
	"lstm from zeros, its last step": of([]int{3, 4}, func(ps *nn.Params) nn.Block {
		l := ps.LSTM("lstm", nn.FanIn(5), 4, 5)
		return func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
			n := x.Shape[0]
			return t.Slice(t.LSTM(steps(t, x), l, nil, 3), 0, 2*n, 3*n)
		}
	}),
	"gru, gathered": of([]int{3, 4}, func(ps *nn.Params) nn.Block {
		l := ps.GRU("gru", nn.FanIn(5), 4, 5)
		return func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
			var last []int32
			for i := range x.Shape[0] {
				last = append(last, int32(2*x.Shape[0]+i), int32(i))
			}
			return t.Reshape(t.Gather(t.GRU(steps(t, x), l, nil, 3), last), x.Shape[0], 10)
		}
	}),
	"a constant of the program": of([]int{3}, plain(func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
		return t.Multiply(x, &nn.Tensor{Shape: []int{3}, Data: []float32{1, -2, 3}})
	})),
	"values under another shape": of([]int{3, 4}, plain(func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
		return t.Softmax(&nn.Tensor{Shape: []int{x.Shape[0] * 3, 4}, Data: x.Data})
	})),
	"columns of ids": own([]int{2}, 5, func(ps *nn.Params) func(t *nn.Tape, b model.Batch) model.Outputs {
		user, item, table := ps.New("user", nn.FanIn(1), 20, 3), ps.New("item", nn.FanIn(1), 20, 3), ps.NewTable("table", nn.UniformRows(1), 20, 2)
		return func(t *nn.Tape, b model.Batch) model.Outputs {
			var users, items []int32
			for i := range b.N {
				users, items = append(users, b.IDs[5*i+3]), append(items, b.IDs[5*i], b.IDs[5*i+2])
			}
			u, v := t.Embedding(users, user), t.Reshape(t.Embedding(items, item), b.N, 2, 3)
			return model.Outputs{t.RowDot(u, t.Sum(v, 1)), t.EmbeddingTable(b.IDs, b.N, table, b.Values)}
		}
	}),
}

func TestOperations(t *testing.T) {
	for name, spec := range operations {
		t.Run(name, func(t *testing.T) {
			c := newTrial(t, spec, model.Options{}, Config{})
			for _, n := range []int{1, 4} {
				c.agree(t, n, 20)
			}
		})
	}
}

// What the graph cannot have is refused, with the operation and what to do.
func TestRefuses(t *testing.T) {
	twice := &nn.Operation{Name: "twice", Forward: func(p *nn.Pass) {}}
	for want, spec := range map[string]model.Spec{
		`"twice": ONNX knows nothing of it; compute it by operations of the tape, or export the weights alone`: of([]int{3}, plain(func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
			return t.Apply(twice, x.Shape, []*nn.Tensor{x})
		})),
		"got [5], want one of the activations": of([]int{3}, func(ps *nn.Params) nn.Block { // a new activation needs a form in layers.go
			l := ps.Dense("l", 3, 2)
			return func(t *nn.Tape, x *nn.Tensor) *nn.Tensor { return t.Dense(x, l, nn.GELU+1) }
		}),
		"if it is a loss, it belongs in the model's Loss": of([]int{3}, plain(func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
			return t.MeanSquaredError(x, t.Tanh(x))
		})),
		"is neither the batch's values nor the result of an operation, and changes with the batch": of([]int{3}, plain(func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
			half := nn.NewTensor(3)
			for i := range half.Data {
				half.Data[i] = x.Data[i] / 2
			}
			return t.Add(x, half)
		})),
		"the model's Forward must do the same whatever the batch": of([]int{3}, plain(func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
			if x.Shape[0] > 2 {
				return t.Tanh(x)
			}
			return t.Sigmoid(x)
		})),
		"want sizes that grow by as much with each sample": of([]int{4}, plain(func(t *nn.Tape, x *nn.Tensor) *nn.Tensor {
			return t.Reshape(t.MatMul(x, x, nn.MatMul{TransposeB: true}), x.Shape[0]*x.Shape[0])
		})),
		"looks up ids that the model computes from the batch's own in Go": own(nil, 2, func(ps *nn.Params) func(t *nn.Tape, b model.Batch) model.Outputs {
			p := ps.New("p", nn.FanIn(1), 20, 3)
			return func(t *nn.Tape, b model.Batch) model.Outputs {
				var ids []int32
				for _, id := range b.IDs {
					ids = append(ids, id%7)
				}
				return model.Outputs{t.Embedding(ids, p)}
			}
		}),
		"for some ids and": own(nil, 2, func(ps *nn.Params) func(t *nn.Tape, b model.Batch) model.Outputs {
			p := ps.New("p", nn.FanIn(1), 20, 3)
			return func(t *nn.Tape, b model.Batch) model.Outputs {
				if y := t.Embedding(b.IDs, p); b.IDs[0] == 0 {
					return model.Outputs{t.Tanh(y)}
				} else {
					return model.Outputs{y}
				}
			}
		}),
		"in no order that can be exported": own(nil, 2, func(ps *nn.Params) func(t *nn.Tape, b model.Batch) model.Outputs {
			p := ps.New("p", nn.FanIn(1), 20, 3)
			return func(t *nn.Tape, b model.Batch) model.Outputs {
				ids := append([]int32{}, b.IDs...)
				ids[0], ids[1] = ids[1], ids[0] // of the first sample alone
				return model.Outputs{t.Embedding(ids, p)}
			}
		}),
	} {
		ps := nn.NewParams(1)
		_, err := New(spec, spec.Build(ps, model.Options{}), ps, Config{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
