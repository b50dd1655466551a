package data

import (
	"archive/zip"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/data/table"
)

// npyFile is an array as NumPy saves it.
func npyFile(descr, shape string, values []byte) []byte {
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr, shape)
	return append(append([]byte("\x93NUMPY\x01\x00"), byte(len(text)), byte(len(text)>>8)), append([]byte(text), values...)...)
}

// npz writes an archive of arrays, given as name, type, shape and values, and says where.
func npz(t *testing.T, method uint16, arrays ...any) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "set.npz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	for a := range slices.Chunk(arrays, 4) {
		w, err := z.CreateHeader(&zip.FileHeader{Name: a[0].(string) + ".npy", Method: method})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(npyFile(a[1].(string), a[2].(string), a[3].([]byte))); err != nil {
			t.Fatal(err)
		}
	}
	if z.Close() != nil || f.Close() != nil {
		t.Fatal("cannot write")
	}
	return path
}

// counting are bytes 0, 1, 2 and so on.
func counting(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(i)
	}
	return out
}

// first is the first sample of a source.
func first(t *testing.T, s Source) Batch {
	t.Helper()
	var b Batch
	if err := s.Fill(&b, []int32{0}, Draw{}); err != nil {
		t.Fatal(err)
	}
	return b
}

// The usual names are those of samples and labels of both parts, bytes become numbers from 0 to 1, and channels come last.
func TestArraysByTheirNames(t *testing.T) {
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		path := npz(t, method,
			"x_train", "|u1", "(4, 3, 5, 5)", counting(300), "y_train", "<i2", "(4, 1)", []byte{0, 0, 2, 0, 1, 0, 1, 0},
			"x_test", "|u1", "(2, 3, 5, 5)", counting(150), "y_test", "|b1", "(2,)", []byte{1, 0}, "names", "<U9", "(1,)", []byte(nil))
		s, err := Open("arrays", Config{Dir: path})
		if err != nil {
			t.Fatal(err)
		}
		if s.Train.Len() != 4 || s.Eval.Len() != 2 || s.Classes != 3 || fmt.Sprint(s.Train.Shape().Values) != "[5 5 3]" {
			t.Errorf("%d, %d, %d classes, %v", s.Train.Len(), s.Eval.Len(), s.Classes, s.Train.Shape())
		}
		b := first(t, s.Train)
		if want := []float32{0, 25. / 255, 50. / 255, 1. / 255}; !slices.Equal(b.Values[:4], want) || b.Labels[0] != 0 {
			t.Errorf("%v, want %v; label %d", b.Values[:4], want, b.Labels[0])
		}
		if note := s.Notes[0]; note != "x_train (4 x 3 x 5 x 5, uint8) / 255, taken as channel, height, width, to find y_train (4 x 1, int16), one of 3 classes" {
			t.Error(note)
		}
		if first(t, s.Eval).Labels[0] != 1 || s.Fingerprint() == s.Meaning() {
			t.Error("the evaluation part is another")
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Other names are told, floats are targets, and a share is held out where there is no second part.
func TestArraysByTheSchema(t *testing.T) {
	path := npz(t, zip.Store, "a", "<f4", "(20, 2)", make([]byte, 160), "b", "<f8", "(20, 2)", make([]byte, 320), "x", "|i1", "(20,)", counting(20))
	s, err := Open("arrays", Config{Dir: path, Schema: table.Schema{"a": table.Number, "b": table.Target}, Split: 0.25})
	if err != nil {
		t.Fatal(err)
	}
	if sh := s.Train.Shape(); sh.Targets != 2 || sh.Labels != 0 || s.Train.Len()+s.Eval.Len() != 20 || s.Eval.Len() == 0 || len(s.Notes) != 2 {
		t.Errorf("%v, %d and %d, %q", sh, s.Train.Len(), s.Eval.Len(), s.Notes)
	}
	if s, err = Open("arrays", Config{Dir: path, Target: "x", Schema: table.Schema{"a": table.Number}}); err != nil || s.Classes != 20 {
		t.Errorf("%+v, %v", s, err)
	}
	dir := t.TempDir()
	for name, content := range map[string][]byte{"x.npy": npyFile("<f2", "(3, 2)", make([]byte, 12)), "y.npy": npyFile("|u1", "(3,)", []byte{0, 1, 0})} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = Open("arrays", Config{Dir: filepath.Join(dir, "x.npy")}); err != nil || s.Classes != 2 || s.Train.Len()+s.Eval.Len() != 3 {
		t.Errorf("%+v, %v", s, err)
	}
	if name := NameOf("mnist", Config{Dir: "a/B.NPZ"}); name != "arrays" {
		t.Error(name)
	}
}

// What does not fit is an error that names the file and what to do.
func TestArraysThatDoNotFit(t *testing.T) {
	rows := []byte{0, 1, 0}
	for _, c := range []struct {
		cfg    Config
		arrays []any
		want   string
	}{
		{Config{}, []any{"a", "|u1", "(3,)", rows}, "the file has none of those: data.schema gives others: NAME=number,NAME=label"},
		{Config{}, []any{"x", "|u1", "(3,)", rows}, "the file has x (3, uint8)"},
		{Config{}, []any{"x", "|u1", "(3,)", rows, "y", "|u1", "(2,)", rows[:2]}, "want equal numbers of rows"},
		{Config{}, []any{"x", "|u1", "(3,)", rows, "images", "|u1", "(3,)", rows, "y", "|u1", "(3,)", rows}, "both x (3, uint8) and images (3, uint8) could be meant: data.schema says which"},
		{Config{}, []any{"x", "|u1", "(3,)", rows, "y", "|i1", "(3,)", []byte{0, 1, 0xff}}, "row 2 is -1: want labels from 0 to 65535"},
		{Config{}, []any{"x", "|u1", "(3,)", rows, "y", "|i1", "(1, 3)", rows}, "equal numbers of rows"},
		{Config{}, []any{"x", "|u1", "(1, 3)", rows, "y", "|i1", "(1, 3)", rows}, "want one label for each sample"},
		{Config{Schema: table.Schema{"y": table.Label}}, []any{"x", "|u1", "(1, 3)", rows, "y", "<f2", "(1,)", rows[:2]}, "labels have to be integers: data.schema y=target"},
		{Config{Schema: table.Schema{"z": table.Label}}, []any{"x", "|u1", "(3,)", rows}, "data.schema z"},
		{Config{Target: "z"}, []any{"x", "|u1", "(3,)", rows}, "data.target z"},
		{Config{Split: 0.1}, []any{"x", "|u1", "(3,)", rows, "y", "|u1", "(3,)", rows, "x_test", "|u1", "(3,)", rows, "y_test", "|u1", "(3,)", rows}, "are held out, because"},
		{Config{}, []any{"x", "|u1", "(3,)", rows, "y", "|u1", "(3,)", rows, "x_test", "|u1", "(1, 3)", rows, "y_test", "|u1", "(1,)", rows[:1]}, "want the same shape"},
	} {
		c.cfg.Dir = npz(t, zip.Store, c.arrays...)
		_, err := Open("arrays", c.cfg)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.cfg.Dir) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// A value that is not finite is an error that names file, array and row: of samples when they are
// read, of targets when they are opened.
func TestArraysNameTheRowThatIsNotFinite(t *testing.T) {
	bad := make([]byte, 4*12)
	binary.LittleEndian.PutUint32(bad[4*9:], math.Float32bits(float32(math.Inf(-1))))
	path := npz(t, zip.Store, "x", "<f4", "(6, 2)", bad, "y", "|u1", "(6,)", []byte{0, 1, 0, 1, 0, 1}, "x_test", "<f4", "(1, 2)", make([]byte, 8), "y_test", "|u1", "(1,)", []byte{1})
	s, err := Open("arrays", Config{Dir: path})
	if err != nil {
		t.Fatal(err)
	}
	var b Batch
	if err := s.Train.Fill(&b, []int32{3, 5}, Draw{}); err != nil {
		t.Errorf("rows without it: %v", err)
	}
	if err := s.Train.Fill(&b, []int32{3, 4}, Draw{}); err == nil || !strings.Contains(err.Error(), path+": x (6 x 2, float32): row 4: value 1 is -Inf") {
		t.Errorf("a sample: %v", err)
	}
	path = npz(t, zip.Store, "x", "|u1", "(6,)", make([]byte, 6), "y", "<f4", "(6, 2)", bad)
	if _, err := Open("arrays", Config{Dir: path}); err == nil || !strings.Contains(err.Error(), path+": y (6 x 2, float32): row 4: value 1 is -Inf") {
		t.Errorf("a target: %v", err)
	}
}

// A batch of rows in any order, some of them neighbours, has the values of its rows one by one.
func TestArraysOfSeveralRows(t *testing.T) {
	const rows = 40
	for _, c := range []struct {
		descr, shape string
		size         int
	}{{"<f4", "(40, 5)", 4}, {">f4", "(40, 5)", 4}, {"<f8", "(40, 5)", 8}, {"|u1", "(40, 5)", 1}, {"|u1", "(40, 3, 5, 6)", 1}, {"<f4", "(40, 3, 5, 6)", 4}, {"<f4", "(40, 1, 5, 6)", 4}} {
		each := 5
		if len(c.shape) > 8 {
			each = 90
		}
		if c.shape == "(40, 1, 5, 6)" {
			each = 30
		}
		values := counting(rows * each * c.size)
		for i := range values { // no NaN, which is not itself
			values[i] &= 0x3f
		}
		set, err := Open("arrays", Config{Dir: npz(t, zip.Store, "x", c.descr, c.shape, values, "y", "|u1", "(40,)", counting(rows)), Split: 0.1})
		if err != nil {
			t.Fatal(err)
		}
		s := set.Train
		idx := []int32{3, 4, 5, 0, 1, 9, 8, 7, 7, 8, 20, 21, 22, 23, 2}
		var all, one Batch
		if err := s.Fill(&all, idx, Draw{}); err != nil {
			t.Fatal(err)
		}
		size := s.Shape().Size()
		for i, n := range idx {
			if err := s.Fill(&one, []int32{n}, Draw{}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(one.Values, all.Values[i*size:(i+1)*size]) || one.Labels[0] != all.Labels[i] {
				t.Errorf("%s %s: row %d is %v, want %v", c.descr, c.shape, n, all.Values[i*size:(i+1)*size], one.Values)
			}
		}
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Samples of other types than uint8 have the numbers that are in the file.
func TestArraysKeepOtherTypes(t *testing.T) {
	for descr, content := range map[string][]byte{
		"|i1": {255, 7}, "<i2": {255, 255, 7, 0}, ">u2": {1, 0, 0, 7}, "<u4": {0, 0, 1, 0, 7, 0, 0, 0}, "|b1": {1, 0},
		"<f2": {0, 0x3c, 0, 0xc5}, "<f4": {0, 0, 128, 63, 0, 0, 160, 192}, "<f8": {0, 0, 0, 0, 0, 0, 240, 63, 0, 0, 0, 0, 0, 0, 20, 192},
	} {
		want := map[string][]float32{"|i1": {-1, 7}, "<i2": {-1, 7}, ">u2": {256, 7}, "<u4": {65536, 7}, "|b1": {1, 0}, "<f2": {1, -5}, "<f4": {1, -5}, "<f8": {1, -5}}[descr]
		path := npz(t, zip.Store, "x_train", descr, "(1, 2)", content, "y_train", "|u1", "(1,)", []byte{0}, "x_test", descr, "(1, 2)", content, "y_test", "|u1", "(1,)", []byte{0})
		s, err := Open("arrays", Config{Dir: path})
		if err != nil {
			t.Errorf("%s: %v", descr, err)
			continue
		}
		if b := first(t, s.Train); !slices.Equal(b.Values[:2], want) {
			t.Errorf("%s: %v, want %v", descr, b.Values[:2], want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
