package nn

import (
	"errors"
	"fmt"
)

// Node is a recorded operation, for those who write a network down in another form. Tensors and
// parameters are told apart by their addresses: an input that no node has as its output is one of
// the network's own.
type Node struct {
	// Op is the operation: the name of the Tape's method in small letters, such as "conv2d". Name
	// is that of an Operation of one's own, whose Op is "apply".
	Op, Name string
	// Inputs are the tensors that it reads, in the order of the method; nil where one was left out.
	Inputs []*Tensor
	Output *Tensor
	// Params are the parameters that it reads, in the order of its layer's fields; nil where one is
	// absent.
	Params []*Param
	// Buffers are those of a batch normalisation: the running mean and variance.
	Buffers []*Buffer
	Table   *Table  // of "embeddingtable"
	IDs     []int32 // of "embedding" and "embeddingtable": the slice that the method was given
	// State is what an "lstm" begins with and leaves, or, H alone, a "gru"; nil: it begins with
	// zeros.
	State *LSTMState
	// Activation is applied to the result, after all else.
	Activation Activation
	// Attrs are the method's numbers by name, such as "stride".
	Attrs map[string]float64
	// Axes are those of the operation, from 0, ascending where their order means nothing.
	Axes []int
}

// noder is an operation that says what it is. It is asked when a tape is, and not while it is
// recorded.
type noder interface{ node() Node }

// Nodes are the recorded operations in order. It is an error if one of them does not say what it
// is.
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

// Trace records what forward does on a tape in an evaluation, without computing it, and returns the
// operations in order: results have shapes alone. It costs next to nothing, and memory that is
// never touched. Operands that do not fit are an error, as are operations that do not say what they
// are.
func Trace(forward func(t *Tape)) (nodes []Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			var shape *ShapeError
			if is, ok := r.(error); !ok || !errors.As(is, &shape) {
				panic(r)
			}
			nodes, err = nil, shape
		}
	}()
	t := NewTape(TapeConfig{})
	defer t.Close()
	t.pool.dry = true
	t.ResetEval()
	forward(t)
	return t.Nodes()
}
