package weights

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/nn"
)

func numbered(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(i)
	}
	return out
}

func written(t testing.TB, tensors ...Tensor) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, tensors, map[string]string{"format": "pt"}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func opened(b []byte) (*File, error) { return NewFile("test", bytes.NewReader(b), int64(len(b))) }

// A network with a convolution, and a dense layer behind a flatten: what is taken lies as PyTorch's formulas say, value by value,
// and what is put back is what was.
func TestLayouts(t *testing.T) {
	ps := nn.NewParams(1)
	conv, norm := ps.Conv2D("conv", 2, 4, 3), ps.BatchNorm("norm", 4)
	fc, out := ps.Dense("fc", 2*3*4, 5), ps.Dense("out", 5, 5)
	for _, p := range ps.List() {
		copy(p.Data, numbered(len(p.Data)))
	}
	x := nn.NewTensor(1, 4, 5, 2)
	nodes, err := nn.Trace(func(t *nn.Tape) {
		y := t.BatchNorm(t.Conv2D(x, conv, nn.Conv{}), norm, nil, nn.ReLU)
		t.Dense(t.Dense(t.Dropout(t.Flatten(y), 0.5), fc, nn.ReLU), out, nn.Identity)
	})
	if err != nil {
		t.Fatal(err)
	}
	m := Of(ps, nodes, func(name string) string { return "net." + name })
	got := map[string]Tensor{}
	for _, v := range m.Take() {
		got[v.Name] = v
	}
	if w := got["net.conv.weight"]; !reflect.DeepEqual(w.Shape, []int{4, 2, 3, 3}) {
		t.Fatalf("the convolution's weights have shape %v", w.Shape)
	}
	for o := range 4 {
		for i := range 2 {
			for y := range 3 {
				for x := range 3 {
					if a, b := got["net.conv.weight"].Data[((o*2+i)*3+y)*3+x], conv.W.Data[((y*3+x)*2+i)*4+o]; a != b {
						t.Fatalf("weight %d %d %d %d is %v, want %v", o, i, y, x, a, b)
					}
				}
			}
		}
	}
	for o := range 5 {
		for c := range 4 {
			for y := range 2 {
				for x := range 3 {
					if a, b := got["net.fc.weight"].Data[o*24+(c*2+y)*3+x], fc.W.Data[o*24+(y*3+x)*4+c]; a != b {
						t.Fatalf("behind the flatten, %d %d %d %d is %v, want %v", o, c, y, x, a, b)
					}
				}
			}
		}
	}
	if !reflect.DeepEqual(got["net.out.weight"].Data, out.W.Data) || got["net.norm.num_batches_tracked"].Ints == nil || got["net.norm.running_var"].Data[0] != 1 {
		t.Error("the last layer or the normalisation differ")
	}
	f, err := opened(written(t, m.Take()...))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ps.List() {
		clear(p.Data)
	}
	if err := m.Put(f.Tensors(), f.Read); err != nil {
		t.Fatal(err)
	}
	for _, p := range ps.List() {
		if !reflect.DeepEqual(p.Data, numbered(len(p.Data))) {
			t.Errorf("%s is not what was taken out", p.Name)
		}
	}
}

// All that does not fit is told at once, and nothing was overwritten.
func TestPutFaults(t *testing.T) {
	ps := nn.NewParams(1)
	ps.Dense("a", 2, 3)
	m := Of(ps, nil, nil)
	f, err := opened(written(t, Tensor{Name: "a.weight", Shape: []int{2, 3}, Data: numbered(6)}, Tensor{Name: "b", Shape: []int{1}, Data: numbered(1)}))
	if err != nil {
		t.Fatal(err)
	}
	err = m.Put(f.Tensors(), f.Read)
	for _, want := range []string{"a.weight: the file has [2 3], the model has [3 2]", "a.bias: the file has none", "b: the file has [1], the model has none"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// raw is a file with a header and as many bytes of values.
func raw(header string, values int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, values)...)
}

