package main

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
)

// oddNpz is a .npz of 200 samples of four numbers: class 1 where the first exceeds the second.
type oddNpz struct {
	trap       *trap
	x          [][]float64
	y          []float64
	xType      string
	yType      string
	xName      string
	yName      string
	fortran    bool
	shape      string // of y; "": its length
	text       func(entry string, b []byte) []byte
	write      func(name string, content []byte) []byte // of the whole file
	extra      map[string][]byte
	compressed bool
}

func (t *trap) arrays() *oddNpz {
	o := &oddNpz{trap: t, xType: "<f4", yType: "<i8", xName: "x", yName: "y"}
	for range 300 {
		r := []float64{t.rng.Float64(), t.rng.Float64(), t.rng.Float64(), t.rng.Float64()}
		o.x, o.y = append(o.x, r), append(o.y, classOf(r))
	}
	return o
}

func classOf(r []float64) float64 {
	if r[0] > r[1] {
		return 1
	}
	return 0
}

// value encodes one value as NumPy's type.
func value(kind string, v float64) []byte {
	order := binary.AppendByteOrder(binary.LittleEndian)
	if kind[0] == '>' {
		order = binary.BigEndian
	}
	switch kind[1:] {
	case "f8":
		return order.AppendUint64(nil, math.Float64bits(v))
	case "f4":
		return order.AppendUint32(nil, math.Float32bits(float32(v)))
	case "i8", "u8":
		return order.AppendUint64(nil, uint64(int64(v)))
	case "i4", "u4":
		return order.AppendUint32(nil, uint32(int32(v)))
	case "c8":
		return append(order.AppendUint32(nil, math.Float32bits(float32(v))), 0, 0, 0, 0)
	default:
		return []byte{byte(int(v))}
	}
}

// npy is an array as a file.
func npy(kind, shape string, fortran bool, values []byte) []byte {
	order := map[bool]string{false: "False", true: "True"}[fortran]
	head := fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': %s, }", kind, order, shape)
	head += strings.Repeat(" ", 63-(10+len(head))%64) + "\n"
	out := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(head)))
	return append(append(out, head...), values...)
}

func (o *oddNpz) samples(x [][]float64) []byte {
	var out []byte
	if o.fortran && len(x) > 0 {
		for c := range x[0] {
			for _, r := range x {
				out = append(out, value(o.xType, r[c])...)
			}
		}
	} else {
		for _, r := range x {
			for _, v := range r {
				out = append(out, value(o.xType, v)...)
			}
		}
	}
	wide := 0
	if len(x) > 0 {
		wide = len(x[0])
	}
	return npy(o.xType, fmt.Sprintf("(%d, %d)", len(x), wide), o.fortran, out)
}

func (o *oddNpz) file() []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	put := func(name string, content []byte) {
		if name == ".npy" {
			return
		}
		method := zip.Store
		if o.compressed {
			method = zip.Deflate
		}
		if o.text != nil {
			content = o.text(name, content)
		}
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: method})
		if err == nil {
			_, err = w.Write(content)
		}
		if err != nil && o.trap.err == nil {
			o.trap.err = err
		}
	}
	put(o.xName+".npy", o.samples(o.x))
	var values []byte
	for _, v := range o.y {
		values = append(values, value(o.yType, v)...)
	}
	shape := o.shape
	if shape == "" {
		shape = fmt.Sprintf("(%d,)", len(o.y))
	}
	put(o.yName+".npy", npy(o.yType, shape, false, values))
	for _, name := range slices.Sorted(maps.Keys(o.extra)) {
		put(name, o.extra[name])
	}
	_ = z.Close() // a buffer takes all
	return b.Bytes()
}

func (o *oddNpz) job() oddJob {
	question := o.trap.arrays()
	question.x, question.yName = question.x[:60], ""
	var want []string
	for _, r := range question.x {
		want = append(want, fmt.Sprint(int(classOf(r))))
	}
	content := o.file()
	if o.write != nil {
		content = o.write("t.npz", content)
	}
	return oddJob{
		Args: []string{"mlp", "--data", o.trap.write("t.npz", content), "--batch", "16", "--epochs", "30", "--lr", "0.05"}, Question: o.trap.write("question.npz", question.file()),
		Score: accuracy(want),
	}
}

