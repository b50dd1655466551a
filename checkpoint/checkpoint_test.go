package checkpoint

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/crc32c"
	"github.com/ringo-ml/ringo/internal/setting"
)

var testHeader = Header{
	Model: "mnist-cnn", Step: 123, Epoch: 2, Position: 17, NP: 4, Strategy: "fp32",
	Settings: setting.Values{"training.lr": "0.1", "training.momentum": "0.9"}, More: map[string]string{"note": "ä"},
}

// small is a state of every kind of array, an empty one and special values
// among them.
func small(step int64) State {
	h := testHeader
	h.Step = step
	return State{Header: h, Keep: DefaultKeep, Arrays: []Array{
		Floats("params", []float32{1, -2.5, float32(math.Inf(1)), float32(math.Copysign(0, -1)), 1e-44, math.Float32frombits(0x7fc00123)}),
		Words("rng", []uint64{1, math.MaxUint64, 1 << 63}),
		Bytes("text", []byte("abc")),
		Floats("empty", nil),
		Floats(RankName(3, "residual"), []float32{7}),
	}}
}

// targets are arrays like a state's with other values.
func targets(s State) (out []Array) {
	for _, a := range s.Arrays {
		switch a.kind {
		case float32s:
			out = append(out, Floats(a.name, make([]float32, a.len())))
		case uint64s:
			out = append(out, Words(a.name, make([]uint64, a.len())))
		default:
			out = append(out, Bytes(a.name, make([]byte, a.len())))
		}
	}
	return out
}

// same compares bits.
func same(a, b Array) bool {
	return slices.EqualFunc(a.floats, b.floats, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }) &&
		slices.Equal(a.words, b.words) && slices.Equal(a.bytes, b.bytes) && a.info() == b.info()
}

func save(t testing.TB, dir string, s State) string {
	t.Helper()
	path, err := Save(dir, s)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// readAll loads a file and reads arrays like those of s from it.
func readAll(path string, s State) (Header, []Array, error) {
	f, err := Load(path)
	if err != nil {
		return Header{}, nil, err
	}
	defer f.Close()
	got := targets(s)
	return f.Header, got, f.Read(got...)
}

func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s := small(123)
	for _, n := range []int{1, chunkBytes / 4, chunkBytes/4 + 1, 3*chunkBytes/8 + 5} { // around one pass of the buffer
		floats, words, text := make([]float32, n), make([]uint64, n), make([]byte, n)
		for i := range n {
			floats[i], words[i], text[i] = math.Float32frombits(r.Uint32()), r.Uint64(), byte(r.Uint32())
		}
		name := "of " + Info{Len: int64(n)}.String()
		s.Arrays = append(s.Arrays, Floats("floats "+name, floats), Words("words "+name, words), Bytes("bytes "+name, text))
	}
	dir := filepath.Join(t.TempDir(), "new", "folder")
	path := save(t, dir, s)
	if filepath.Base(path) != "step-000000123.ringo" {
		t.Errorf("saved as %s", path)
	}
	h, got, err := readAll(path, s)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(h, s.Header) {
		t.Errorf("header %+v, want %+v", h, s.Header)
	}
	for i, a := range s.Arrays {
		if !same(a, got[i]) {
			t.Errorf("array %q differs", a.name)
		}
	}
	f, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.verify(); err != nil {
		t.Error(err)
	}
	for i, a := range f.Arrays() {
		if a != s.Arrays[i].info() {
			t.Errorf("array %d is listed as %v, want %v", i, a, s.Arrays[i].info())
		}
	}
}

// The bytes are those of the format's description, on every architecture.
func TestBytes(t *testing.T) {
	path := save(t, t.TempDir(), State{
		Header: Header{Model: "m", Step: 7, NP: 1, Strategy: "fp32"},
		Arrays: []Array{Floats("p", []float32{1.5, -2}), Words("w", []uint64{0x0102030405060708}), Bytes("b", []byte{9})},
	})
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := `{"model":"m","step":7,"epoch":0,"position":0,"np":1,"strategy":"fp32",` +
		`"arrays":[{"name":"p","kind":"float32","len":2},{"name":"w","kind":"uint64","len":1},{"name":"b","kind":"bytes","len":1}]}`
	want := []byte("RINGOCKP\x01\x00\x00\x00")
	want = binary.LittleEndian.AppendUint32(want, uint32(len(text)))
	want = append(want, text...)
	sum := func(from int) {
		want = binary.LittleEndian.AppendUint32(want, crc32c.Checksum(want[from:]))
	}
	sum(0)
	for _, data := range []string{"0000c03f000000c0", "0807060504030201", "09"} {
		from := len(want)
		b, _ := hex.DecodeString(data)
		want = append(want, b...)
		sum(from)
	}
	if string(got) != string(want) {
		t.Errorf("the file is\n%x\nwant\n%x", got, want)
	}
}

