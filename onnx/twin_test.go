package onnx

import (
	"fmt"
	"math"
	"slices"
)

// array is a tensor of the naive interpreter. It computes in float64: what differs from the model's own result by more than float32
// rounds is a fault.
type array struct {
	shape []int
	data  []float64
	words []string // instead of data, of strings
}

func newArray(shape ...int) *array {
	a := &array{shape: slices.Clone(shape)}
	a.data = make([]float64, a.size())
	return a
}

func (a *array) size() int {
	n := 1
	for _, d := range a.shape {
		n *= d
	}
	return n
}

// ints are the values as numbers of places or axes.
func (a *array) ints() []int {
	var out []int
	for _, v := range a.data {
		out = append(out, int(v))
	}
	return out
}

// strides of a row-major array.
func strides(shape []int) []int {
	s := make([]int, len(shape))
	for i, step := len(shape)-1, 1; i >= 0; i-- {
		s[i], step = step, step*shape[i]
	}
	return s
}

// fill sets each value to f of its index.
func (a *array) fill(f func(at []int) float64) *array {
	at := make([]int, len(a.shape))
	for i := range a.data {
		a.data[i] = f(at)
		for k := len(at) - 1; k >= 0; k-- {
			if at[k]++; at[k] < a.shape[k] {
				break
			}
			at[k] = 0
		}
	}
	return a
}

// at is the value of an index.
func (a *array) at(index ...int) float64 {
	k := 0
	for i, s := range strides(a.shape) {
		k += s * index[i]
	}
	return a.data[k]
}

// within is the value of an index of a shape that a is broadcast to.
func (a *array) within(at []int) float64 {
	index := make([]int, len(a.shape))
	for i, d := range a.shape {
		if v := at[len(at)-len(a.shape)+i]; d > 1 {
			index[i] = v
		}
	}
	return a.at(index...)
}

func broadcastShape(a, b []int) []int {
	rank := max(len(a), len(b))
	out := make([]int, rank)
	for i := range out {
		out[i] = 1
		for _, s := range [][]int{a, b} {
			if k := i - rank + len(s); k >= 0 && s[k] > 1 {
				if out[i] > 1 && out[i] != s[k] {
					panic(fmt.Sprintf("%v and %v are not broadcast", a, b))
				}
				out[i] = s[k]
			}
		}
	}
	return out
}

func (a *array) with(b *array, f func(x, y float64) float64) *array {
	return newArray(broadcastShape(a.shape, b.shape)...).fill(func(at []int) float64 { return f(a.within(at), b.within(at)) })
}

func (a *array) each(f func(x float64) float64) *array {
	out := newArray(a.shape...)
	for i, v := range a.data {
		out.data[i] = f(v)
	}
	return out
}

func (a *array) reshaped(shape ...int) *array {
	out := &array{shape: slices.Clone(shape), data: a.data, words: a.words}
	for i, d := range shape {
		if d == -1 {
			out.shape[i] = 1
			out.shape[i] = len(a.data) / out.size()
		}
	}
	if out.size() != max(len(a.data), len(a.words)) {
		panic(fmt.Sprintf("%v is reshaped to %v", a.shape, shape))
	}
	return out
}

func (a *array) transposed(perm []int) *array {
	shape := make([]int, len(perm))
	for i, p := range perm {
		shape[i] = a.shape[p]
	}
	return newArray(shape...).fill(func(at []int) float64 {
		from := make([]int, len(perm))
		for i, p := range perm {
			from[p] = at[i]
		}
		return a.at(from...)
	})
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// twin computes a graph, operator by operator, with the definitions of the standard and nothing clever.
func (r *read) twin(inputs map[string]*array) (out map[string]*array, err error) {
	values := map[string]*array{}
	for name, a := range r.constants {
		values[name] = a
	}
	for name, a := range inputs {
		values[name] = a
	}
	for _, p := range r.inputs {
		if values[p.name] == nil {
			return nil, fmt.Errorf("no input %q", p.name)
		}
	}
	for _, n := range r.nodes {
		var in []*array
		for _, name := range n.in {
			in = append(in, values[name])
		}
		results, err := n.compute(in)
		if err != nil {
			return nil, err
		}
		for i, name := range n.out {
			values[name] = results[i]
		}
	}
	out = map[string]*array{}
	for _, p := range r.outputs {
		out[p.name] = values[p.name]
	}
	return out, nil
}

// axis is an axis that may count from the last.
func axisFrom(a int64, rank int) int { return int(a+int64(rank)) % rank }

func (n readNode) int(name string) int64 {
	if v := n.ints[name]; len(v) > 0 {
		return v[0]
	}
	return 0
}

func one(a *array) []*array { return []*array{a} }

func (n readNode) compute(in []*array) (out []*array, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s %s: %v", n.op, n.name, r)
		}
	}()
	if n.op == "Identity" {
		return one(in[0]), nil
	}
	if f, ok := eachOf[n.op]; ok {
		return one(in[0].each(f)), nil
	}
	if f, ok := pairOf[n.op]; ok {
		return one(in[0].with(in[1], f)), nil
	}
	if f, ok := operatorOf[n.op]; ok {
		return f(n, in), nil
	}
	return nil, fmt.Errorf("the twin has no operator %s", n.op)
}

