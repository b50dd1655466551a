package nn

import (
	"errors"
	"fmt"
)

// Node is a recorded operation, for exporters of a network. Tensors and parameters are identified
// by address: an input that is no node's output is an input of the network.
type Node struct {
	// Op is the operation: the name of the Tape's method in lower case, such as "conv2d". Name is
	// the name of a custom Operation, with Op "apply".
	Op, Name string
	// Inputs are the operation's input tensors, in the order of the method; nil if omitted.
	Inputs []*Tensor
	Output *Tensor
	// Params are the operation's parameters, in the order of its layer's fields; nil if absent.
	Params []*Param
	// Buffers are the running mean and variance of a batch normalisation.
	Buffers []*Buffer
	Table   *Table  // table of "embeddingtable"
	IDs     []int32 // argument of "embedding" and "embeddingtable"
	// State is the state before and after an "lstm" or, in the field H, a "gru"; nil means that the
	// operation starts from zeros.
	State *LSTMState
	// Activation is applied to the result, after all else.
	Activation Activation
	// Attrs are the method's numbers by name, such as "stride".
	Attrs map[string]float64
	// Axes are the axes of the operation, from 0, ascending if their order is irrelevant.
	Axes []int
}

// noder is an operation that describes itself after the recording.
type noder interface{ node() Node }