// Hostile files: each an error that says what is wrong.
func TestHostile(t *testing.T) {
	one := func(e string) string { return `{"a":{` + e + `}}` }
	for _, c := range []struct {
		name string
		file []byte
		says string
	}{
		{"empty", nil, "ends within"},
		{"length", []byte{255, 255, 255, 255, 255, 255, 255, 127, 'x'}, "cut off"},
		{"negative", []byte{255, 255, 255, 255, 255, 255, 255, 255, 'x'}, "cut off"},
		{"no JSON", raw("[]", 0), "no JSON object"},
		{"cut JSON", raw(`{"a":`, 0), "EOF"},
		{"twice", raw(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), "two tensors"},
		{"type", raw(one(`"dtype":"F1","shape":[1],"data_offsets":[0,4]`), 4), "not known"},
		{"shape", raw(one(`"dtype":"F32","shape":[-1],"data_offsets":[0,4]`), 4), "cannot be"},
		{"overflow", raw(one(`"dtype":"F32","shape":[2147483647,2147483647,2147483647],"data_offsets":[0,4]`), 4), "cannot be"},
		{"offsets", raw(one(`"dtype":"F32","shape":[2],"data_offsets":[0,4]`), 4), "offsets"},
		{"backwards", raw(one(`"dtype":"F32","shape":[0],"data_offsets":[4,0]`), 4), "offsets"},
		{"hole", raw(one(`"dtype":"F32","shape":[1],"data_offsets":[4,8]`), 8), "leave a hole"},
		{"overlap", raw(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3), "overlap"},
		{"cut", raw(one(`"dtype":"F32","shape":[2],"data_offsets":[0,8]`), 7), "cut off"},
		{"more", raw(one(`"dtype":"F32","shape":[2],"data_offsets":[0,8]`), 9), "something follows"},
		{"after", raw(`{} {}`, 0), "follows the header"},
	} {
		if _, err := opened(c.file); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}

// Values of the four kinds of floats, special ones among them; of others, an error.
func TestKinds(t *testing.T) {
	header := `{"d":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[2],"data_offsets":[8,12]},` +
		`"h":{"dtype":"F16","shape":[6],"data_offsets":[12,24]},"i":{"dtype":"I8","shape":[1],"data_offsets":[24,25]}}`
	b := raw(header, 0)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(-1.5))
	for _, v := range []uint16{0x3fc0, 0xff80, 0x3c00, 0xc100, 0x7c00, 0x0001, 0x8000, 0x7bff} {
		b = binary.LittleEndian.AppendUint16(b, v)
	}
	f, err := opened(append(b, 7))
	if err != nil {
		t.Fatal(err)
	}
	inf := float32(math.Inf(1))
	for name, want := range map[string][]float32{"d": {-1.5}, "b": {1.5, -inf}, "h": {1, -2.5, inf, 1.0 / (1 << 24), 0, 65504}} {
		if got, err := f.Read(name); err != nil || !reflect.DeepEqual(got, want) && fmt.Sprint(got) != strings.Replace(fmt.Sprint(want), " 0 ", " -0 ", 1) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, want)
		}
	}
	if _, err := f.Read("i"); err == nil || !strings.Contains(err.Error(), "I8") {
		t.Errorf("integers: %v", err)
	}
	if _, err := f.Read("none"); err == nil {
		t.Error("a tensor that is not there was read")
	}
}

func FuzzSafetensors(f *testing.F) {
	f.Add(written(f, Tensor{Name: "a", Shape: []int{2}, Data: numbered(2)}, Tensor{Name: "b", Shape: []int{}, Ints: []int64{1}}))
	f.Add(raw(`{"a":{"dtype":"F16","shape":[1,0],"data_offsets":[0,0]}}`, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := opened(b)
		if err != nil {
			return
		}
		for _, i := range file.Tensors() {
			if v, err := file.Read(i.Name); err == nil && 2*len(v) > len(b) {
				t.Errorf("%d values from %d bytes", len(v), len(b))
			}
		}
	})
}

// A .npz has a file for each tensor, whose values begin at a multiple of 64 bytes.
func TestNPZ(t *testing.T) {
	var b bytes.Buffer
	if err := WriteNPZ(&b, []Tensor{{Name: "w", Shape: []int{2, 3}, Data: numbered(6)}, {Name: "n", Shape: []int{}, Ints: []int64{5}}}); err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil || len(z.File) != 2 || z.File[0].Name != "w.npy" {
		t.Fatal(err)
	}
	for i, want := range []string{"{'descr': '<f4', 'fortran_order': False, 'shape': (2,3,), }", "{'descr': '<i8', 'fortran_order': False, 'shape': (), }"} {
		r, err := z.File[i].Open()
		if err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(r)
		if err != nil || !strings.HasPrefix(string(all[10:]), want) || (10+int(all[8]))%64 != 0 || len(all) != 128+[2]int{24, 8}[i] {
			t.Errorf("%v: %q", err, all)
		}
	}
}
