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
	// State is the initial and final state of an "lstm" or, in H, of a "gru"; nil means an initial
	// state of zeros.
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
// returns them in order: results have shapes only. It takes little time, and its memory is never
// touched. Operands that do not fit are an error, as are operations without a description.
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
