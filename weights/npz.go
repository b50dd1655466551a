package weights

import (
	"archive/zip"
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/data/npy"
)

// WriteNPZ writes tensors as NumPy's .npz: an uncompressed zip file with a .npy for each tensor.
func WriteNPZ(w io.Writer, tensors []Tensor) error {
	z := zip.NewWriter(w)
	for _, t := range tensors {
		f, err := z.CreateHeader(&zip.FileHeader{Name: t.Name + ".npy", Method: zip.Store})
		if err != nil {
			return fmt.Errorf("weights: %w", err)
		}
		out := bufio.NewWriterSize(f, 1<<18)
		_, _ = out.WriteString(npyHeader(t)) // Flush returns the error
		writeValues(out, t)
		if err := out.Flush(); err != nil {
			return fmt.Errorf("weights: writing %s: %w", t.Name, err)
		}
	}
	return z.Close()
}

// npyHeader precedes the values in a .npy of version 1.0. Values begin at a multiple of 64.
func npyHeader(t Tensor) string {
	kind := "<f4"
	if t.Data == nil {
		kind = "<i8"
	}
	shape := ""
	for _, d := range t.Shape {
		shape += strconv.Itoa(d) + ","
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", kind, shape)
	text += strings.Repeat(" ", -(10+len(text)+1)&63) + "\n"
	return "\x93NUMPY\x01\x00" + string([]byte{byte(len(text)), byte(len(text) >> 8)}) + text
}

// openNPZ opens the arrays of a zip file, each a tensor.
func openNPZ(path string) (*Source, error) {
	f, err := npy.Open(path, nil)
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	s := &Source{Path: path, close: f.Close}
	arrays := map[string]*npy.Array{}
	for _, a := range f.Arrays {
		if arrays[a.Name] != nil {
			err = errors.Join(err, fmt.Errorf("weights: %s: two arrays are named %q", path, a.Name))
		}
		arrays[a.Name] = a
		s.Tensors = append(s.Tensors, infoOf(a))
	}
	if len(f.Arrays) == 0 {
		err = fmt.Errorf("weights: %s is a zip file without arrays of NumPy, such as PyTorch's .pth: write it as safetensors there, in PyTorch with safetensors.torch.save_file(model.state_dict(), FILE)", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.Read = func(name string) ([]float32, error) {
		a, ok := arrays[name]
		if !ok {
			return nil, fmt.Errorf("weights: %s has no tensor %q", path, name)
		}
		if a.Type.Integer() {
			return nil, fmt.Errorf("weights: %s: %q has values of type %v, want float16, float32 or float64", path, name, a.Type)
		}
		out, err := a.Float32s()
		if err != nil {
			return nil, fmt.Errorf("weights: %w", err)
		}
		return out, nil
	}
	return s, nil
}

// infoOf returns the description of a NumPy array in the terms of safetensors.
func infoOf(a *npy.Array) Info {
	kind := "BOOL"
	if a.Type.Kind != 'b' {
		kind = strings.ToUpper(string(a.Type.Kind)) + strconv.Itoa(8*a.Type.Size)
	}
	n := int64(a.Type.Size)
	for _, d := range a.Shape {
		n *= int64(d)
	}
	return Info{Name: a.Name, Type: kind, Shape: a.Shape, hi: n}
}
