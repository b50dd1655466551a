package onnx

import (
	"encoding/binary"
	"io"
	"math"
)

// constant is a tensor in the graph, a weight or a small constant. Its values are computed when
// they are written, without a second copy of the weights.
type constant struct {
	name    string
	shape   []int
	ints    []int64
	words   []string
	doubles []float64
	each    func(emit func(values []float32) error) error // float32, if the slices are nil
	at      int64                                         // offset in the file of external data, or negative
}

// kind is the type of the values.
func (c constant) kind() int64 {
	switch {
	case c.words != nil:
		return stringType
	case c.doubles != nil:
		return float64Type
	case c.each == nil:
		return int64Type
	}
	return float32Type
}

// bytes is the size of the values in bytes; 0 for words, which vary in size.
func (c constant) bytes() int64 {
	n := map[int64]int64{float32Type: 4, int64Type: 8, float64Type: 8}[c.kind()]
	for _, d := range c.shape {
		n *= int64(d)
	}
	return n
}

// encode returns the TensorProto without the values, which follow it, but with their length.
func (c constant) encode(file string) (m message) {
	for _, d := range c.shape {
		m.number(1, int64(d))
	}
	m.number(2, c.kind())
	m.text(8, c.name)
	if c.words != nil {
		for _, w := range c.words {
			m.text(6, w)
		}
		return m
	}
	if c.at < 0 {
		m.head(9, c.bytes())
		return m
	}
	for _, e := range [][2]string{{"location", file}, {"offset", decimal(c.at)}, {"length", decimal(c.bytes())}} {
		m.inner(13, entry(e[0], e[1]))
	}
	m.number(14, 1)
	return m
}

// write writes the values, little-endian.
func (c constant) write(w io.Writer) error {
	switch c.kind() {
	case stringType:
		return nil
	case int64Type:
		return binary.Write(w, binary.LittleEndian, c.ints)
	case float64Type:
		return binary.Write(w, binary.LittleEndian, c.doubles)
	}
	var buf [4 << 10]byte
	return c.each(func(values []float32) error {
		for len(values) > 0 {
			n := min(len(values), len(buf)/4)
			for i, v := range values[:n] {
				binary.LittleEndian.PutUint32(buf[4*i:], math.Float32bits(v))
			}
			if _, err := w.Write(buf[:4*n]); err != nil {
				return err
			}
			values = values[n:]
		}
		return nil
	})
}

// pieces emits slices of values in order.
func pieces(of ...[]float32) func(emit func([]float32) error) error {
	return func(emit func([]float32) error) error {
		for _, values := range of {
			if err := emit(values); err != nil {
				return err
			}
		}
		return nil
	}
}

// strided emits values of data in another order: axis i has length dims[i] and stride strides[i].
func strided(data []float32, dims, strides []int) func(emit func([]float32) error) error {
	return func(emit func([]float32) error) error {
		last := len(dims) - 1
		row, at, from := make([]float32, dims[last]), make([]int, last), 0
		for range len(data) / len(row) {
			for i := range row {
				row[i] = data[from+i*strides[last]]
			}
			if err := emit(row); err != nil {
				return err
			}
			for a := last - 1; a >= 0; a-- {
				at[a]++
				from += strides[a]
				if at[a] < dims[a] {
					break
				}
				from -= at[a] * strides[a]
				at[a] = 0
			}
		}
		return nil
	}
}

// blocks are equal parts of data in another order, such as a recurrent layer's gates.
func blocks(data []float32, order ...int) [][]float32 {
	n := len(data) / len(order)
	var out [][]float32
	for _, b := range order {
		out = append(out, data[b*n:(b+1)*n])
	}
	return out
}
