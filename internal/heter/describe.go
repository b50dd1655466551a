package heter

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/ringo-ml/ringo/nn"
)

// describe writes what an operation is, for a hash: the same for the same operation.
func describe(w io.Writer, n nn.Node) {
	fmt.Fprintf(w, "%s %q %v %d %v;", n.Op, n.Name, n.Output.Shape, n.Activation, n.Axes)
	for _, x := range n.Inputs {
		if x != nil {
			fmt.Fprintf(w, "in %v;", x.Shape)
		}
	}
	for _, p := range n.Params {
		if p != nil {
			fmt.Fprintf(w, "parameter %q %v %t;", p.Name, p.Shape, p.Frozen())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.Attrs)) {
		fmt.Fprintf(w, "%s %v;", name, n.Attrs[name])
	}
}