// A file cut at any offset is an error that names the file.
func TestTruncated(t *testing.T) {
	s, dir := small(123), t.TempDir()
	whole, err := os.ReadFile(save(t, dir, s))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "cut")
	for n := range whole {
		if err := os.WriteFile(path, whole[:n], 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		var d *DamageError
		if !errors.As(err, &d) || d.Path != path || d.Offset > int64(n) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
	if err := os.WriteFile(path, append(whole, 0), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "1 bytes follow") {
		t.Errorf("a byte too many: %v", err)
	}
}

// Every byte is covered: a flip anywhere is an error of Load or of Read.
func TestFlips(t *testing.T) {
	s, dir := small(123), t.TempDir()
	whole, err := os.ReadFile(save(t, dir, s))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "flipped")
	for i := range whole {
		b := slices.Clone(whole)
		b[i] ^= 1 << (i % 8)
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, _, err := readAll(path, s); err == nil || !strings.Contains(err.Error(), path) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
}

func TestVersion(t *testing.T) {
	path := save(t, t.TempDir(), small(1))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(Magic)] = 2
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "format version 2, this program reads version 1") {
		t.Error(err)
	}
}

// Names, kinds and lengths that do not fit are reported together, with both
// values, and nothing is written.
func TestReadReportsMisfits(t *testing.T) {
	f, err := Load(save(t, t.TempDir(), small(1)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, none := []byte("xyz"), make([]float32, 9)
	err = f.Read(Floats("params", none), Floats("rng", make([]float32, 3)), Bytes("text", text), Floats("momentum", none[:2]), Bytes("text", text))
	for _, want := range []string{
		`array "params": the file has 6 float32, this run has 9 float32`,
		`array "rng": the file has 3 uint64, this run has 3 float32`,
		`array "momentum": the file has none, this run has 2 float32`,
		`array "empty": the file has 0 float32, this run has none`,
		`array "text" of 3 bytes: want a name that no other array has`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "rank3") {
		t.Errorf("another rank's array is missed: %v", err)
	}
	if string(text) != "xyz" {
		t.Error("something was read all the same")
	}
}

// TestViewsAreLittleEndian: the memory of an array has the bytes of the file.
func TestViewsAreLittleEndian(t *testing.T) {
	floats, words := Floats("", []float32{1, -2.5}), Words("", []uint64{3, 1 << 40})
	want := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, math.Float32bits(1)), math.Float32bits(-2.5))
	if got := floats.view(0, 2); string(got) != string(want) {
		t.Errorf("floats are %x, want %x", got, want)
	}
	want = binary.LittleEndian.AppendUint64(nil, 1<<40)
	if got := words.view(1, 2); string(got) != string(want) {
		t.Errorf("words are %x, want %x", got, want)
	}
}

func TestOfRank(t *testing.T) {
	for name, want := range map[string]bool{
		RankName(0, "a"): true, RankName(1234, "a/b"): true, "rank/a": false, "rankx/a": false, "rank3": false, "params": false, "a/rank3/b": false, "rank-1/a": false,
	} {
		if ofRank(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// limited fails after so many bytes, as a full disk does.
type limited struct{ left int }

var errFull = errors.New("no space left")

func (l *limited) Write(b []byte) (int, error) {
	if len(b) > l.left {
		return l.left, errFull
	}
	l.left -= len(b)
	return len(b), nil
}

func TestWriteFaults(t *testing.T) {
	s := small(1)
	header, err := encodeHeader(s)
	if err != nil {
		t.Fatal(err)
	}
	size := int(s.size(header))
	for left := range size {
		err := write(&limited{left}, header, s.Arrays)
		if !errors.Is(err, errFull) || !strings.Contains(err.Error(), "writing") {
			t.Fatalf("with room for %d: %v", left, err)
		}
	}
	if err := write(&limited{size}, header, s.Arrays); err != nil {
		t.Errorf("with room for all %d bytes: %v", size, err)
	}
}

// Writing and reading need a buffer, however large the arrays.
func TestMemory(t *testing.T) {
	s := State{Arrays: []Array{Floats("params", make([]float32, 4<<20)), Words("words", make([]uint64, 1<<20))}}
	header, err := encodeHeader(s)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Load(save(t, t.TempDir(), s))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, op := range map[string]func() error{
		"write":  func() error { return write(io.Discard, header, s.Arrays) },
		"read":   func() error { return f.Read(s.Arrays...) },
		"verify": f.verify,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := op()
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; err != nil || n > 2*chunkBytes {
			t.Errorf("%s of 24 MiB takes %d bytes of memory, %v", name, n, err)
		}
	}
}

// A header that promises much allocates no more than the file has.
func TestPromises(t *testing.T) {
	path := filepath.Join(t.TempDir(), "promises")
	for _, arrays := range []string{
		`[{"name":"a","kind":"float32","len":4611686018427387904}]`,
		`[{"name":"a","kind":"uint64","len":9223372036854775807},{"name":"b","kind":"bytes","len":1}]`,
		`[{"name":"a","kind":"float32","len":-1}]`,
		`[{"name":"a","kind":"float16","len":0}]`,
		`[{"name":"","kind":"bytes","len":0}]`,
		`[{"name":"a","kind":"bytes","len":0},{"name":"a","kind":"bytes","len":0}]`,
		`{}`,
	} {
		if err := os.WriteFile(path, withHeader(`{"arrays":`+arrays+`}`), 0o666); err != nil {
			t.Fatal(err)
		}
		var d *DamageError
		if _, err := Load(path); !errors.As(err, &d) {
			t.Errorf("%s: %v", arrays, err)
		}
	}
	b := binary.LittleEndian.AppendUint32([]byte(Magic+"\x01\x00\x00\x00"), math.MaxUint32)
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "header of 4294967295 bytes: at most") {
		t.Error(err)
	}
	binary.LittleEndian.PutUint32(b[len(b)-4:], 100)
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "offset 16: truncated: the file ends within its header of 100 bytes") {
		t.Error(err)
	}
}

// withHeader is a file of a header alone, checksum included.
func withHeader(text string) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(Magic+"\x01\x00\x00\x00"), uint32(len(text)))
	b = append(b, text...)
	return binary.LittleEndian.AppendUint32(b, crc32c.Checksum(b))
}

