package golden

import (
	"bytes"
	"compress/gzip"
	"math"
	"slices"
	"strings"
	"testing"
)

func packed(t testing.TB, content string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const header = `{"name":"a","op":"b","attrs":{"k":3},"arrays":[` +
	`{"name":"x","shape":[1,2],"type":"float32"},{"name":"i","shape":[1],"type":"int32"}]}` + "\n"

func TestRead(t *testing.T) {
	f, err := Read(bytes.NewReader(packed(t, header+"\x00\x00\x80\x3f\x00\x00\x00\xc0\xff\xff\xff\xff")))
	if err != nil {
		t.Fatal(err)
	}
	if f.Name != "a" || f.Op != "b" || f.Attr("k") != 3 || f.Has("y") {
		t.Errorf("read %+v", f)
	}
	if !slices.Equal(f.Floats("x"), []float32{1, -2}) || !slices.Equal(f.Ints("i"), []int32{-1}) {
		t.Errorf("arrays %v and %v", f.Array("x"), f.Array("i"))
	}
}

func TestReadFaults(t *testing.T) {
	long := strings.Repeat("x", 13)
	for content, want := range map[string]string{
		"":                         "header: EOF",
		"{}":                       "header: EOF",
		"{]\n":                     "header: invalid",
		header:                     `array "x": EOF`,
		header + long[:9]:          `array "i": unexpected EOF`,
		header + long:              "after the arrays",
		`{"arrays":[null]}` + "\n": "an array is null",
		`{"arrays":[{"name":"x","type":"int8"}]}` + "\n":                            `type "int8"`,
		`{"arrays":[{"name":"x","type":"int32","shape":[0]}]}` + "\n":               "at least 1",
		`{"arrays":[{"name":"x","type":"int32","shape":[-1,-1]}]}` + "\n":           "at least 1",
		`{"arrays":[{"name":"x","type":"int32","shape":[1000000,1000000]}]}` + "\n": "at most",
	} {
		if _, err := Read(bytes.NewReader(packed(t, content))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want it to hold %q", content, err, want)
		}
	}
	if _, err := Read(strings.NewReader("plain")); err == nil {
		t.Error("what is not gzipped was read")
	}
}

func TestCompare(t *testing.T) {
	nan := float32(math.NaN())
	want := []float32{0, 10, -100}
	for _, c := range []struct {
		got []float32
		ok  bool
	}{
		{[]float32{0.009, 9.991, -100}, true},
		{[]float32{0.011, 10, -100}, false},
		{[]float32{0, 10, 100}, false},
		{[]float32{0, 10}, false},
		{[]float32{0, nan, -100}, false},
		{[]float32{nan, 11, -100}, false},
	} {
		if err := compare(want, c.got); (err == nil) != c.ok {
			t.Errorf("%v: %v", c.got, err)
		}
	}
	if compare([]float32{nan}, []float32{nan}) == nil {
		t.Error("NaN was accepted")
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(header + "\x00\x00\x80\x3f\x00\x00\x00\xc0\xff\xff\xff\xff"))
	f.Add([]byte(`{"arrays":[{"name":"x","type":"int32","shape":[]}]}` + "\nabcd"))
	f.Fuzz(func(t *testing.T, content []byte) {
		g, err := Read(bytes.NewReader(packed(t, string(content))))
		if err != nil {
			return
		}
		for _, a := range g.Arrays {
			n := 1
			for _, d := range a.Shape {
				n *= d
			}
			if len(a.Floats)+len(a.Ints) != n {
				t.Errorf("array %q of shape %v has %d values", a.Name, a.Shape, len(a.Floats)+len(a.Ints))
			}
		}
	})
}
