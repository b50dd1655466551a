package onnx

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// read is a graph as a reader of the format sees it, by the field numbers of onnx.proto.
type read struct {
	name            string
	nodes           []readNode
	constants       map[string]*array
	inputs, outputs []readPort
	about           map[string]string
	opset           int64
	sets            map[string]int64 // versions of all sets of operators
}

type readNode struct {
	op, name string
	in, out  []string
	ints     map[string][]int64
	floats   map[string]float32
	words    map[string][]string
	domain   string
}

type readPort struct {
	name string
	kind int64
	dims []string
}

// fields calls f for each field of a message, with its number or its bytes.
func fields(b []byte, f func(n protowire.Number, v uint64, in []byte) error) error {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var v uint64
		var in []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			in, n = protowire.ConsumeBytes(b)
		case protowire.Fixed32Type:
			var w uint32
			w, n = protowire.ConsumeFixed32(b)
			v = uint64(w)
		default:
			return fmt.Errorf("field %d of wire type %d", num, kind)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := f(num, v, in); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// readModel reads a ModelProto. Values that lie outside are read from dir.
func readModel(b []byte, dir string) (*read, error) {
	r := &read{constants: map[string]*array{}, about: map[string]string{}, sets: map[string]int64{}}
	err := fields(b, func(n protowire.Number, v uint64, in []byte) error {
		switch n {
		case 1:
			if v != 8 {
				return fmt.Errorf("IR version %d", v)
			}
		case 7:
			return r.graph(in, dir)
		case 8:
			domain, version := "", int64(0)
			err := fields(in, func(n protowire.Number, v uint64, in []byte) error {
				if n == 1 {
					domain = string(in)
				} else {
					version = int64(v)
				}
				return nil
			})
			if r.sets[domain] = version; domain == "" {
				r.opset = version
			}
			return err
		case 14:
			key, value, err := readEntry(in)
			r.about[key] = value
			return err
		}
		return nil
	})
	return r, err
}

func readEntry(b []byte) (key, value string, err error) {
	err = fields(b, func(n protowire.Number, _ uint64, in []byte) error {
		if n == 1 {
			key = string(in)
		} else {
			value = string(in)
		}
		return nil
	})
	return key, value, err
}

func (r *read) graph(b []byte, dir string) error {
	return fields(b, func(n protowire.Number, _ uint64, in []byte) error {
		switch n {
		case 1:
			node, err := readOperator(in)
			r.nodes = append(r.nodes, node)
			return err
		case 2:
			r.name = string(in)
		case 5:
			return r.constant(in, dir)
		case 11, 12:
			p, err := readPortOf(in)
			if n == 11 {
				r.inputs = append(r.inputs, p)
			} else {
				r.outputs = append(r.outputs, p)
			}
			return err
		}
		return nil
	})
}

func readOperator(b []byte) (readNode, error) {
	node := readNode{ints: map[string][]int64{}, floats: map[string]float32{}, words: map[string][]string{}}
	err := fields(b, func(n protowire.Number, _ uint64, in []byte) error {
		switch n {
		case 1:
			node.in = append(node.in, string(in))
		case 2:
			node.out = append(node.out, string(in))
		case 3:
			node.name = string(in)
		case 4:
			node.op = string(in)
		case 5:
			return node.attribute(in)
		case 7:
			node.domain = string(in)
		}
		return nil
	})
	return node, err
}

func (n *readNode) attribute(b []byte) error {
	name, kind := "", uint64(0)
	var ints []int64
	var words []string
	var f float32
	err := fields(b, func(number protowire.Number, v uint64, in []byte) error {
		switch number {
		case 1:
			name = string(in)
		case 2:
			f = math.Float32frombits(uint32(v))
		case 3, 8:
			ints = append(ints, int64(v))
		case 9:
			words = append(words, string(in))
		case 20:
			kind = v
		}
		return nil
	})
	switch kind {
	case 1:
		n.floats[name] = f
	case 2, 7:
		n.ints[name] = ints
	case 8:
		n.words[name] = words
	default:
		return fmt.Errorf("attribute %s of type %d", name, kind)
	}
	return err
}

func readPortOf(b []byte) (p readPort, err error) {
	err = fields(b, func(n protowire.Number, _ uint64, in []byte) error {
		switch n {
		case 1:
			p.name = string(in)
		case 2: // TypeProto, its tensor, and that one's shape
			return fields(in, func(_ protowire.Number, _ uint64, tensor []byte) error {
				return fields(tensor, func(n protowire.Number, v uint64, shape []byte) error {
					if n == 1 {
						p.kind = int64(v)
						return nil
					}
					return fields(shape, func(_ protowire.Number, _ uint64, d []byte) error {
						return fields(d, func(n protowire.Number, v uint64, in []byte) error {
							if n == 1 {
								p.dims = append(p.dims, strconv.FormatUint(v, 10))
							} else {
								p.dims = append(p.dims, string(in))
							}
							return nil
						})
					})
				})
			})
		}
		return nil
	})
	return p, err
}

func (r *read) constant(b []byte, dir string) error {
	a, name, kind := &array{shape: []int{}}, "", uint64(0)
	var raw []byte
	outside := map[string]string{}
	err := fields(b, func(n protowire.Number, v uint64, in []byte) error {
		switch n {
		case 1:
			a.shape = append(a.shape, int(v))
		case 2:
			kind = v
		case 6:
			a.words = append(a.words, string(in))
		case 8:
			name = string(in)
		case 9:
			raw = in
		case 13:
			key, value, err := readEntry(in)
			outside[key] = value
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	if file, ok := outside["location"]; ok {
		all, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		at, _ := strconv.Atoi(outside["offset"])
		n, _ := strconv.Atoi(outside["length"])
		if at+n > len(all) {
			return fmt.Errorf("constant %s ends at %d of a file of %d bytes", name, at+n, len(all))
		}
		raw = all[at : at+n]
	}
	width := map[uint64]int{1: 4, 7: 8, 11: 8}[kind]
	if kind == 8 && len(a.words) == a.size() && len(raw) == 0 {
		width = 1
	}
	if width == 0 || kind != 8 && len(raw) != width*a.size() {
		return fmt.Errorf("constant %s of type %d and shape %v has %d bytes", name, kind, a.shape, len(raw))
	}
	for i := 0; i < len(raw); i += width {
		switch kind {
		case 1:
			a.data = append(a.data, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[i:]))))
		case 11:
			a.data = append(a.data, math.Float64frombits(binary.LittleEndian.Uint64(raw[i:])))
		default:
			a.data = append(a.data, float64(int64(binary.LittleEndian.Uint64(raw[i:]))))
		}
	}
	if r.constants[name] != nil {
		return fmt.Errorf("two constants are named %q", name)
	}
	r.constants[name] = a
	return nil
}

// check holds what every graph must hold: names are given once, and before they are used.
func (r *read) check() error {
	known := map[string]bool{"": true}
	give := func(name string) error {
		if known[name] {
			return fmt.Errorf("two values are named %q", name)
		}
		known[name] = true
		return nil
	}
	for name := range r.constants {
		if err := give(name); err != nil {
			return err
		}
	}
	for _, p := range r.inputs {
		if err := give(p.name); err != nil {
			return err
		}
	}
	nodes := map[string]bool{}
	for _, n := range r.nodes {
		if r.sets[n.domain] == 0 {
			return fmt.Errorf("%s %s is of the set %q, which the graph does not import", n.op, n.name, n.domain)
		}
		for _, in := range n.in {
			if !known[in] {
				return fmt.Errorf("%s %s reads %q, which nothing before it gives", n.op, n.name, in)
			}
		}
		if nodes[n.name] {
			return fmt.Errorf("two operators are named %q", n.name)
		}
		nodes[n.name] = true
		for _, out := range n.out {
			if err := give(out); err != nil {
				return err
			}
		}
	}
	for _, p := range r.outputs {
		if !known[p.name] {
			return fmt.Errorf("nothing gives the output %q", p.name)
		}
	}
	return nil
}
