package onnx

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// message is a protobuf message being encoded. Fields are numbered as in onnx.proto.
type message []byte

// number adds an integer or an enumeration.
func (m *message) number(field protowire.Number, v int64) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), uint64(v))
}

// text adds a string.
func (m *message) text(field protowire.Number, s string) {
	*m = protowire.AppendString(protowire.AppendTag(*m, field, protowire.BytesType), s)
}

// inner adds a nested message.
func (m *message) inner(field protowire.Number, in message) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), in)
}

// head begins a field of n bytes, written by the caller afterwards.
func (m *message) head(field protowire.Number, n int64) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.BytesType), uint64(n))
}

// Types of values in graphs, numbered as in TensorProto.DataType.
const (
	float32Type = 1
	uint8Type   = 2
	int64Type   = 7
	stringType  = 8
	float64Type = 11
)

// attribute is an encoded AttributeProto: a number, or several, by name. It has a kind, and a field
// for each kind.
type attribute message

func newAttribute(name string, kind int64) (m message) {
	m.text(1, name)
	m.number(20, kind)
	return m
}

func intOf(name string, v int) attribute {
	m := newAttribute(name, 2)
	m.number(3, int64(v))
	return attribute(m)
}

func floatOf(name string, v float64) attribute {
	m := newAttribute(name, 1)
	m = protowire.AppendFixed32(protowire.AppendTag(m, 2, protowire.Fixed32Type), math.Float32bits(float32(v)))
	return attribute(m)
}

func intsOf(name string, vs ...int) attribute {
	m := newAttribute(name, 7)
	for _, v := range vs {
		m.number(8, int64(v))
	}
	return attribute(m)
}

func stringsOf(name string, vs ...string) attribute {
	m := newAttribute(name, 8)
	for _, v := range vs {
		m.text(9, v)
	}
	return attribute(m)
}

// operator is a NodeProto: a standard operation from named tensors to named tensors. An empty name
// omits an input.
type operator struct {
	op, name string
	in, out  []string
	attrs    []attribute
	domain   string // "": the standard operators
}

func (o operator) encode() (m message) {
	for _, name := range o.in {
		m.text(1, name)
	}
	for _, name := range o.out {
		m.text(2, name)
	}
	m.text(3, o.name)
	m.text(4, o.op)
	for _, a := range o.attrs {
		m.inner(5, message(a))
	}
	if o.domain != "" {
		m.text(7, o.domain)
	}
	return m
}

// port is an input or an output of the graph, a ValueInfoProto. Sizes that depend on the batch have
// symbolic names.
type port struct {
	name  string
	kind  int64
	shape []dim
	about string
}

func (p port) encode() message {
	var shape, tensor, kind, m message
	for _, d := range p.shape {
		var e message
		if d.each == 0 {
			e.number(1, int64(d.plus))
		} else {
			e.text(2, d.String())
		}
		shape.inner(1, e)
	}
	tensor.number(1, p.kind)
	tensor.inner(2, shape)
	kind.inner(1, tensor)
	m.text(1, p.name)
	m.inner(2, kind)
	if p.about != "" {
		m.text(3, p.about)
	}
	return m
}

// entry is a StringStringEntryProto.
func entry(key, value string) (m message) {
	m.text(1, key)
	m.text(2, value)
	return m
}
