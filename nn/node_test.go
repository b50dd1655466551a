package nn

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// Every type that is an operation says what it is, by the source.
func TestAllOperationsHaveNodes(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	methods := map[string]map[string]bool{"backward": {}, "node": {}}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, d := range f.Decls {
			m, ok := d.(*ast.FuncDecl)
			if !ok || m.Recv == nil || methods[m.Name.Name] == nil {
				continue
			}
			if star, ok := m.Recv.List[0].Type.(*ast.StarExpr); ok {
				methods[m.Name.Name][star.X.(*ast.Ident).Name] = true
			}
		}
	}
	if len(methods["backward"]) < 13 {
		t.Fatalf("only %d operations were found", len(methods["backward"]))
	}
	for name := range methods["backward"] {
		if !methods["node"][name] {
			t.Errorf("%s has no node: networks with it cannot be exported", name)
		}
	}
}

// The nodes of a small network: kinds, operands by address, numbers, in order, and shapes without values.
func TestTrace(t *testing.T) {
	ps := NewParams(1)
	conv, norm, fc := ps.Conv2D("conv", 3, 8, 3), ps.BatchNorm("norm", 8), ps.Dense("fc", 8*2*2, 5)
	x := NewTensor(2, 9, 9, 3)
	var out *Tensor
	nodes, err := Trace(func(t *Tape) {
		y := t.Conv2D(x, conv, Conv{Stride: 2, Pad: 1})
		y = t.BatchNorm(y, norm, nil, ReLU)
		y = t.MaxPool(y, Pool{Size: 2})
		out = t.Dense(t.Dropout(t.Flatten(y), 0.5), fc, GELU)
	})
	if err != nil {
		t.Fatal(err)
	}
	var ops []string
	for i, n := range nodes {
		ops = append(ops, n.Op)
		if i > 0 && n.Inputs[0] != nodes[i-1].Output {
			t.Errorf("%s does not read what %s has made", n.Op, nodes[i-1].Op)
		}
	}
	if want := []string{"conv2d", "batchnorm", "maxpool", "reshape", "dropout", "dense", "activate"}; !reflect.DeepEqual(ops, want) {
		t.Fatalf("operations %v, want %v", ops, want)
	}
	if nodes[0].Inputs[0] != x || nodes[6].Output != out || !reflect.DeepEqual(out.Shape, []int{2, 5}) {
		t.Errorf("the network reads %p and makes %p of shape %v, want %p and %p", nodes[0].Inputs[0], nodes[6].Output, out.Shape, x, out)
	}
	if got, want := nodes[0].Attrs, (map[string]float64{"stride": 2, "pad": 1, "maxpool2": 0, "winograd": 0}); !reflect.DeepEqual(got, want) {
		t.Errorf("the convolution has %v, want %v", got, want)
	}
	if n := nodes[1]; n.Params[0] != norm.Gamma || n.Buffers[1] != norm.Var || n.Activation != ReLU || n.Inputs[1] != nil {
		t.Errorf("the normalisation is %+v", n)
	}
	if nodes[0].Params[0] != conv.W || nodes[5].Params[1] != fc.B || nodes[6].Activation != GELU {
		t.Error("parameters or activations differ")
	}
}

type silentOp struct{ addOp }

func (silentOp) node(int) {} // not what a noder has

var _ = silentOp.node

// An operation without a node, and operands that do not fit, are errors that name them.
func TestTraceFaults(t *testing.T) {
	_, err := Trace(func(t *Tape) {
		x := NewTensor(2, 3)
		o := record[silentOp](t)
		o.a, o.b = x, x
		t.begin(o, 2, 3)
	})
	if err == nil || !strings.Contains(err.Error(), "silentOp with a result [2 3]") {
		t.Errorf("an operation without a node: %v", err)
	}
	if _, err := Trace(func(t *Tape) { t.Add(NewTensor(2), NewTensor(3)) }); err == nil || !strings.Contains(err.Error(), "add") {
		t.Errorf("operands that do not fit: %v", err)
	}
}
