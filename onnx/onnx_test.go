package onnx

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/nn"
)

// trial is a model with numbers in all that it keeps, and its graph as a reader sees it.
type trial struct {
	spec  model.Spec
	ps    *nn.Params
	model model.Model
	graph *Graph
	read  *read
}

// disturb makes running statistics what they are not at first, and biases, too.
func disturb(ps *nn.Params, r *rand.Rand) {
	for _, b := range ps.BufferList() {
		for i := range b.Data {
			b.Data[i] = b.Data[i]*(0.5+r.Float32()) + r.Float32()/10
		}
	}
	for _, p := range ps.List() {
		for i := range p.Data {
			p.Data[i] += (r.Float32() - 0.5) / 50
		}
	}
}

func newTrial(t *testing.T, spec model.Spec, o model.Options, cfg Config) *trial {
	t.Helper()
	c := &trial{spec: spec, ps: nn.NewParams(1)}
	c.model = spec.Build(c.ps, o)
	disturb(c.ps, rand.New(rand.NewPCG(1, 2)))
	g, err := New(spec, c.model, c.ps, cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.graph = g
	var out bytes.Buffer
	if err := g.Write(&out); err != nil {
		t.Fatal(err)
	}
	c.read = readBack(t, out.Bytes(), "")
	return c
}

func readBack(t *testing.T, b []byte, dir string) *read {
	t.Helper()
	r, err := readModel(b, dir)
	if err == nil {
		err = r.check()
	}
	if err != nil {
		t.Fatal(err)
	}
	if r.opset != 17 {
		t.Errorf("opset %d, want 17", r.opset)
	}
	return r
}

// inputs are random samples, as the model takes them and as the graph does.
func (c *trial) inputs(n, ids int) (model.Batch, map[string]*array) {
	r := rand.New(rand.NewPCG(uint64(n), 5))
	b, in := c.spec.Sample(n), map[string]*array{}
	if v := b.Values; v != nil {
		a := newArray(v.Shape...)
		for i := range v.Data {
			v.Data[i] = float32(r.NormFloat64())
			a.data[i] = float64(v.Data[i])
		}
		if len(a.shape) == 4 {
			a = a.transposed([]int{0, 3, 1, 2})
		}
		in["values"] = a
	}
	if c.spec.IDs > 0 {
		a := newArray(n, c.spec.IDs)
		for i := range b.IDs {
			b.IDs[i] = int32(r.IntN(ids))
			a.data[i] = float64(b.IDs[i])
		}
		in["ids"] = a
	}
	if len(c.spec.Slots) > 0 {
		bagged(c, &b, in)
	}
	for _, p := range c.read.inputs {
		if strings.HasPrefix(p.name, "state") {
			in[p.name] = newArray(n, atoi(p.dims[1]))
		}
	}
	return b, in
}

func atoi(s string) (n int) {
	for _, c := range s {
		n = 10*n + int(c-'0')
	}
	return n
}

// outputs are what the model computes, sample by sample.
func (c *trial) outputs(b model.Batch) (out [][]float32) {
	t := nn.NewTape(nn.TapeConfig{})
	defer t.Close()
	c.model.Reset()
	t.ResetEval()
	for _, x := range outputsOf(c.model.Forward(t, b)) {
		data := slices.Clone(x.Data)
		if c.spec.StepsFirst {
			width := len(data) / b.N / c.spec.IDs
			for i := range b.N * c.spec.IDs {
				sample, step := i/c.spec.IDs, i%c.spec.IDs
				copy(data[i*width:(i+1)*width], x.Data[(step*b.N+sample)*width:])
			}
		}
		out = append(out, data)
	}
	return out
}

func outputsOf(o model.Outputs) []*nn.Tensor { return o.List() }

// agree computes n samples in both and compares.
func (c *trial) agree(t *testing.T, n, ids int) {
	t.Helper()
	b, in := c.inputs(n, ids)
	got, err := c.read.twin(in)
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range c.outputs(b) {
		p := c.read.outputs[k]
		y := got[p.name]
		for i, d := range p.dims {
			if want := strings.ReplaceAll(d, "batch", decimal(int64(n))); !strings.Contains(want, "*") && want != decimal(int64(y.shape[i])) {
				t.Errorf("%d samples: output %s has shape %v, it was declared as %v", n, p.name, y.shape, p.dims)
			}
		}
		if len(y.data) != len(want) {
			t.Fatalf("%d samples: output %s has shape %v, the model gives %d values", n, p.name, y.shape, len(want))
		}
		most, apart := 1.0, 0.0
		for i, v := range want {
			most, apart = max(most, math.Abs(float64(v))), max(apart, math.Abs(float64(v)-y.data[i]))
		}
		if !(apart <= 1e-5*most) {
			t.Errorf("%d samples: output %s is %.2g apart, the largest is %.3g", n, p.name, apart, most)
		}
	}
}

// smaller are models of the zoo with fewer classes and words, and images and sequences that the naive twin is done with in time.
func smaller(spec model.Spec) (model.Spec, model.Options, int) {
	o := model.Options{Batch: 1, Vocabulary: 50, Rows: 60, Classes: 7}
	switch {
	case spec.Name == "cifar-resnet20":
		spec.Input = []int{9, 6, 3}
	case spec.Task == model.Language:
		spec.IDs, spec.Labels = 2, 2
	}
	return spec, o, map[model.Task]int{model.Language: 50, model.Click: 60}[spec.Task]
}

// What a graph computes by the standard's definitions is what the model computes, whatever the batch.
func TestZooAgrees(t *testing.T) {
	for _, spec := range models.All() {
		switch spec.Name {
		case "lstm-300m", "gpt", "ctr-dnn-4096", "cifar-vgg16", "resnet50": // smaller ones have their operations
			continue
		}
		t.Run(spec.Name, func(t *testing.T) {
			spec, o, ids := smaller(spec)
			if len(spec.Slots) > 0 {
				return // TestBagsAgree
			}
			c := newTrial(t, spec, o, Config{Names: func(s string) string { return models.PyTorchName(spec.Name, s) }})
			if spec.Name != "lstm" { // it is large
				c.agree(t, 1, ids)
			}
			c.agree(t, 3, ids)
		})
	}
}

// onnx.checker of Debian's python3-onnx finds no fault in any kind of graph.
func TestChecker(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Python")
	}
	const python = "/usr/bin/python3"
	if exec.Command(python, "-c", "import onnx").Run() != nil {
		t.Skip("python3-onnx is not installed: whether onnx.checker accepts what is written was NOT tested")
	}
	dir := t.TempDir()
	var paths []string
	check := func(name string, c *trial) {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".onnx")
		if err := c.graph.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	for _, name := range []string{"mnist-cnn", "cifar-resnet20", "ctr-dnn", "gpt-mini"} { // the others have no other operations
		spec, o, _ := smaller(mustLookup(t, name))
		check(name, newTrial(t, spec, o, Config{About: map[string]string{"model": name}, External: 1 + int64(len(paths)%2)*maxInline/2}))
	}
	check("raw", newRawTable(t, table.Label).trial)
	check("raw number", newRawTable(t, table.Target).trial)
	for name, spec := range operations {
		check(name, newTrial(t, spec, model.Options{}, Config{}))
	}
	out, err := exec.Command(python, append([]string{"check.py"}, paths...)...).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("checked")) {
		t.Errorf("%v: %s", err, out)
	}
}

