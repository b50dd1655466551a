//go:build linux

package main

import "fmt"

// shape is one product: C[m,n] = op(A)[m,k] op(B)[k,n].
type shape struct {
	label   string
	m, k, n int
	ta, tb  bool
	packed  bool // ours has B packed before
}

func (s shape) String() string {
	name := fmt.Sprintf("%s %dx%dx%d", s.label, s.m, s.k, s.n)
	if s.ta {
		name += " tA"
	}
	if s.tb {
		name += " tB"
	}
	if s.packed {
		name += " packed"
	}
	return name
}

// shapes are squares and what the models multiply.
var shapes = concat(squares(), dense(), recurrent(), pointwise(), winograd())

func concat(lists ...[]shape) (all []shape) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

func squares() (list []shape) {
	for _, n := range []int{256, 333, 512, 777, 1000, 1024, 2048} {
		list = append(list, shape{label: "square", m: n, k: n, n: n})
	}
	for _, t := range []int{1, 2, 3} {
		list = append(list, shape{label: "square", m: 1000, k: 1000, n: 1000, ta: t&1 > 0, tb: t&2 > 0})
	}
	return list
}

// layer is a dense layer's forward product, weights [out, in], and its two
// gradients: of the input, and of the weights.
func layer(what string, batch, in, out int) []shape {
	return []shape{
		{label: what, m: batch, k: in, n: out, tb: true},
		{label: what, m: batch, k: out, n: in},
		{label: what, m: out, k: batch, n: in, ta: true},
	}
}

func dense() []shape {
	return concat(
		layer("ctr", 512, 273, 400), layer("ctr", 512, 400, 400), layer("ctr", 512, 273, 4096),
		layer("ctr", 512, 4096, 2048), layer("ctr", 512, 2048, 1024),
		layer("mnist", 64, 800, 500))
}

func recurrent() []shape {
	return append(concat(layer("lstm", 700, 650, 2600), layer("lstm", 700, 650, 10000)),
		shape{label: "lstm", m: 20, k: 650, n: 2600, tb: true, packed: true},
		shape{label: "lstm", m: 20, k: 650, n: 2600, packed: true})
}

// pointwise is ResNet-50's convolutions of 1x1, weights [in, out], batch 4.
func pointwise() (list []shape) {
	for _, c := range [][3]int{{12544, 64, 256}, {12544, 256, 64}, {3136, 512, 128}, {3136, 128, 512}, {784, 1024, 256}, {784, 256, 1024}, {196, 2048, 512}, {196, 512, 2048}} {
		list = append(list,
			shape{label: "conv", m: c[0], k: c[1], n: c[2]},
			shape{label: "conv", m: c[0], k: c[2], n: c[1], tb: true},
			shape{label: "conv", m: c[1], k: c[0], n: c[2], ta: true})
	}
	return list
}

func winograd() (list []shape) {
	for _, rows := range []int{32, 256, 2048} {
		for _, c := range []int{16, 32, 64, 128, 256, 512} {
			list = append(list, shape{label: "winograd", m: rows, k: c, n: c, packed: true}, shape{label: "winograd", m: c, k: rows, n: c, ta: true})
		}
	}
	return list
}