var eachOf = map[string]func(float64) float64{
	"Relu": func(x float64) float64 { return max(x, 0) }, "Tanh": math.Tanh, "Sigmoid": sigmoid,
	"Floor": math.Floor,
	"IsNaN": func(x float64) float64 { return truth(x != x) },
	"Not":   func(x float64) float64 { return truth(x == 0) },
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

var pairOf = map[string]func(x, y float64) float64{
	"Add": func(x, y float64) float64 { return x + y }, "Sub": func(x, y float64) float64 { return x - y },
	"Mul": func(x, y float64) float64 { return x * y }, "Div": func(x, y float64) float64 { return x / y },
	"Max": func(x, y float64) float64 { return max(x, y) }, "Pow": math.Pow,
	"Less": func(x, y float64) float64 { return truth(x < y) },
	"And":  func(x, y float64) float64 { return x * y }, "Or": func(x, y float64) float64 { return max(x, y) },
}

var operatorOf = map[string]func(n readNode, in []*array) []*array{
	"Gemm":    gemmTwin,
	"MatMul":  func(_ readNode, in []*array) []*array { return one(matMulTwin(in[0], in[1])) },
	"Conv":    convTwin,
	"MaxPool": poolTwin, "AveragePool": poolTwin, "GlobalAveragePool": globalTwin,
	"BatchNormalization": batchNormTwin, "LayerNormalization": layerNormTwin, "InstanceNormalization": instanceNormTwin,
	"LSTM": lstmTwin, "GRU": gruTwin,
	"LabelEncoder": labelEncoderTwin, "Where": whereTwin, "Cast": castTwin, "ArgMax": argMaxTwin, "GatherElements": gatherElementsTwin,
	"Softmax": softmaxTwin, "LogSoftmax": softmaxTwin,
	"ReduceSum": reduceTwin, "ReduceMean": reduceTwin, "ReduceL2": reduceTwin,
	"Gather": gatherTwin, "Slice": sliceTwin, "Concat": concatTwin, "Split": splitTwin, "Pad": padTwin,
	"Reshape": func(_ readNode, in []*array) []*array { return one(in[0].reshaped(in[1].ints()...)) },
	"Flatten": func(_ readNode, in []*array) []*array { return one(in[0].reshaped(in[0].shape[0], -1)) },
	"Transpose": func(n readNode, in []*array) []*array {
		var perm []int
		for _, p := range n.ints["perm"] {
			perm = append(perm, int(p))
		}
		return one(in[0].transposed(perm))
	},
	"Unsqueeze": func(_ readNode, in []*array) []*array {
		return one(in[0].reshaped(slices.Insert(slices.Clone(in[0].shape), int(in[1].data[0]), 1)...))
	},
	"Squeeze": func(_ readNode, in []*array) []*array {
		k := int(in[1].data[0])
		return one(in[0].reshaped(slices.Delete(slices.Clone(in[0].shape), k, k+1)...))
	},
	"Shape": func(_ readNode, in []*array) []*array {
		out := newArray(len(in[0].shape))
		for i, d := range in[0].shape {
			out.data[i] = float64(d)
		}
		return one(out)
	},
	"Range": func(_ readNode, in []*array) []*array {
		out := newArray(int(in[1].data[0] - in[0].data[0]))
		return one(out.fill(func(at []int) float64 { return in[0].data[0] + float64(at[0])*in[2].data[0] }))
	},
	"Expand": func(_ readNode, in []*array) []*array {
		return one(newArray(broadcastShape(in[0].shape, in[1].ints())...).fill(in[0].within))
	},
}

func gemmTwin(n readNode, in []*array) []*array {
	b := in[1]
	if n.int("transB") == 1 {
		b = b.transposed([]int{1, 0})
	}
	y := matMulTwin(in[0], b)
	if len(in) > 2 {
		y = y.with(in[2], pairOf["Add"])
	}
	return one(y)
}

func matMulTwin(a, b *array) *array {
	ra, rb := len(a.shape), len(b.shape)
	m, k, n := a.shape[ra-2], a.shape[ra-1], b.shape[rb-1]
	if b.shape[rb-2] != k {
		panic(fmt.Sprintf("%v times %v", a.shape, b.shape))
	}
	batch := broadcastShape(a.shape[:ra-2], b.shape[:rb-2])
	y := newArray(append(batch, m, n)...)
	offset := func(x *array, at []int) int { // where the matrix of a batch's index begins
		off, s := 0, strides(x.shape)
		for i := range len(x.shape) - 2 {
			if x.shape[i] > 1 {
				off += at[len(at)-2-(len(x.shape)-2)+i] * s[i]
			}
		}
		return off
	}
	return y.fill(func(at []int) float64 {
		i, j := at[len(at)-2], at[len(at)-1]
		p, q, sum := offset(a, at)+i*k, offset(b, at)+j, 0.0
		for l := range k {
			sum += a.data[p+l] * b.data[q+l*n]
		}
		return sum
	})
}

func window(n readNode) (k, stride, pad int) {
	k, stride = int(n.ints["kernel_shape"][0]), int(n.ints["strides"][0])
	if p := n.ints["pads"]; len(p) > 0 {
		pad = int(p[0])
	}
	return k, stride, pad
}

func convTwin(n readNode, in []*array) []*array {
	x, w := in[0], in[1]
	k, stride, pad := window(n)
	c, h, wide := x.shape[1], x.shape[2], x.shape[3]
	if w.shape[1] != c || w.shape[2] != k || w.shape[3] != k {
		panic(fmt.Sprintf("weights %v for %v", w.shape, x.shape))
	}
	y := newArray(x.shape[0], w.shape[0], (h+2*pad-k)/stride+1, (wide+2*pad-k)/stride+1)
	return one(y.fill(func(at []int) float64 {
		sum := 0.0
		if len(in) > 2 {
			sum = in[2].data[at[1]]
		}
		for ch := range c {
			for i := range k {
				for j := range k {
					r, s := at[2]*stride+i-pad, at[3]*stride+j-pad
					if r >= 0 && r < h && s >= 0 && s < wide {
						sum += x.data[((at[0]*c+ch)*h+r)*wide+s] * w.data[((at[1]*c+ch)*k+i)*k+j]
					}
				}
			}
		}
		return sum
	}))
}

func poolTwin(n readNode, in []*array) []*array {
	x := in[0]
	k, stride, pad := window(n)
	y := newArray(x.shape[0], x.shape[1], (x.shape[2]+2*pad-k)/stride+1, (x.shape[3]+2*pad-k)/stride+1)
	return one(y.fill(func(at []int) float64 {
		most, sum, count := math.Inf(-1), 0.0, 0
		for i := range k {
			for j := range k {
				if r, s := at[2]*stride+i-pad, at[3]*stride+j-pad; r >= 0 && r < x.shape[2] && s >= 0 && s < x.shape[3] {
					v := x.at(at[0], at[1], r, s)
					most, sum, count = max(most, v), sum+v, count+1
				}
			}
		}
		if n.op == "MaxPool" {
			return most
		}
		if n.int("count_include_pad") == 1 {
			count = k * k
		}
		return sum / float64(count)
	}))
}

func globalTwin(_ readNode, in []*array) []*array {
	x := in[0]
	area := x.shape[2] * x.shape[3]
	return one(newArray(x.shape[0], x.shape[1], 1, 1).fill(func(at []int) float64 {
		from := (at[0]*x.shape[1] + at[1]) * area
		return mean(x.data[from : from+area])
	}))
}

func mean(of []float64) float64 {
	sum := 0.0
	for _, v := range of {
		sum += v
	}
	return sum / float64(len(of))
}

func variance(of []float64) float64 {
	m, sum := mean(of), 0.0
	for _, v := range of {
		sum += (v - m) * (v - m)
	}
	return sum / float64(len(of))
}

func batchNormTwin(n readNode, in []*array) []*array {
	epsilon := float64(n.floats["epsilon"])
	return one(newArray(in[0].shape...).fill(func(at []int) float64 {
		c := at[1]
		return in[1].data[c]*(in[0].at(at...)-in[3].data[c])/math.Sqrt(in[4].data[c]+epsilon) + in[2].data[c]
	}))
}

func layerNormTwin(n readNode, in []*array) []*array {
	x, out := in[0], newArray(in[0].shape...)
	d := x.shape[len(x.shape)-1]
	for lo := 0; lo < len(x.data); lo += d {
		row := x.data[lo : lo+d]
		for i, v := range row {
			out.data[lo+i] = (v-mean(row))/math.Sqrt(variance(row)+float64(n.floats["epsilon"]))*in[1].data[i] + in[2].data[i]
		}
	}
	return one(out)
}

func instanceNormTwin(n readNode, in []*array) []*array {
	x, out := in[0], newArray(in[0].shape...)
	each := len(x.data) / x.shape[0] / x.shape[1]
	for lo := 0; lo < len(x.data); lo += each {
		row, c := x.data[lo:lo+each], lo/each%x.shape[1]
		for i, v := range row {
			out.data[lo+i] = in[1].data[c]*(v-mean(row))/math.Sqrt(variance(row)+float64(n.floats["epsilon"])) + in[2].data[c]
		}
	}
	return one(out)
}

// gate is row g*hidden+j of the weights applied to x and h, with both biases.
func gate(in []*array, g, j, hidden int, x, h []float64, input, state bool) float64 {
	w, r, bias := in[1], in[2], in[3]
	rows, k := w.shape[1], w.shape[2]
	row, sum := g*hidden+j, 0.0
	if input {
		sum += bias.data[row]
		for i, v := range x {
			sum += w.data[row*k+i] * v
		}
	}
	if state {
		sum += bias.data[rows+row]
		for i, v := range h {
			sum += r.data[row*hidden+i] * v
		}
	}
	return sum
}

// recurrent runs step over a sequence for each sample; carry are the states that it changes.
func recurrent(n readNode, in []*array, states int, step func(x []float64, carry [][]float64)) []*array {
	hidden, x := int(n.int("hidden_size")), in[0]
	steps, batch, k := x.shape[0], x.shape[1], x.shape[2]
	y := newArray(steps, 1, batch, hidden)
	out := one(y)
	for s := range states {
		last := newArray(1, batch, hidden)
		if 5+s < len(in) {
			copy(last.data, in[5+s].reshaped(1, batch, hidden).data)
		}
		out = append(out, last)
	}
	for i := range batch {
		var carry [][]float64
		for s := range states {
			carry = append(carry, out[1+s].data[i*hidden:(i+1)*hidden])
		}
		for t := range steps {
			step(x.data[(t*batch+i)*k:][:k], carry)
			copy(y.data[(t*batch+i)*hidden:], carry[0])
		}
	}
	return out
}

func lstmTwin(n readNode, in []*array) []*array {
	hidden := int(n.int("hidden_size"))
	return recurrent(n, in, 2, func(x []float64, carry [][]float64) {
		h, c := slices.Clone(carry[0]), carry[1]
		for j := range hidden {
			of := func(g int) float64 { return gate(in, g, j, hidden, x, h, true, true) } // i, o, f, c
			c[j] = sigmoid(of(2))*c[j] + sigmoid(of(0))*math.Tanh(of(3))
			carry[0][j] = sigmoid(of(1)) * math.Tanh(c[j])
		}
	})
}

func gruTwin(n readNode, in []*array) []*array {
	hidden := int(n.int("hidden_size"))
	if n.int("linear_before_reset") != 1 {
		panic("linear_before_reset is 0")
	}
	return recurrent(n, in, 1, func(x []float64, carry [][]float64) {
		h := slices.Clone(carry[0])
		for j := range hidden { // z, r, h
			z, r := sigmoid(gate(in, 0, j, hidden, x, h, true, true)), sigmoid(gate(in, 1, j, hidden, x, h, true, true))
			c := math.Tanh(gate(in, 2, j, hidden, x, h, true, false) + r*gate(in, 2, j, hidden, x, h, false, true))
			carry[0][j] = (1-z)*c + z*h[j]
		}
	})
}

func softmaxTwin(n readNode, in []*array) []*array {
	x, out := in[0], newArray(in[0].shape...)
	if axisFrom(n.int("axis"), len(x.shape)) != len(x.shape)-1 {
		panic("an axis that is not the last")
	}
	d := x.shape[len(x.shape)-1]
	for lo := 0; lo < len(x.data); lo += d {
		row := x.data[lo : lo+d]
		most, sum := slices.Max(row), 0.0
		for _, v := range row {
			sum += math.Exp(v - most)
		}
		for i, v := range row {
			if out.data[lo+i] = v - most - math.Log(sum); n.op == "Softmax" {
				out.data[lo+i] = math.Exp(v-most) / sum
			}
		}
	}
	return one(out)
}

func reduceTwin(n readNode, in []*array) []*array {
	x := in[0]
	axes := n.ints["axes"]
	if len(in) > 1 {
		for _, a := range in[1].ints() {
			axes = append(axes, int64(a))
		}
	}
	gone := map[int]bool{}
	for _, a := range axes {
		gone[axisFrom(a, len(x.shape))] = true
	}
	kept, shape, count := slices.Clone(x.shape), []int{}, 1
	for i, d := range x.shape {
		if gone[i] {
			kept[i] = 1
			count *= d
		}
		if !gone[i] || n.int("keepdims") == 1 {
			shape = append(shape, kept[i])
		}
	}
	sums := newArray(kept...)
	s, k := strides(kept), 0
	newArray(x.shape...).fill(func(at []int) float64 {
		to := 0
		for i, v := range at {
			if !gone[i] {
				to += v * s[i]
			}
		}
		v := x.data[k]
		if k++; n.op == "ReduceL2" {
			v *= v
		}
		sums.data[to] += v
		return 0
	})
	return one(sums.each(func(v float64) float64 {
		switch n.op {
		case "ReduceMean":
			return v / float64(count)
		case "ReduceL2":
			return math.Sqrt(v)
		}
		return v
	}).reshaped(shape...))
}

func gatherTwin(n readNode, in []*array) []*array {
	if in[0].words != nil {
		return one(gatherWords(in[0].words, in[1]))
	}
	x, ids, axis := in[0], in[1], axisFrom(n.int("axis"), len(in[0].shape))
	shape := slices.Concat(x.shape[:axis], ids.shape, x.shape[axis+1:])
	return one(newArray(shape...).fill(func(at []int) float64 {
		id := int(ids.at(at[axis : axis+len(ids.shape)]...))
		return x.at(slices.Concat(at[:axis], []int{id}, at[axis+len(ids.shape):])...)
	}))
}

func sliceTwin(_ readNode, in []*array) []*array {
	x := in[0]
	lo, step, shape := make([]int, len(x.shape)), make([]int, len(x.shape)), slices.Clone(x.shape)
	for i := range step {
		step[i] = 1
	}
	for k, a := range in[3].ints() {
		lo[a] = int(in[1].data[k])
		hi := min(int(in[2].data[k]), x.shape[a])
		if len(in) > 4 {
			step[a] = int(in[4].data[k])
		}
		shape[a] = (hi - lo[a] + step[a] - 1) / step[a]
	}
	return one(newArray(shape...).fill(func(at []int) float64 {
		from := make([]int, len(at))
		for i, v := range at {
			from[i] = lo[i] + v*step[i]
		}
		return x.at(from...)
	}))
}

func concatTwin(n readNode, in []*array) []*array {
	axis := axisFrom(n.int("axis"), len(in[0].shape))
	shape := slices.Clone(in[0].shape)
	for _, x := range in[1:] {
		shape[axis] += x.shape[axis]
	}
	return one(newArray(shape...).fill(func(at []int) float64 {
		from := slices.Clone(at)
		for _, x := range in {
			if from[axis] < x.shape[axis] {
				return x.at(from...)
			}
			from[axis] -= x.shape[axis]
		}
		panic("beyond all parts")
	}))
}

func splitTwin(n readNode, in []*array) (out []*array) {
	axis, lo := axisFrom(n.int("axis"), len(in[0].shape)), 0
	for _, d := range in[1].ints() {
		shape := slices.Clone(in[0].shape)
		shape[axis] = d
		out = append(out, newArray(shape...).fill(func(at []int) float64 {
			from := slices.Clone(at)
			from[axis] += lo
			return in[0].at(from...)
		}))
		lo += d
	}
	return out
}

func padTwin(_ readNode, in []*array) []*array {
	x, pads := in[0], in[1].ints()
	shape := slices.Clone(x.shape)
	for i := range shape {
		shape[i] += pads[i] + pads[len(shape)+i]
	}
	return one(newArray(shape...).fill(func(at []int) float64 {
		from := slices.Clone(at)
		for i := range from {
			if from[i] -= pads[i]; from[i] < 0 || from[i] >= x.shape[i] {
				return 0
			}
		}
		return x.at(from...)
	}))
}