// npz is an oddity of arrays.
func npz(change func(o *oddNpz)) func(t *trap) oddJob {
	return func(t *trap) oddJob {
		o := t.arrays()
		change(o)
		return o.job()
	}
}

// xy blames either array.
var xy = []string{"t.npz"}

var oddArrays = []oddity{
	{name: "arrays: unchanged", sound: true, make: npz(func(*oddNpz) {})},
	{name: "arrays: float64 and int32", sound: true, make: npz(func(o *oddNpz) { o.xType, o.yType = "<f8", "<i4" })},
	{name: "arrays: big-endian", sound: true, make: npz(func(o *oddNpz) { o.xType, o.yType = ">f4", ">i8" })},
	{name: "arrays: Fortran's order", sound: true, make: npz(func(o *oddNpz) { o.fortran = true })},
	{name: "arrays: compressed", sound: true, make: npz(func(o *oddNpz) { o.compressed = true })},
	{name: "arrays: targets of one column", make: npz(func(o *oddNpz) { o.shape = "(300, 1)" }), sound: true},
	{name: "arrays: truth values to find", sound: true, make: npz(func(o *oddNpz) { o.yType = "|b1" })},
	{name: "arrays: classes as floats", make: npz(func(o *oddNpz) { o.yType = "<f4" }), say: []string{"number", "target", "regression"}, blame: xy},
	{name: "arrays: NaN among samples", make: npz(func(o *oddNpz) { o.x[77][2] = math.NaN() }), blame: []string{"row 77"}},
	{name: "arrays: infinity among samples", make: npz(func(o *oddNpz) { o.x[150][0] = math.Inf(1) }), blame: []string{"row 150"}},
	{name: "arrays: NaN among targets", make: npz(func(o *oddNpz) { o.yType, o.y[33] = "<f4", math.NaN() }), blame: []string{"row 33", "33"}},
	{name: "arrays: a value a million times too large", make: npz(func(o *oddNpz) { o.x[150][0] = 1e12 }), blame: []string{"row 150", "150"}},
	{name: "arrays: a class of -1", make: npz(func(o *oddNpz) { o.y[9] = -1 }), blame: []string{"-1"}},
	{name: "arrays: a class of a million", make: npz(func(o *oddNpz) { o.y[9] = 1e6 }), blame: []string{"1000000", "1,000,000"}},
	{name: "arrays: a class of 500", make: npz(func(o *oddNpz) { o.y[9] = 500 }), blame: []string{"500"}, say: []string{"501", "500"}},
	{name: "arrays: classes 0 and 7", make: npz(func(o *oddNpz) {
		for i := range o.y {
			o.y[i] *= 7
		}
	}), say: []string{"8 classes", "have no sample", "without"}, blame: []string{"classes"}},
	{name: "arrays: one class alone", make: npz(func(o *oddNpz) { clear(o.y) }), blame: []string{"class"}, say: []string{"are of class"}},
	{name: "arrays: fewer targets than samples", make: npz(func(o *oddNpz) { o.y = o.y[:250] }), blame: []string{"250"}},
	{name: "arrays: complex numbers", make: npz(func(o *oddNpz) { o.xType = "<c8" }), blame: []string{"c8", "complex"}},
	{name: "arrays: objects of Python", make: npz(func(o *oddNpz) { o.extraInstead("x", npy("|O", "(300,)", false, []byte("\x80\x04N."))) }), blame: []string{"|O", "object"}},
	{name: "arrays: words to find", make: npz(func(o *oddNpz) { o.extraInstead("y", npy("<U3", "(300,)", false, make([]byte, 300*12))) }), blame: []string{"U3"}},
	{name: "arrays: no targets", make: npz(func(o *oddNpz) { o.yName = "" }), blame: []string{"t.npz"}},
	{name: "arrays: other names", make: npz(func(o *oddNpz) { o.xName, o.yName = "foo", "bar" }), blame: []string{"t.npz"}},
	{name: "arrays: names of arr_0 and arr_1", make: npz(func(o *oddNpz) { o.xName, o.yName = "arr_0", "arr_1" }), say: []string{"arr_0", "arr_1"}},
	{name: "arrays: no samples", make: npz(func(o *oddNpz) { o.x, o.y = nil, nil }), blame: xy},
	{name: "arrays: cut", make: npz(func(o *oddNpz) { o.write = func(_ string, b []byte) []byte { return b[:len(b)/2] } }), blame: xy},
	{name: "arrays: a flipped bit", make: npz(func(o *oddNpz) {
		o.write = func(_ string, b []byte) []byte { b[len(b)/3] ^= 4; return b }
	}), blame: xy},
	{name: "arrays: shorter values than the shape", make: npz(func(o *oddNpz) {
		o.text = func(_ string, b []byte) []byte { return b[:len(b)-8] }
	}), blame: xy},
	{name: "arrays: more values than the shape", make: npz(func(o *oddNpz) {
		o.text = func(_ string, b []byte) []byte { return append(slices.Clone(b), 1, 2, 3, 4) }
	}), blame: xy},
	{name: "arrays: uint8 samples", make: npz(func(o *oddNpz) {
		o.xType = "|u1"
		for _, r := range o.x {
			for c := range r {
				r[c] = math.Floor(r[c] * 255)
			}
		}
	}), say: []string{"255"}},
}

