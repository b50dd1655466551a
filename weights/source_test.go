package weights

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/nn"
)

func namesOf(infos []Info) (out []string) {
	for _, i := range infos {
		out = append(out, i.Name)
	}
	return out
}

// A checkpoint and a safetensors file are told apart by their content. A checkpoint's tensors have the names and layouts of here,
// and what is none of the model's (an optimizer's state) is left out.
func TestOpenSource(t *testing.T) {
	dir := t.TempDir()
	w := numbered(6)
	if _, err := checkpoint.Save(dir, checkpoint.State{
		Header: checkpoint.Header{Model: "m", Step: 3, NP: 1, Shapes: map[string][]int{"param/a.weight": {3, 2}}},
		Arrays: []checkpoint.Array{checkpoint.Floats("param/a.weight", w), checkpoint.Floats("optimizer/momentum", w), checkpoint.Floats("param/a.bias", w[:3])},
	}); err != nil {
		t.Fatal(err)
	}
	tensors := filepath.Join(dir, "no-suffix")
	if err := os.WriteFile(tensors, written(t, Tensor{Name: "a.weight", Shape: []int{3, 2}, Data: w}, Tensor{Name: "a.bias", Shape: []int{3}, Data: w[:3]}), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, checkpoint.PathOf(dir, 3), tensors} {
		src, err := OpenSource(path)
		if err != nil {
			t.Fatal(err)
		}
		ps := nn.NewParams(1)
		layer := ps.Dense("a", 2, 3)
		fit, err := src.Model(ps, nil, func(string) string { return "not of a checkpoint" }).Fit(src.Tensors, nil)
		if own := path != tensors; err != nil || own != (len(fit.Taken) == 2) || len(src.Tensors) != 2 {
			t.Errorf("%s: %v taken of %v, %v", path, fit.Taken, namesOf(src.Tensors), err)
		}
		if fit, err = Of(ps, nil, nil).Fit(src.Tensors, nil); err != nil || fit.Put(src.Read) != nil || !reflect.DeepEqual(layer.W.Data, w) {
			t.Errorf("%s: %v, %v", path, layer.W.Data, err)
		}
		if _, err := src.Read("momentum"); err == nil {
			t.Errorf("%s: an optimizer's state was read as weights", path)
		}
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenSourceFaults(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	served := filepath.Join(dir, "served")
	if _, err := checkpoint.Save(served, checkpoint.State{Header: checkpoint.Header{NP: 1}, Arrays: []checkpoint.Array{checkpoint.Words("rank0/tally", []uint64{1})}}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none"): "no such file", t.TempDir(): "no checkpoint", served: "lie on servers", file("a.pth", "PK\x03\x04…"): "save_file",
		file("empty", ""): "ends within", file("cut", "RINGOCKP\x01"): "cut", file("text", "not weights at all"): "it is no safetensors file",
	} {
		if _, err := OpenSource(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// What fits is taken, what is excepted or not there is left, and what only the file has is told; counts of batches are nobody's
// concern. What does not fit is told with both shapes and all together.
func TestFit(t *testing.T) {
	ps := nn.NewParams(1)
	ps.Dense("a", 2, 3)
	ps.BatchNorm("n", 3)
	ps.TablesElsewhere()
	ps.NewTable("rows", nn.UniformRows(1), 4, 2)
	m := Of(ps, nil, nil)
	infos := func(tensors ...Tensor) []Info {
		f, err := opened(written(t, tensors...))
		if err != nil {
			t.Fatal(err)
		}
		return f.Tensors()
	}
	one := Tensor{Name: "n.bias", Shape: []int{3}, Data: numbered(3)}
	fit, err := m.Fit(infos(one, Tensor{Name: "a.weight", Shape: []int{9, 9}, Data: numbered(81)}, Tensor{Name: "n.num_batches_tracked", Shape: []int{}, Ints: []int64{7}}, Tensor{Name: "z", Shape: []int{1}, Data: numbered(1)}),
		func(name string) bool { return name == "a.weight" })
	left := []string{"a.bias", "a.weight", "n.running_mean", "n.running_var", "n.weight", "rows"}
	if err != nil || !reflect.DeepEqual(fit.Taken, []string{"n.bias"}) || !reflect.DeepEqual(fit.Left, left) || !reflect.DeepEqual(fit.Unused, []string{"a.weight", "z"}) {
		t.Errorf("%+v, %v", fit, err)
	}
	_, err = m.Fit(infos(Tensor{Name: "a.weight", Shape: []int{2, 3}, Data: numbered(6)}, Tensor{Name: "a.bias", Shape: []int{3}, Ints: []int64{1, 2, 3}}, Tensor{Name: "rows", Shape: []int{4, 2}, Data: numbered(8)}), nil)
	for _, want := range []string{"a.weight: the file has [2 3], the model has [3 2]", "a.bias: the file has values of type I64", "rows: its rows lie on servers"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	if len(m.Take()) != len(left)+1 { // rows are not here, and a count is
		t.Errorf("%d tensors are taken out", len(m.Take()))
	}
}
