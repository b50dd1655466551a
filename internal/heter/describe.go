package heter

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/ringo-ml/ringo/nn"
)

// describe writes an operation for a hash: equal operations have equal text.
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