// extraInstead puts an entry in place of an array.
func (o *oddNpz) extraInstead(name string, content []byte) {
	o.extra = map[string][]byte{name + ".npy": content}
	if name == "x" {
		o.xName = ""
	} else {
		o.yName = ""
	}
}

// weights is an oddity of a file of weights that solves the arrays.
func weights(change func(t *trap, tensors map[string]tensor) []byte) func(t *trap) oddJob {
	return func(t *trap) oddJob {
		o := t.arrays()
		j := o.job()
		file := t.write("w.safetensors", change(t, soundWeights()))
		j.Args = []string{"mlp", "--data", filepath.Join(t.dir, "t.npz"), "--batch", "16", "--epochs", "1", "--lr", "1e-9", "--init-from", file}
		return j
	}
}

// tensor is an entry of safetensors.
type tensor struct {
	Type  string
	Shape []int
	Bytes []byte
}

// soundWeights solve the arrays: hidden values x0-x1 and x1-x0, and the larger one's class.
func soundWeights() map[string]tensor {
	const hidden = 100
	w1, w2 := make([]float64, hidden*4), make([]float64, 2*hidden)
	w1[0], w1[1], w1[4], w1[5] = 9, -9, -9, 9 // of units 0 and 1
	w2[0], w2[1], w2[hidden], w2[hidden+1] = -9, 9, 9, -9
	return map[string]tensor{
		"hidden.weight": floats(w1, hidden, 4), "hidden.bias": floats(make([]float64, hidden), hidden),
		"out.weight": floats(w2, 2, hidden), "out.bias": floats(make([]float64, 2), 2),
	}
}

func floats(values []float64, shape ...int) tensor {
	var b []byte
	for _, v := range values {
		b = append(b, value("<f4", v)...)
	}
	return tensor{"F32", shape, b}
}

// safetensors is a file of tensors, in order of their names.
func safetensors(all map[string]tensor) []byte {
	head, body := map[string]any{}, []byte(nil)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		x := all[name]
		head[name] = map[string]any{"dtype": x.Type, "shape": x.Shape, "data_offsets": []int{len(body), len(body) + len(x.Bytes)}}
		body = append(body, x.Bytes...)
	}
	text, _ := json.Marshal(head) // of plain values
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), body...)
}

// changed is an oddity of the weights' tensors.
func changed(change func(all map[string]tensor)) func(t *trap) oddJob {
	return weights(func(_ *trap, all map[string]tensor) []byte {
		change(all)
		return safetensors(all)
	})
}

