package nn

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/golden"
)

// goldenRun runs a golden case: it makes the parameters in g.ps, and returns
// the function that records the operation.
type goldenRun func(g *goldenCase) func(t *Tape) *Tensor

// goldenRuns are the operations that golden files name.
var goldenRuns = map[string]goldenRun{
	"avgpool":        goldenPool((*Tape).AvgPool),
	"batchnorm":      goldenBatchNorm,
	"batchnorm-eval": goldenBatchNorm,
	"conv":           goldenConv,
	"dense":          goldenDense,
	"attention":      goldenAttention,
	"embedding":      goldenEmbedding,
	"bce":            goldenLogistic,
	"groupnorm":      goldenGroupNorm,
	"gru":            goldenGRU,
	"huber":          goldenHuber,
	"matmul":         goldenMatMul,
	"gelu":           goldenUnary((*Tape).GELU),
	"globalavgpool":  goldenUnary((*Tape).GlobalAvgPool),
	"layernorm":      goldenLayerNorm,
	"lstm":           goldenLSTM,
	"maxpool":        goldenPool((*Tape).MaxPool),
	"relu":           goldenUnary((*Tape).ReLU),
	"shortcut":       goldenShortcut,
	"sigmoid":        goldenUnary((*Tape).Sigmoid),
	"softmaxce":      goldenLoss,
	"tanh":           goldenUnary((*Tape).Tanh),
}

func init() {
	for name, op := range map[string]func(t *Tape, x, z *Tensor) *Tensor{
		"add": (*Tape).Add, "subtract": (*Tape).Subtract, "multiply": (*Tape).Multiply, "rowdot": (*Tape).RowDot,
		"concat": func(t *Tape, x, z *Tensor) *Tensor { return t.Concat(1, x, z, x) },
		"mse":    (*Tape).MeanSquaredError,
	} {
		goldenRuns[name] = func(g *goldenCase) func(t *Tape) *Tensor {
			x, z := g.input("x"), g.input("z")
			return func(t *Tape) *Tensor { return op(t, x, z) }
		}
	}
	for name, op := range map[string]func(t *Tape, x *Tensor) *Tensor{
		"softmax": (*Tape).Softmax, "logsoftmax": (*Tape).LogSoftmax, "normalise": (*Tape).Normalize,
	} {
		goldenRuns[name] = goldenUnary(op)
	}
	for name, run := range map[string]func(g *goldenCase, t *Tape, x *Tensor) *Tensor{
		"sum":  func(g *goldenCase, t *Tape, x *Tensor) *Tensor { return t.Sum(x, g.number("a"), g.number("b")) },
		"mean": func(g *goldenCase, t *Tape, x *Tensor) *Tensor { return t.Mean(x, g.number("a"), g.number("b")) },
		"slice": func(g *goldenCase, t *Tape, x *Tensor) *Tensor {
			return t.Slice(x, g.number("axis"), g.number("lo"), g.number("hi"))
		},
		"transpose": func(g *goldenCase, t *Tape, x *Tensor) *Tensor {
			return t.Transpose(x, g.number("a"), g.number("b"), g.number("c"))
		},
		"gather": func(g *goldenCase, t *Tape, x *Tensor) *Tensor { return t.Gather(x, g.Ints("ids")) },
		"crossentropy": func(g *goldenCase, t *Tape, x *Tensor) *Tensor {
			loss, _, _ := t.CrossEntropy(x, g.Ints("labels"), CrossEntropy{Smoothing: g.Attr("smoothing"), Ignored: []int32{int32(g.Attr("ignored"))}})
			return loss
		},
	} {
		goldenRuns[name] = func(g *goldenCase) func(t *Tape) *Tensor {
			x := g.input("x")
			return func(t *Tape) *Tensor { return run(g, t, x) }
		}
	}
}

func (g *goldenCase) number(name string) int { return int(g.Attr(name)) }

func goldenMatMul(g *goldenCase) func(t *Tape) *Tensor {
	x, z, cfg := g.input("x"), g.input("z"), MatMul{g.Attr("transpose_a") == 1, g.Attr("transpose_b") == 1}
	return func(t *Tape) *Tensor { return t.MatMul(x, z, cfg) }
}

func goldenHuber(g *goldenCase) func(t *Tape) *Tensor {
	x, z, delta := g.input("x"), g.input("z"), float32(g.Attr("delta"))
	return func(t *Tape) *Tensor { return t.Huber(x, z, delta) }
}

func goldenLogistic(g *goldenCase) func(t *Tape) *Tensor {
	x, z := g.input("x"), NewTensor(g.Array("z").Shape...)
	copy(z.Data, g.Floats("z"))
	return func(t *Tape) *Tensor { return t.BinaryCrossEntropy(x, z) }
}

