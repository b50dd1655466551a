// Package weights converts parameters between a model and the names and layouts of PyTorch's
// state_dict, in both directions. The differences:
//
//	convolution   here [kh, kw, in, out]                     there [out, in, kh, kw]
//	dense         [out, in] in both; behind a flatten of images the inputs are
//	              here height, width, channel                there channel, height, width
//	batch norm    the running statistics are buffers         and num_batches_tracked, unused here
//	LSTM          gates i, f, g, o in both
//
// All other layouts are equal. Files have the safetensors format, a JSON header and plain values,
// or NumPy's .npz.
package weights

import (
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/nn"
)

// Tensor is a named array in row-major order: of Data, or of Ints where Data is nil.
type Tensor struct {
	Name  string
	Shape []int
	Data  []float32
	Ints  []int64
}

// Len is the number of values of the shape.
func (t Tensor) Len() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// place maps a tensor's values to a parameter's: axis i has length dims[i] and stride strides[i].
type place struct {
	name          string
	shape         []int // PyTorch's shape
	data          []float32
	dims, strides []int // nil: equal layout
	elsewhere     bool  // a table with rows on servers
}

// each calls f with each value's index in PyTorch and in the parameter, in PyTorch's order.
func (p place) each(f func(there, here int)) {
	if p.dims == nil {
		for i := range p.data {
			f(i, i)
		}
		return
	}
	at := make([]int, len(p.dims))
	here := 0
	for there := range p.data {
		f(there, here)
		for a := len(at) - 1; a >= 0; a-- {
			at[a]++
			here += p.strides[a]
			if at[a] < p.dims[a] {
				break
			}
			here -= at[a] * p.strides[a]
			at[a] = 0
		}
	}
}

const tracked = ".num_batches_tracked"

// Names translates a parameter's name into its name in PyTorch; nil keeps all names.
type Names func(name string) string

// Model is a model with parameters to export or load.
type Model struct {
	places []place
	norms  []string // running variances of normalisations, which count batches in PyTorch
}

// Of derives the layouts of a model's parameters from their use: nodes are the result of nn.Trace.
func Of(ps *nn.Params, nodes []nn.Node, names Names) Model {
	if names == nil {
		names = func(name string) string { return name }
	}
	use := usesOf(nodes)
	var m Model
	for _, p := range ps.List() {
		out := place{name: names(p.Name), shape: p.Shape, data: p.Data}
		s := p.Shape
		switch img, flat := use.flat[p]; {
		case use.conv[p] && len(s) == 4:
			out.shape = []int{s[3], s[2], s[0], s[1]}
			out.dims, out.strides = out.shape, []int{1, s[3], s[1] * s[2] * s[3], s[2] * s[3]}
		case flat && len(s) == 2:
			h, w, c := img[0], img[1], img[2]
			out.dims, out.strides = []int{s[0], c, h, w}, []int{s[1], 1, w * c, c}
		}
		m.places = append(m.places, out)
	}
	for _, t := range ps.Tables() {
		m.places = append(m.places, place{name: names(t.Name), shape: []int{t.Rows, t.Dim}, data: t.Data, elsewhere: len(t.Data) != t.Rows*t.Dim})
	}
	for _, b := range ps.BufferList() {
		name := names(b.Name)
		m.places = append(m.places, place{name: name, shape: []int{len(b.Data)}, data: b.Data})
		if norm, is := strings.CutSuffix(name, ".running_var"); is {
			m.norms = append(m.norms, norm)
		}
	}
	slices.SortStableFunc(m.places, func(a, b place) int { return strings.Compare(a.name, b.name) })
	return m
}

// uses are the parameters with a special layout.
type uses struct {
	conv map[*nn.Param]bool
	flat map[*nn.Param][3]int // height, width and channels before the flatten
}

func usesOf(nodes []nn.Node) uses {
	u := uses{conv: map[*nn.Param]bool{}, flat: map[*nn.Param][3]int{}}
	images := map[*nn.Tensor][3]int{} // flattened images
	for _, n := range nodes {
		var x *nn.Tensor
		if len(n.Inputs) > 0 {
			x = n.Inputs[0]
		}
		switch n.Op {
		case "conv2d":
			u.conv[n.Params[0]] = true
		case "reshape":
			if s := x.Shape; len(s) == 4 && len(n.Output.Shape) == 2 && s[0] == n.Output.Shape[0] && s[1]*s[2] > 1 && s[3] > 1 {
				images[n.Output] = [3]int{s[1], s[2], s[3]}
			}
		case "dropout", "activate", "detach":
			if img, ok := images[x]; ok {
				images[n.Output] = img
			}
		case "dense":
			if img, ok := images[x]; ok {
				u.flat[n.Params[0]] = img
			}
		}
	}
	return u
}

// Take returns the parameters in PyTorch's layouts, sorted by name; num_batches_tracked is 0.
// Tensors of equal layout are not copied. Rows on servers are omitted.
func (m Model) Take() []Tensor {
	var out []Tensor
	for _, p := range m.places {
		if p.elsewhere {
			continue
		}
		t := Tensor{Name: p.name, Shape: p.shape, Data: p.data}
		if p.dims != nil {
			t.Data = make([]float32, len(p.data))
			p.each(func(there, here int) { t.Data[there] = p.data[here] })
		}
		out = append(out, t)
	}
	for _, name := range m.norms {
		out = append(out, Tensor{Name: name + tracked, Shape: []int{}, Ints: []int64{0}})
	}
	slices.SortStableFunc(out, func(a, b Tensor) int { return strings.Compare(a.Name, b.Name) })
	return out
}