// filed is an oddity of the weights' file.
func filed(change func(t *trap, b []byte) []byte) func(t *trap) oddJob {
	return weights(func(t *trap, all map[string]tensor) []byte { return change(t, safetensors(all)) })
}

// w blames the file of weights.
var w = []string{"w.safetensors"}

var oddWeights = []oddity{
	{name: "weights: unchanged", sound: true, make: changed(func(map[string]tensor) {})},
	{name: "weights: float64", sound: true, make: changed(func(all map[string]tensor) {
		x := all["out.weight"]
		var b []byte
		for i := 0; i < len(x.Bytes); i += 4 {
			b = append(b, value("<f8", float64(math.Float32frombits(binary.LittleEndian.Uint32(x.Bytes[i:]))))...)
		}
		all["out.weight"] = tensor{"F64", x.Shape, b}
	})},
	{name: "weights: a NaN", make: changed(func(all map[string]tensor) {
		copy(all["hidden.weight"].Bytes[40:], value("<f4", math.NaN()))
	}), blame: []string{"hidden.weight"}},
	{name: "weights: an infinity", make: changed(func(all map[string]tensor) { copy(all["out.bias"].Bytes, value("<f4", math.Inf(-1))) }), blame: []string{"out.bias"}},
	{name: "weights: a tensor is missing", make: changed(func(all map[string]tensor) { delete(all, "out.weight") }), say: []string{"out.weight"}, blame: []string{"out.weight"}},
	{name: "weights: a tensor too many", make: changed(func(all map[string]tensor) { all["more.weight"] = floats([]float64{1}, 1) }), say: []string{"more.weight"}, blame: []string{"more.weight"}},
	{name: "weights: turned", make: changed(func(all map[string]tensor) {
		x := all["hidden.weight"]
		all["hidden.weight"] = tensor{x.Type, []int{x.Shape[1], x.Shape[0]}, x.Bytes}
	}), blame: []string{"hidden.weight"}},
	{name: "weights: three outputs", make: changed(func(all map[string]tensor) {
		all["out.weight"], all["out.bias"] = floats(make([]float64, 3*100), 3, 100), floats(make([]float64, 3), 3)
	}), blame: []string{"out.weight", "out.bias"}, say: []string{"out.weight"}},
	{name: "weights: integers", make: changed(func(all map[string]tensor) {
		x := all["hidden.bias"]
		all["hidden.bias"] = tensor{"I32", x.Shape, x.Bytes}
	}), blame: []string{"hidden.bias"}, say: []string{"hidden.bias"}},
	{name: "weights: no name fits", make: changed(func(all map[string]tensor) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			all["model."+name+"_"] = all[name]
			delete(all, name)
		}
	}), blame: w, say: []string{"hidden.weight"}},
	{name: "weights: a prefix before all names", make: changed(func(all map[string]tensor) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			all["module."+name] = all[name]
			delete(all, name)
		}
	}), blame: w, say: []string{"module."}},
	{name: "weights: cut", make: filed(func(_ *trap, b []byte) []byte { return b[:len(b)-100] }), blame: w},
	{name: "weights: longer than told", make: filed(func(_ *trap, b []byte) []byte { return append(b, 1, 2, 3) }), blame: w},
	{name: "weights: a header of 2^60 bytes", make: filed(func(_ *trap, b []byte) []byte { b[7] = 16; return b }), blame: w},
	{name: "weights: random bytes", make: filed(func(t *trap, _ []byte) []byte { return t.bytes(4000) }), blame: w},
	{name: "weights: empty", make: filed(func(*trap, []byte) []byte { return nil }), blame: w},
	{name: "weights: a pickle of PyTorch", make: filed(func(*trap, []byte) []byte { return []byte("PK\x03\x04archive/data.pkl") }), blame: w},
	{name: "weights: ranges that overlap", make: filed(func(_ *trap, b []byte) []byte {
		return bytes.Replace(b, []byte(`"data_offsets":[0,400]`), []byte(`"data_offsets":[4,404]`), 1)
	}), blame: w},
}