// Nodes returns the recorded operations in order. An operation without a description is an error.
func (t *Tape) Nodes() ([]Node, error) {
	nodes := make([]Node, 0, t.n)
	for i, o := range t.ops[:t.n] {
		n, ok := o.(noder)
		if !ok {
			return nil, fmt.Errorf("nn: operation %d, %T with a result %v, does not say what it computes and cannot be written down", i, o, o.result().Shape)
		}
		node := n.node()
		node.Output = o.result()
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// Trace records the operations of forward on a tape in an evaluation, without computing, and
// returns them in order: results have shapes only. It takes little time and memory. Operands that
// do not fit are an error, as are operations without a description.
func Trace(forward func(t *Tape)) (nodes []Node, err error) {
	defer recoverShape(&err)
	t := NewTape(TapeConfig{})
	defer t.Close()
	t.pool.dry = true
	t.ResetEval()
	forward(t)
	return t.Nodes()
}

// recoverShape, deferred by a dry run, returns a panic about operands that do not fit as an error.
func recoverShape(err *error) {
	if r := recover(); r != nil {
		var shape *ShapeError
		if is, ok := r.(error); !ok || !errors.As(is, &shape) {
			panic(r)
		}
		*err = shape
	}
}

func (o *denseOp) node() Node {
	return Node{Op: "dense", Inputs: []*Tensor{o.x}, Params: []*Param{o.l.W, o.l.B}, Activation: o.act}
}

// node has the attributes stride, pad, maxpool2, 1 for max-pooling of the result before the
// activation, and winograd, 1 for a shape whose training uses Winograd's algorithm, 2 if also bf16
// rounds the operands of the gradients.
func (o *convOp) node() Node {
	n := Node{Op: "conv2d", Inputs: []*Tensor{o.x}, Params: []*Param{o.l.W, o.l.B}, Activation: o.cfg.Activation}
	n.Attrs = map[string]float64{"stride": float64(max(1, o.cfg.Stride)), "pad": float64(o.cfg.Pad), "maxpool2": 0, "winograd": 0}
	if winogradPays(o.win, o.out, o.cfg) {
		n.Attrs["winograd"] = 1
		if min(o.win.Channels, o.out) >= roundedChannels {
			n.Attrs["winograd"] = 2
		}
	}
	if o.cfg.MaxPool2 {
		n.Attrs["maxpool2"] = 1
	}
	return n
}

func (o *activationOp) node() Node {
	return Node{Op: "activate", Inputs: []*Tensor{o.x}, Activation: o.act}
}

func (o *addOp) node() Node     { return Node{Op: "add", Inputs: []*Tensor{o.a, o.b}} }
func (o *reshapeOp) node() Node { return Node{Op: "reshape", Inputs: []*Tensor{o.x}} }
func (o *dropoutOp) node() Node { return Node{Op: "dropout", Inputs: []*Tensor{o.x}} }

// node has the residual as second input.
func (o *batchNormOp) node() Node {
	return Node{
		Op: "batchnorm", Inputs: []*Tensor{o.x, o.r}, Activation: o.act,
		Params: []*Param{o.l.Gamma, o.l.Beta}, Buffers: []*Buffer{o.l.Mean, o.l.Var},
	}
}

func (o *layerNormOp) node() Node {
	return Node{Op: "layernorm", Inputs: []*Tensor{o.x}, Params: []*Param{o.l.Gamma, o.l.Beta}}
}

// node has the attributes size, stride and pad.
func (o *windowOp) node() Node {
	w := o.plan.Window
	n := Node{Op: "maxpool", Inputs: []*Tensor{o.x}, Attrs: map[string]float64{"size": float64(w.Size), "stride": float64(w.Stride), "pad": float64(w.Pad)}}
	if o.mean {
		n.Op = "avgpool"
	}
	return n
}

func (o *globalPoolOp) node() Node { return Node{Op: "globalavgpool", Inputs: []*Tensor{o.x}} }

// node has the attribute stride.
func (o *subsampleOp) node() Node {
	return Node{Op: "subsamplepad", Inputs: []*Tensor{o.x}, Attrs: map[string]float64{"stride": float64(o.stride)}}
}

func (o *embeddingOp) node() Node {
	return Node{Op: "embedding", Params: []*Param{o.p}, IDs: o.ids}
}

// node has rest as input and, for bags, the attributes first, slots, steps and pooling (a Pooling).
func (o *tableLookupOp) node() Node {
	if o.slots > 0 {
		return Node{Op: "embeddingbag", Inputs: []*Tensor{o.rest}, Table: o.tab, Attrs: map[string]float64{
			"first": float64(o.first), "slots": float64(o.slots), "steps": float64(o.steps), "pooling": float64(o.pool),
		}}
	}
	return Node{Op: "embeddingtable", Inputs: []*Tensor{o.rest}, Table: o.tab, IDs: o.ids}
}

// node has the attributes heads and steps.
func (o *attentionOp) node() Node {
	return Node{Op: "attention", Inputs: []*Tensor{o.x}, Attrs: map[string]float64{"heads": float64(o.heads), "steps": float64(o.steps)}}
}

// node has the attribute steps.
func (o *lstmOp) node() Node {
	l := o.l
	return Node{Op: "lstm", Inputs: []*Tensor{o.x}, Params: []*Param{l.WeightIH, l.WeightHH, l.BiasIH, l.BiasHH}, Attrs: map[string]float64{"steps": float64(o.steps)}, State: o.state}
}

func (o *detachOp) node() Node { return Node{Op: "detach", Inputs: []*Tensor{o.x}} }

func (o *operationOp) node() Node {
	return Node{Op: "apply", Name: o.op.Name, Inputs: o.pass.Inputs, Params: o.pass.Params}
}

func (o *binaryOp) node() Node { return Node{Op: o.kind.String(), Inputs: []*Tensor{o.a, o.b}} }
func (o *expandOp) node() Node { return Node{Op: "broadcast", Inputs: []*Tensor{o.x}} }

// node has the attribute s.
func (o *scaleOp) node() Node {
	return Node{Op: "scale", Inputs: []*Tensor{o.x}, Attrs: map[string]float64{"s": float64(o.s)}}
}

func (o *parameterOp) node() Node { return Node{Op: "parameter", Params: []*Param{o.p}} }

// node has the summed axes as Axes.
func (o *reduceOp) node() Node {
	n := Node{Op: "sum", Inputs: []*Tensor{o.x}}
	if o.mean {
		n.Op = "mean"
	}
	for i := range o.x.Shape {
		if o.reduced[i] {
			n.Axes = append(n.Axes, i)
		}
	}
	return n
}

// node has the axis of concatenation.
func (o *concatOp) node() Node { return Node{Op: "concat", Inputs: o.xs, Axes: []int{o.axis}} }

// node has the attributes lo and hi.
func (o *sliceOp) node() Node {
	return Node{Op: "slice", Inputs: []*Tensor{o.x}, Axes: []int{o.axis}, Attrs: map[string]float64{"lo": float64(o.lo), "hi": float64(o.hi)}}
}

func (o *gatherOp) node() Node { return Node{Op: "gather", Inputs: []*Tensor{o.x}, IDs: o.ids} }

// node has the permutation as Axes: axis i of the result is axis Axes[i] of the input.
func (o *transposeOp) node() Node {
	return Node{Op: "transpose", Inputs: []*Tensor{o.x}, Axes: append([]int(nil), o.from[:len(o.x.Shape)]...)}
}

func (o *rowOp) node() Node {
	n := Node{Op: o.kind.String(), Inputs: []*Tensor{o.a}}
	if o.b != nil {
		n.Inputs = append(n.Inputs, o.b)
	}
	return n
}

// node has the attributes transposea and transposeb, 1 for a transposed factor.
func (o *matMulOp) node() Node {
	n := Node{Op: "matmul", Inputs: []*Tensor{o.a, o.b}, Attrs: map[string]float64{"transposea": 0, "transposeb": 0}}
	if o.cfg.TransposeA {
		n.Attrs["transposea"] = 1
	}
	if o.cfg.TransposeB {
		n.Attrs["transposeb"] = 1
	}
	return n
}

// node has the prediction and the target as inputs; "huber" has the attribute delta.
func (o *pairLossOp) node() Node {
	n := Node{Op: [...]string{"meansquarederror", "huber", "binarycrossentropy"}[o.kind], Inputs: []*Tensor{o.x, o.z}}
	if o.kind == huberLoss {
		n.Attrs = map[string]float64{"delta": float64(o.delta)}
	}
	return n
}

// node has the attribute smoothing.
func (o *crossEntropyOp) node() Node {
	return Node{Op: o.name, Inputs: []*Tensor{o.x}, Attrs: map[string]float64{"smoothing": o.smoothing}}
}

// node has the attribute steps.
func (o *gruOp) node() Node {
	l := o.l
	n := Node{Op: "gru", Inputs: []*Tensor{o.x}, Params: []*Param{l.WeightIH, l.WeightHH, l.BiasIH, l.BiasHH}, Attrs: map[string]float64{"steps": float64(o.steps)}}
	if o.state != nil {
		n.State = &LSTMState{H: o.state}
	}
	return n
}

// node has the attribute groups.
func (o *groupNormOp) node() Node {
	return Node{Op: "groupnorm", Inputs: []*Tensor{o.x}, Params: []*Param{o.l.Gamma, o.l.Beta}, Attrs: map[string]float64{"groups": float64(o.groups)}}
}
