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
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/spelling"
	"github.com/ringo-ml/ringo/nn"
)

// Tensor is a named array in row-major order, with its values in Data or, if Data is nil, in Ints.
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

// place describes where a tensor's values are in a parameter: axis i has length dims[i] and stride
// strides[i].
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

// Fit matches the tensors of a file with the tensors of a model.
type Fit struct {
	// Taken are the names of tensors in both, Unmatched tensors that keep the model's values, and
	// Unused tensors in the file only; each sorted. PyTorch's num_batches_tracked, which ringo does
	// not use, is in no list.
	Taken, Unmatched, Unused []string
	// Elsewhere are tables that both have, if their rows are on servers: the servers decide whether
	// to load them.
	Elsewhere []string

	places []place // one per taken tensor
}

// Fit determines the tensors of a file that the model takes. Tensors named by except keep the
// model's values; nil means none. All tensors of other shapes or types are reported together.
func (m Model) Fit(infos []Info, except func(name string) bool) (Fit, error) {
	var f Fit
	var errs []error
	has := map[string]Info{}
	for _, i := range infos {
		has[i.Name] = i
	}
	for _, p := range m.places {
		i, ok := has[p.name]
		if !ok || except != nil && except(p.name) {
			f.Unmatched = append(f.Unmatched, p.name)
			continue
		}
		delete(has, p.name)
		if err := p.takes(i); err != nil {
			errs = append(errs, err)
			continue
		}
		if p.elsewhere {
			f.Elsewhere = append(f.Elsewhere, p.name)
			continue
		}
		f.Taken, f.places = append(f.Taken, p.name), append(f.places, p)
	}
	for name := range has {
		if !strings.HasSuffix(name, tracked) {
			f.Unused = append(f.Unused, name)
		}
	}
	slices.Sort(f.Unused)
	return f, errors.Join(errs...)
}

// takes returns an error if tensor i does not fit p, or nil.
func (p place) takes(i Info) error {
	switch {
	case i.Shape == nil && i.len() != int64(Tensor{Shape: p.shape}.Len()):
		return fmt.Errorf("%s: the file has %d values, the model has %v", p.name, i.len(), p.shape)
	case i.Shape != nil && !slices.Equal(i.Shape, p.shape):
		return fmt.Errorf("%s: the file has %v, the model has %v", p.name, i.Shape, p.shape)
	case !i.Float():
		return fmt.Errorf("%s: the file has values of type %s, want F32, F16, BF16 or F64", p.name, i.Type)
	}
	return nil
}

// Put overwrites the tensors in f.Taken with the values that read returns by name. If read fails,
// the remaining tensors keep their values.
func (f Fit) Put(read func(name string) ([]float32, error)) error {
	for _, p := range f.places {
		data, err := read(p.name)
		if err != nil {
			return err
		}
		if len(data) != len(p.data) {
			return fmt.Errorf("weights: %s has %d values, want %d", p.name, len(data), len(p.data))
		}
		p.each(func(there, here int) { p.data[here] = data[there] })
	}
	return nil
}

// Names are the names of the model's tensors, sorted.
func (m Model) Names() []string {
	out := make([]string, len(m.places))
	for i, p := range m.places {
		out[i] = p.name
	}
	return out
}

// Put overwrites the whole model with the tensors that read returns by name. It first reports all
// tensors that are missing, of another shape or unknown, together.
func (m Model) Put(infos []Info, read func(name string) ([]float32, error)) error {
	f, err := m.Fit(infos, nil)
	errs := []error{err}
	for _, name := range f.Unmatched {
		hint := spelling.Hint(name, f.Unused...)
		errs = append(errs, fmt.Errorf("%s: the file has none, the model has %v%s", name, m.shape(name), hint))
	}
	for _, name := range f.Elsewhere {
		errs = append(errs, fmt.Errorf("%s: its rows lie on servers", name))
	}
	for _, name := range f.Unused {
		i := slices.IndexFunc(infos, func(i Info) bool { return i.Name == name })
		errs = append(errs, fmt.Errorf("%s: the file has %v, the model has none", name, infos[i].Shape))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("weights do not fit the model: %w", err)
	}
	return f.Put(read)
}

func (m Model) shape(name string) []int {
	return m.places[slices.IndexFunc(m.places, func(p place) bool { return p.name == name })].shape
}