func goldenGroupNorm(g *goldenCase) func(t *Tape) *Tensor {
	x, l, groups := g.input("x"), Norm{Gamma: g.param("gamma"), Beta: g.param("beta")}, g.number("groups")
	return func(t *Tape) *Tensor { return t.GroupNorm(x, l, groups) }
}

func goldenGRU(g *goldenCase) func(t *Tape) *Tensor {
	x, l := g.input("x"), GRULayer{g.param("w_ih0"), g.param("w_hh0"), g.param("b_ih0"), g.param("b_hh0")}
	return func(t *Tape) *Tensor {
		return t.GRU(t.Reshape(x, x.Shape[0]*x.Shape[1], x.Shape[2]), l, slices.Clone(g.Floats("h0")), x.Shape[0])
	}
}

// goldenCase is a file whose operation is being run.
type goldenCase struct {
	*golden.File
	ps      *Params
	inputs  map[string]*Tensor
	params  map[string]*Param
	buffers map[string]*Buffer
}

// input is the file's array as a tensor that gets a gradient.
func (g *goldenCase) input(name string) *Tensor {
	x := NewTensor(g.Array(name).Shape...)
	copy(x.Data, g.Floats(name))
	x.needs = true
	g.inputs[name] = x
	return x
}

// param is the file's array as a parameter; nil when the file has none.
func (g *goldenCase) param(name string) *Param {
	if !g.Has(name) {
		return nil
	}
	p := g.ps.New(name, g.init(name), g.Array(name).Shape...)
	g.params[name] = p
	return p
}

// buffer is the file's array as a buffer; the file may say what it is after a
// step.
func (g *goldenCase) buffer(name string) *Buffer {
	b := g.ps.NewBuffer(name, 0, len(g.Floats(name)))
	copy(b.Data, g.Floats(name))
	g.buffers[name] = b
	return b
}

func (g *goldenCase) init(name string) Init {
	return func(_ *rand.Rand, data []float32) { copy(data, g.Floats(name)) }
}

// activation is the one that the file sets to 1.
func (g *goldenCase) activation() Activation {
	for name, act := range map[string]Activation{"relu": ReLU, "gelu": GELU, "tanh": Tanh, "sigmoid": Sigmoid} {
		if g.Attrs[name] == 1 {
			return act
		}
	}
	return Identity
}

// Each layer agrees with PyTorch's, outputs and gradients, at every level.
func TestGolden(t *testing.T) {
	golden.Each(t, "testdata/golden", func(t *testing.T, f *golden.File) {
		if f.Op == "embeddingbag" {
			return // TestGoldenBags: it has a table in place of parameters
		}
		run := goldenRuns[f.Op]
		if run == nil {
			t.Fatalf("no test runs %q", f.Op)
		}
		eachTape(t, func(t *testing.T, tape *Tape) {
			g := &goldenCase{File: f, ps: NewParams(1), inputs: map[string]*Tensor{}, params: map[string]*Param{}, buffers: map[string]*Buffer{}}
			if f.Has("dy") {
				g.train(t, tape, run(g))
			} else {
				g.evaluate(t, tape, run(g))
			}
		})
	})
}

// train runs the operation forward and backward and compares all that the file
// holds.
func (g *goldenCase) train(t *testing.T, tape *Tape, record func(t *Tape) *Tensor) {
	loss := func(t *Tape) *Tensor { return t.dot(record(t), g.Floats("dy")) }
	if err := g.ps.Arrange(loss); err != nil {
		t.Fatal(err)
	}
	tape.Reset()
	y := record(tape)
	g.Compare(t, "y", y.Data)
	tape.Backward(tape.dot(y, g.Floats("dy")), func(int) {})
	for name, x := range g.inputs {
		g.Compare(t, "d"+name, x.gradient())
	}
	for name, p := range g.params {
		g.Compare(t, "d"+name, p.Grad)
	}
	for name, b := range g.buffers {
		g.Compare(t, name+"_after", b.Data)
	}
}

// evaluate runs the operation forward, in evaluation, and compares the result.
func (g *goldenCase) evaluate(t *testing.T, tape *Tape, record func(t *Tape) *Tensor) {
	loss := func(t *Tape) *Tensor {
		t.ResetEval()
		return t.dot(record(t), g.Floats("y"))
	}
	if err := g.ps.Arrange(loss); err != nil {
		t.Fatal(err)
	}
	tape.ResetEval()
	g.Compare(t, "y", record(tape).Data)
}

func goldenDense(g *goldenCase) func(t *Tape) *Tensor {
	x, l, act := g.input("x"), Layer{W: g.param("w"), B: g.param("b")}, g.activation()
	return func(t *Tape) *Tensor { return t.Dense(x, l, act) }
}

func goldenConv(g *goldenCase) func(t *Tape) *Tensor {
	x, l := g.input("x"), Layer{W: g.param("w"), B: g.param("b")}
	cfg := Conv{Stride: int(g.Attr("stride")), Pad: int(g.Attr("pad")), MaxPool2: g.Attr("maxpool2") == 1, Activation: g.activation()}
	return func(t *Tape) *Tensor { return t.Conv2D(x, l, cfg) }
}

