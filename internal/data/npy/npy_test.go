package npy

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// values are all numbers of an array.
func values(t *testing.T, a *Array) []float32 {
	t.Helper()
	b, err := a.Bytes(nil, 0, a.Len())
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float32, a.Len()*a.RowSize())
	a.Type.Float32(out, b)
	return out
}

// Arrays that NumPy has written, of all types, in both orders, versions 1 to 3, compressed and not, have their values.
func TestAllThatNumPyWrites(t *testing.T) {
	for _, name := range []string{"kinds.npz", "kinds_compressed.npz"} {
		f, err := Open(filepath.Join("testdata", name), nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Arrays) != 42 {
			t.Errorf("%d arrays", len(f.Arrays))
		}
		for _, a := range f.Arrays {
			most := 100
			if a.Type.Kind == 'b' {
				most = 2
			}
			if fmt.Sprint(a.Shape) != "[4 3 2]" || strings.HasPrefix(a.Name, "big") != a.Type.Big || a.RowSize() != 6 {
				t.Errorf("%v", a)
			}
			for i, v := range values(t, a) {
				if v != float32(i%most) {
					t.Fatalf("%s: %v: value %d is %v", name, a, i, v)
				}
			}
			row, err := a.Bytes(nil, 2, 1)
			if err != nil || a.Type.Integer() && a.Type.Int64(row) != int64(12%most) {
				t.Errorf("%v: row 2 begins with %d, %v", a, a.Type.Int64(row), err)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Rows are those that Bytes has, of all types, whether an array is held or read from its file.
func TestRows(t *testing.T) {
	for _, name := range []string{"kinds.npz", "kinds_compressed.npz"} {
		for _, hold := range []int64{0, 1 << 20} {
			f, err := Open(filepath.Join("testdata", name), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range f.Arrays {
				if err := a.Hold(hold); err != nil {
					t.Error(err)
				}
				if _, in := a.values.(*bytes.Reader); hold > 0 && !in {
					t.Errorf("%s: %v is not held", name, a)
				}
				b, err := a.Bytes(nil, 1, 3)
				got, want := make([]float32, 3*a.RowSize()), make([]float32, 3*a.RowSize())
				if err == nil {
					err = a.Rows(got, 1)
				}
				if a.Type.Float32(want, b); err != nil || !slices.Equal(got, want) {
					t.Errorf("%s: %v: rows %v, want %v, %v", name, a, got, want, err)
				}
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// header is that of a .npy, with values behind it.
func array(descr string, fortran bool, shape string, values []byte) []byte {
	order := "False"
	if fortran {
		order = "True"
	}
	text := fmt.Sprintf("{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n", descr, order, shape)
	b := append([]byte(magic+"\x01\x00"), byte(len(text)), byte(len(text)>>8))
	return append(append(b, text...), values...)
}

func write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// Integers of all signs and sizes, and halves, are those they are.
func TestExtremes(t *testing.T) {
	for _, c := range []struct {
		t    string
		bits uint64
		want float32
	}{
		{"<i1", 0xff, -1}, {"<i2", 0x8000, -32768}, {"<i4", 0x80000000, -1 << 31}, {"<i8", 1 << 63, -1 << 63}, {"<u8", 1 << 63, 1 << 63}, {"<u1", 0xff, 255},
		{"<f2", 0x3c00, 1}, {"<f2", 0xc000, -2}, {"<f2", 1, 0x1p-24}, {"<f2", 0x7bff, 65504}, {"<f2", 0x7c00, float32(math.Inf(1))}, {"<f8", math.Float64bits(-0.1), -0.1},
	} {
		typ, err := parseType(c.t)
		got := make([]float32, 1)
		if typ.Float32(got, binary.LittleEndian.AppendUint64(nil, c.bits)); got[0] != c.want || err != nil {
			t.Errorf("%s of %x is %v, want %v", c.t, c.bits, got[0], c.want)
		}
	}
}

// What a file says wrongly is an error that names it, before memory is taken for it.
func TestLyingFiles(t *testing.T) {
	eight := make([]byte, 8)
	for want, content := range map[string][]byte{
		"byte 0: no array of NumPy":                   []byte("\x93NUMPX\x01\x00\x00\x00"),
		"byte 0: truncated":                           {},
		"byte 6: version 9 of the format":             []byte(magic + "\x09\x00\x00\x00"),
		"byte 8: a description of 4294967295 bytes":   []byte(magic + "\x02\x00\xff\xff\xff\xff"),
		"truncated: shape [4611686018427387904] of":   array("'|u1'", false, "(4611686018427387904,)", nil),
		"impossible shape [4611686018427387904 4]":    array("'<f4'", false, "(4611686018427387904, 4)", eight),
		"impossible shape [0 4611686018427387904 4]":  array("'<f4'", false, "(0, 4611686018427387904, 4)", nil),
		"needs 12 bytes of values, and there are 8":   array("'<f4'", false, "(3,)", eight),
		"4 bytes more than shape [1] of float32":      array("'<f4'", false, "(1,)", eight),
		"want a shape of at most 64 numbers":          array("'<f4'", false, "(-2,)", eight),
		`type "<U5"`:                                  array("'<U5'", false, "(2,)", eight),
		`type "<c8"`:                                  array("'<c8'", false, "(1,)", eight),
		`type "|O"`:                                   array("'|O'", false, "(1,)", eight),
		"an array of records":                         array("[('x', '<f4')]", false, "(2,)", eight),
		`"descr" stands twice`:                        array("'<f4', 'descr': '<f4'", false, "(2,)", eight),
		`unknown key "x"`:                             array("'<f4', 'x': 1", false, "(2,)", eight),
		"want True or False":                          bytes.Replace(array("'<f4'", false, "(2,)", eight), []byte("False"), []byte("Maybe"), 1),
		"more text behind":                            bytes.Replace(array("'<f4'", false, "(2,)", eight), []byte(", }\n"), []byte("}  x"), 1),
		"lacks descr, fortran_order or shape":         append([]byte(magic+"\x01\x00\x02\x00{}"), eight...),
		"a text without an end":                       append([]byte(magic+"\x01\x00\x02\x00{'"), eight...),
		"want a shape of at most 64 numbers in the d": array("'<f4'", false, "("+strings.Repeat("1,", 65)+")", eight),
	} {
		path := write(t, "x.npy", content)
		_, err := Open(path, nil)
		var fault *Fault
		if !errors.As(err, &fault) || fault.File != path || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none.npy"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// An archive that is cut anywhere, or in which any byte is another, is an error or has its values.
func TestDamagedArchives(t *testing.T) {
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	for name, method := range map[string]uint16{"a.npy": zip.Store, "b.npy": zip.Deflate} {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: method})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(array("'|u1'", name == "b.npy", "(3, 2)", []byte{1, 2, 3, 4, 5, 6}))
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	whole := packed.Bytes()
	path := write(t, "x.npz", nil)
	try := func(content []byte, mayOpen bool) {
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path, nil)
		if err != nil {
			var fault *Fault
			if !errors.As(err, &fault) || fault.File != path {
				t.Fatalf("%v", err)
			}
			return
		}
		defer f.Close()
		for _, a := range f.Arrays {
			if got := fmt.Sprint(values(t, a)); !mayOpen || got != "[1 2 3 4 5 6]" && got != "[1 3 5 2 4 6]" && got != "[1 4 2 5 3 6]" {
				t.Fatalf("%v has %s", a, got)
			}
		}
	}
	try(whole, true)
	for n := range whole {
		try(whole[:n], false)
		if n%3 == 0 { // time
			other := bytes.Clone(whole)
			other[n] ^= 0x10
			try(other, true)
		}
	}
}

// A .npy comes with those beside it that are wanted, whatever its folder is called.
func TestArraysOfAFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "[a]*")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x", "y", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name+".npy"), array("'|u1'", false, "(2,)", []byte{1, 2}), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Open(filepath.Join(dir, "x.npy"), func(name string) bool { return name == "y" })
	if err != nil || len(f.Arrays) != 2 || f.Arrays[0].Name != "x" || f.Arrays[1].Name != "y" {
		t.Fatalf("%+v, %v", f, err)
	}
	if err := os.Truncate(filepath.Join(dir, "y.npy"), f.Arrays[1].begin+1); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Arrays[1].Bytes(nil, 0, 2); err == nil || !strings.Contains(err.Error(), "truncated") { // while it is used
		t.Error(err)
	}
	if err := f.Arrays[1].Hold(1 << 20); err == nil || !strings.Contains(err.Error(), "truncated") {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(array("'<f4'", true, "(2, 3)", make([]byte, 24)))
	f.Add([]byte(magic + "\x03\x00\x02\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, content []byte) {
		a := new(Array)
		fortran, err := a.header(bytes.NewReader(content), int64(len(content)))
		if err != nil {
			return
		}
		if n := a.Len() * a.RowSize() * a.Type.Size; len(a.Shape) > 0 && n != len(content)-int(a.begin) {
			t.Fatalf("%v has %d bytes of %d", a, n, len(content))
		}
		rest := bytes.NewReader(content[a.begin:])
		if fortran {
			err = a.turn(rest)
		} else {
			err = a.keep(rest)
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Shape) > 0 {
			values(t, a)
		}
	})
}
