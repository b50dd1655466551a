package weights

import (
	"archive/zip"
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
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

// zipped writes tensors as NumPy's .npz and says where: no suffix tells what it is.
func zipped(t *testing.T, method uint16, tensors ...Tensor) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "arrays")
	var b bytes.Buffer
	if method == zip.Store {
		if err := WriteNPZ(&b, tensors); err != nil {
			t.Fatal(err)
		}
	} else {
		z := zip.NewWriter(&b)
		for _, v := range tensors {
			w, err := z.CreateHeader(&zip.FileHeader{Name: v.Name + ".npy", Method: method})
			if err != nil {
				t.Fatal(err)
			}
			out := bufio.NewWriter(w)
			_, _ = out.WriteString(npyHeader(v))
			writeValues(out, v)
			if err := out.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// A .npz has what was written to it, be it compressed or not, and NumPy's own have the values of every type. Integers are told and
// not read, as in safetensors; a name that comes twice and a file that was cut anywhere are errors, not a few tensors.
func TestSourceOfArrays(t *testing.T) {
	big := make([]float32, 1<<16+3) // more than is read at once
	for i := range big {
		big[i] = float32(i)
	}
	want := []Tensor{{Name: "big", Shape: []int{1, len(big)}, Data: big}, {Name: "one", Shape: []int{}, Data: []float32{7}}, {Name: "none", Shape: []int{0, 2}, Data: []float32{}}}
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		src, err := OpenSource(zipped(t, method, append(want, Tensor{Name: "n.num_batches_tracked", Shape: []int{}, Ints: []int64{5}})...))
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range want {
			got, err := src.Read(v.Name)
			if info := src.Tensors[i]; err != nil || !slices.Equal(got, v.Data) || !reflect.DeepEqual(info.Shape, v.Shape) || info.Type != "F32" || info.len() != int64(len(v.Data)) {
				t.Errorf("%s: %d values, %+v, %v", v.Name, len(got), info, err)
			}
		}
		if info := src.Tensors[3]; info.Type != "I64" || info.Float() {
			t.Errorf("%+v", info)
		}
		if _, err := src.Read("n.num_batches_tracked"); err == nil || !strings.Contains(err.Error(), "int64") {
			t.Errorf("integers as weights: %v", err)
		}
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	}
	src, err := OpenSource("../internal/data/npy/testdata/kinds.npz")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	floats := 0
	for _, info := range src.Tensors {
		if !info.Float() {
			continue
		}
		floats++
		got, err := src.Read(info.Name)
		if err != nil || !slices.Equal(got, numbered(24)) {
			t.Errorf("%+v: %v, %v", info, got, err)
		}
	}
	if floats != 12 { // of 16, 32 and 64 bits, both byte orders, both orders of axes
		t.Errorf("%d arrays of floats", floats)
	}
	if _, err := OpenSource(zipped(t, zip.Store, want[1], want[1])); err == nil || !strings.Contains(err.Error(), `two arrays are named "one"`) {
		t.Errorf("a name that comes twice: %v", err)
	}
	path := zipped(t, zip.Deflate, want[1], Tensor{Name: "w", Shape: []int{2, 3}, Data: numbered(6)})
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if err := os.WriteFile(path, whole[:n], 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenSource(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Fatalf("cut at %d of %d: %v", n, len(whole), err)
		}
	}
}

// A checkpoint, a safetensors file and a .npz are told apart by their content. A checkpoint's tensors have the names and layouts of here,
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
	arrays := zipped(t, zip.Deflate, Tensor{Name: "a.weight", Shape: []int{3, 2}, Data: w}, Tensor{Name: "a.bias", Shape: []int{3}, Data: w[:3]})
	for _, path := range []string{dir, checkpoint.PathOf(dir, 3), tensors, arrays} {
		src, err := OpenSource(path)
		if err != nil {
			t.Fatal(err)
		}
		ps := nn.NewParams(1)
		layer := ps.Dense("a", 2, 3)
		fit, err := src.Model(ps, nil, func(string) string { return "not of a checkpoint" }).Fit(src.Tensors, nil)
		if own := path != tensors && path != arrays; err != nil || own != (len(fit.Taken) == 2) || len(src.Tensors) != 2 {
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

// A value that is not finite is an error that names file, tensor and place.
func TestSourceNamesTheValueThatIsNotFinite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	for _, v := range []float64{math.NaN(), math.Inf(1)} {
		if err := os.WriteFile(path, written(t, Tensor{Name: "a.weight", Shape: []int{3}, Data: []float32{1, 2, float32(v)}}, Tensor{Name: "b", Shape: []int{1}, Data: []float32{1}}), 0o666); err != nil {
			t.Fatal(err)
		}
		src, err := OpenSource(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := src.Read("b"); err != nil {
			t.Error(err)
		}
		if _, err := src.Read("a.weight"); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%s: tensor a.weight: value 2 of 3 is %v", path, v)) {
			t.Errorf("got %v", err)
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
	if src, err := OpenSource(served); err != nil || len(src.Tensors) > 0 || src.Saved == nil || src.Saved.NP != 1 || src.Close() != nil {
		t.Errorf("a checkpoint whose parameters lie on servers: %+v, %v", src, err)
	}
	var pickled bytes.Buffer
	z := zip.NewWriter(&pickled)
	if _, err := z.Create("archive/data.pkl"); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none"): "no such file", t.TempDir(): "no checkpoint", file("a.pth", pickled.String()): "save_file", file("cut.npz", "PK\x03\x04…"): "no .npz archive",
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
	if err != nil || !reflect.DeepEqual(fit.Taken, []string{"n.bias"}) || !reflect.DeepEqual(fit.Unmatched, left) || !reflect.DeepEqual(fit.Unused, []string{"a.weight", "z"}) {
		t.Errorf("%+v, %v", fit, err)
	}
	_, err = m.Fit(infos(Tensor{Name: "a.weight", Shape: []int{2, 3}, Data: numbered(6)}, Tensor{Name: "a.bias", Shape: []int{3}, Ints: []int64{1, 2, 3}}, Tensor{Name: "rows", Shape: []int{4, 3}, Data: numbered(12)}), nil)
	for _, want := range []string{"a.weight: the file has [2 3], the model has [3 2]", "a.bias: the file has values of type I64", "rows: the file has [4 3]"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	rows := infos(Tensor{Name: "rows", Shape: []int{4, 2}, Data: numbered(8)})
	if fit, err := m.Fit(rows, nil); err != nil || !reflect.DeepEqual(fit.Elsewhere, []string{"rows"}) || len(fit.Taken) > 0 {
		t.Errorf("rows that lie on servers: %+v, %v", fit, err)
	}
	if err := m.Put(rows, nil); err == nil || !strings.Contains(err.Error(), "rows: its rows lie on servers") {
		t.Errorf("rows that lie on servers were put: %v", err)
	}
	if len(m.Take()) != len(left)+1 { // rows are not here, and a count is
		t.Errorf("%d tensors are taken out", len(m.Take()))
	}
}