func goldenBatchNorm(g *goldenCase) func(t *Tape) *Tensor {
	x, act := g.input("x"), g.activation()
	l := Norm{Gamma: g.param("gamma"), Beta: g.param("beta"), Mean: g.buffer("mean"), Var: g.buffer("var")}
	var residual *Tensor
	if g.Has("residual") {
		residual = g.input("residual")
	}
	return func(t *Tape) *Tensor { return t.BatchNorm(x, l, residual, act) }
}

func goldenUnary(op func(t *Tape, x *Tensor) *Tensor) goldenRun {
	return func(g *goldenCase) func(t *Tape) *Tensor {
		x := g.input("x")
		return func(t *Tape) *Tensor { return op(t, x) }
	}
}

func goldenPool(op func(t *Tape, x *Tensor, p Pool) *Tensor) goldenRun {
	return func(g *goldenCase) func(t *Tape) *Tensor {
		x, p := g.input("x"), Pool{Size: int(g.Attr("size")), Stride: int(g.Attr("stride")), Pad: int(g.Attr("pad"))}
		return func(t *Tape) *Tensor { return op(t, x, p) }
	}
}

func goldenShortcut(g *goldenCase) func(t *Tape) *Tensor {
	x, stride, channels := g.input("x"), int(g.Attr("stride")), int(g.Attr("channels"))
	return func(t *Tape) *Tensor { return t.SubsamplePad(x, stride, channels) }
}

func goldenLayerNorm(g *goldenCase) func(t *Tape) *Tensor {
	x, l := g.input("x"), Norm{Gamma: g.param("gamma"), Beta: g.param("beta")}
	return func(t *Tape) *Tensor { return t.LayerNorm(x, l) }
}

func goldenLoss(g *goldenCase) func(t *Tape) *Tensor {
	x, labels := g.input("x"), g.Ints("labels")
	return func(t *Tape) *Tensor {
		loss, _ := t.SoftmaxCrossEntropy(x, labels)
		return loss
	}
}

func goldenEmbedding(g *goldenCase) func(t *Tape) *Tensor {
	p, ids := g.param("table"), g.Ints("ids")
	return func(t *Tape) *Tensor { return t.Embedding(ids, p) }
}

// The row-sparse table agrees too, its untouched rows having no gradient.
func TestGoldenTable(t *testing.T) {
	golden.Each(t, "testdata/golden", func(t *testing.T, f *golden.File) {
		if f.Op != "embedding" {
			return
		}
		shape, ids := f.Array("table").Shape, f.Ints("ids")
		eachTape(t, func(t *testing.T, tape *Tape) {
			g := &goldenCase{File: f, ps: NewParams(1)}
			tab := g.ps.NewTable("table", UniformRows(1), shape[0], shape[1])
			g.init("table")(nil, tab.Data)
			g.train(t, tape, func(t *Tape) *Tensor { return t.EmbeddingTable(ids, len(ids), tab, nil) })
			touched, rows := tab.Grad()
			all := make([]float32, shape[0]*shape[1])
			for i, id := range touched {
				copy(all[int(id)*shape[1]:], rows[i*shape[1]:(i+1)*shape[1]])
			}
			g.Compare(t, "dtable", all)
		})
	})
}

func goldenLSTM(g *goldenCase) func(t *Tape) *Tensor {
	var layers []LSTMLayer
	for i := range int(g.Attr("layers")) {
		p := func(name string) *Param { return g.param(fmt.Sprintf("%s%d", name, i)) }
		layers = append(layers, LSTMLayer{p("w_ih"), p("w_hh"), p("b_ih"), p("b_hh")})
	}
	x := g.input("x")
	h, c := g.Floats("h0"), g.Floats("c0")
	size := len(h) / len(layers)
	steps := x.Shape[0]
	return func(t *Tape) *Tensor {
		y := t.Reshape(x, steps*x.Shape[1], x.Shape[2])
		for i, l := range layers {
			state := LSTMState{slices.Clone(h[i*size:][:size]), slices.Clone(c[i*size:][:size])}
			y = t.LSTM(y, l, &state, steps)
		}
		return y
	}
}

func goldenAttention(g *goldenCase) func(t *Tape) *Tensor {
	x, heads := g.input("x"), int(g.Attr("heads"))
	in, out := Layer{W: g.param("w_qkv"), B: g.param("b_qkv")}, Layer{W: g.param("w_out"), B: g.param("b_out")}
	n, steps, width := x.Shape[0], x.Shape[1], x.Shape[2]
	return func(t *Tape) *Tensor {
		qkv := t.Dense(t.Reshape(x, n*steps, width), in, Identity)
		return t.Dense(t.Attention(qkv, heads, steps), out, Identity)
	}
}