// Weights of their own file are the same as those within, and begin where they can be mapped.
func TestExternal(t *testing.T) {
	spec, o, ids := smaller(mustLookup(t, "mnist-cnn"))
	c := newTrial(t, spec, o, Config{External: 1})
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := c.graph.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := int64(len(b)); !c.graph.External() || n > c.graph.size()/10 {
		t.Errorf("the graph has %d bytes, its weights %d", n, c.graph.size())
	}
	apart := readBack(t, b, filepath.Dir(path))
	for name, a := range c.read.constants {
		if !slices.Equal(apart.constants[name].data, a.data) {
			t.Errorf("%s has other values in a file of its own", name)
		}
	}
	c.read = apart
	c.agree(t, 2, ids)
}

func mustLookup(t *testing.T, name string) model.Spec {
	t.Helper()
	spec, err := models.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// Rows of a table that lie elsewhere are an input, and nothing asks for ids.
func TestTableElsewhere(t *testing.T) {
	spec := mustLookup(t, "ctr-dnn")
	ps := nn.NewParams(1)
	ps.TablesElsewhere()
	m := spec.Build(ps, model.Options{})
	g, err := New(spec, m, ps, Config{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := g.Write(&out); err != nil {
		t.Fatal(err)
	}
	c := &trial{spec: spec, ps: ps, model: m, read: readBack(t, out.Bytes(), "")}
	var names []string
	for _, p := range c.read.inputs {
		names = append(names, p.name)
	}
	if want := []string{"values", "embedding"}; !slices.Equal(names, want) {
		t.Fatalf("inputs %v, want %v", names, want)
	}
	const rows, dim = 40, 10
	table := make([]float32, rows*dim)
	for i := range table {
		table[i] = float32(i%17) / 20
	}
	ps.Tables()[0].Hold(table, nil)
	b, in := c.inputs(3, rows)
	a := newArray(3, spec.IDs*dim)
	for i, id := range b.IDs {
		for k := range dim {
			a.data[i*dim+k] = float64(table[int(id)*dim+k])
		}
	}
	in["embedding"] = a
	got, err := c.read.twin(in)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range c.outputs(b)[0] {
		if math.Abs(got["logits"].data[i]-float64(v)) > 1e-5 {
			t.Fatalf("logit %d is %v, want %v", i, got["logits"].data[i], v)
		}
	}
}