// FuzzRead: no input makes reading panic or write outside, and what can be
// opened is as long as its header says.
func FuzzRead(f *testing.F) {
	for _, s := range []State{small(1), {}, {Arrays: []Array{Bytes("b", []byte("x"))}}} {
		header, err := encodeHeader(s)
		if err != nil {
			f.Fatal(err)
		}
		var b strings.Builder
		if err := write(&b, header, s.Arrays); err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(b.String()), false)
		f.Add([]byte(b.String())[:b.Len()/2], false)
	}
	f.Add([]byte(`{"arrays":[{"name":"a","kind":"float32","len":1}]}`), true)
	f.Fuzz(func(t *testing.T, data []byte, onlyHeader bool) {
		if onlyHeader { // a checksum is hard to guess
			data = withHeader(string(data))
		}
		file := &File{path: "fuzzed", r: strings.NewReader(string(data))}
		if file.readIndex(int64(len(data))) != nil {
			return
		}
		total := int64(0)
		var got []Array
		for _, a := range file.Arrays() {
			total += a.Len*int64(kind(a.Kind).width()) + crcSize
			switch kind(a.Kind) {
			case float32s:
				got = append(got, Floats(a.Name, make([]float32, a.Len)))
			case uint64s:
				got = append(got, Words(a.Name, make([]uint64, a.Len)))
			default:
				got = append(got, Bytes(a.Name, make([]byte, a.Len)))
			}
		}
		if total > int64(len(data)) {
			t.Fatalf("%d bytes of arrays in a file of %d", total, len(data))
		}
		readErr, verifyErr := file.Read(got...), file.verify()
		if (readErr == nil) != (verifyErr == nil) {
			t.Fatalf("reading: %v; verifying: %v", readErr, verifyErr)
		}
	})
}

// An array that is nowhere whole goes by in parts of the same lengths when it is
// written and when it is read, and its file is that of one in memory.
func TestPassing(t *testing.T) {
	for _, n := range []int{0, 1, PassingPart, 2*PassingPart + 7} {
		want := make([]float32, n)
		for i := range want {
			want[i] = float32(i) / 3
		}
		at, lens := 0, []int(nil)
		from := Passing("x", n, func(part []float32) error {
			at += copy(part, want[at:])
			lens = append(lens, len(part))
			return nil
		})
		var whole, passed strings.Builder
		for b, a := range map[*strings.Builder]Array{&whole: Floats("x", want), &passed: from} {
			if err := write(b, nil, []Array{a}); err != nil {
				t.Fatal(err)
			}
		}
		if whole.String() != passed.String() {
			t.Fatalf("%d values: the bytes differ", n)
		}
		f, err := Load(save(t, t.TempDir(), State{Arrays: []Array{Floats("x", want)}}))
		if err != nil {
			t.Fatal(err)
		}
		var got []float32
		err = f.Read(Passing("x", n, func(part []float32) error {
			if len(lens) == 0 || len(part) != lens[0] {
				t.Errorf("%d values: a part of %d, wrote parts of %v", n, len(part), lens)
			} else {
				lens = lens[1:]
			}
			got = append(got, part...)
			return nil
		}))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%d values: %d came by, %v", n, len(got), err)
		}
		if n > 0 {
			fault := Passing("x", n, func([]float32) error { return errFull })
			if err := f.Read(fault); !errors.Is(err, errFull) {
				t.Errorf("reading: %v", err)
			}
			if err := write(io.Discard, nil, []Array{fault}); !errors.Is(err, errFull) {
				t.Errorf("writing: %v", err)
			}
		}
		if err := errors.Join(f.Read(Passing("x", n+1, nil)), f.Close()); err == nil {
			t.Error("one more value than the file has was read")
		}
	}
}
