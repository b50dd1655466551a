// Package golden reads the files of bench/golden/make_golden.py: a peer's results for a layer or an
// optimizer, for comparison in tests.
//
// A file is gzipped: a line of JSON with the case's name, settings and arrays, then the arrays in
// order, little-endian.
package golden

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// Array is a tensor in row-major order: of Floats or of Ints.
type Array struct {
	Name   string    `json:"name"`
	Shape  []int     `json:"shape"`
	Type   string    `json:"type"` // "float32" or "int32"
	Floats []float32 `json:"-"`
	Ints   []int32   `json:"-"`
}

// File is a case.
type File struct {
	Name   string             `json:"name"`
	Op     string             `json:"op"` // name of the peer's operation
	Attrs  map[string]float64 `json:"attrs"`
	Arrays []*Array           `json:"arrays"`
}

// maxValues bounds the allocations of Read.
const maxValues = 1 << 20

// Read decodes a file.
func Read(r io.Reader) (*File, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	b := bufio.NewReader(z)
	line, err := b.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	f := &File{}
	if err := json.Unmarshal(line, f); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	for _, a := range f.Arrays {
		if a == nil {
			return nil, errors.New("header: an array is null")
		}
		if err := a.read(b); err != nil {
			return nil, fmt.Errorf("array %q: %w", a.Name, err)
		}
	}
	if _, err := b.ReadByte(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("after the arrays: want the end of the file, got %v", err)
	}
	return f, nil
}

func (a *Array) read(r io.Reader) error {
	n := 1
	for _, d := range a.Shape {
		if d < 1 || d > maxValues || n > maxValues/d {
			return fmt.Errorf("shape %v: want at least 1 and at most %d values", a.Shape, maxValues)
		}
		n *= d
	}
	switch a.Type {
	case "float32":
		a.Floats = make([]float32, n)
		return binary.Read(r, binary.LittleEndian, a.Floats)
	case "int32":
		a.Ints = make([]int32, n)
		return binary.Read(r, binary.LittleEndian, a.Ints)
	}
	return fmt.Errorf("type %q: want float32 or int32", a.Type)
}

// Each runs f as a subtest for each file of the folder, and fails without files.
func Each(t *testing.T, dir string, f func(t *testing.T, g *File)) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.gz"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden file in %s (%v)", dir, err)
	}
	for _, path := range paths {
		g, err := load(path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		t.Run(g.Name, func(t *testing.T) { f(t, g) })
	}
}

func load(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f)
}

// Has reports whether the file has the named array.
func (f *File) Has(name string) bool { return f.find(name) != nil }

func (f *File) find(name string) *Array {
	for _, a := range f.Arrays {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// Array returns the named array, and panics if missing.
func (f *File) Array(name string) *Array {
	a := f.find(name)
	if a == nil {
		panic(fmt.Sprintf("golden file %s has no array %q", f.Name, name))
	}
	return a
}

// Floats returns the values of Array(name).
func (f *File) Floats(name string) []float32 { return f.Array(name).Floats }

// Ints returns the values of Array(name).
func (f *File) Ints(name string) []int32 { return f.Array(name).Ints }

// Attr returns a setting, and panics if missing.
func (f *File) Attr(name string) float64 {
	v, ok := f.Attrs[name]
	if !ok {
		panic(fmt.Sprintf("golden file %s has no setting %q", f.Name, name))
	}
	return v
}

// Tolerance is the allowed error of a value, as a share of the tensor's largest magnitude.
const Tolerance = 1e-4

// Compare fails t if got differs by more than Tolerance from the named array, or in length.
func (f *File) Compare(t testing.TB, name string, got []float32) {
	t.Helper()
	if err := compare(f.Floats(name), got); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

func compare(want, got []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d values, want %d", len(got), len(want))
	}
	largest, worst, at := 0.0, 0.0, 0
	for i, w := range want {
		largest = max(largest, math.Abs(float64(w)))
		d := math.Abs(float64(got[i]) - float64(w))
		if math.IsNaN(d) {
			d = math.Inf(1)
		}
		if d > worst {
			worst, at = d, i
		}
	}
	if !(worst <= Tolerance*largest) {
		return fmt.Errorf("value %d is %v, the peer has %v; the largest is %v", at, got[at], want[at], largest)
	}
	return nil
}
