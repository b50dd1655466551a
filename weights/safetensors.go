package weights

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/data/npy"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// maxHeader is the format's limit for a header.
const maxHeader = 100_000_000

// widths are the bytes of a value by type.
var widths = map[string]int{"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1}

// Info describes a tensor of a file.
type Info struct {
	Name  string
	Type  string // such as "F32"
	Shape []int

	lo, hi int64 // offsets in the file's values
}

// Float reports whether the values can be read as float32.
func (i Info) Float() bool { return slices.Contains([]string{"F32", "F16", "BF16", "F64"}, i.Type) }

// len is the number of values.
func (i Info) len() int64 { return (i.hi - i.lo) / int64(widths[i.Type]) }

// entry is a tensor in the header.
type entry struct {
	Type    string   `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// Write writes tensors as safetensors: the length of a JSON header, the header, and the values,
// little-endian. about is the file's metadata.
func Write(w io.Writer, tensors []Tensor, about map[string]string) error {
	header := map[string]any{}
	if len(about) > 0 {
		header["__metadata__"] = about
	}
	at := int64(0)
	for _, t := range tensors {
		e := entry{Type: "F32", Shape: []int64{}}
		n := 4 * int64(len(t.Data))
		if t.Data == nil {
			e.Type, n = "I64", 8*int64(len(t.Ints))
		}
		for _, d := range t.Shape {
			e.Shape = append(e.Shape, int64(d))
		}
		if header[t.Name] != nil || t.Name == "__metadata__" || t.Name == "" || t.Len() != max(len(t.Data), len(t.Ints)) {
			return fmt.Errorf("weights: tensor %q of shape %v with %d values: want a name that no other has, and as many values as the shape", t.Name, t.Shape, max(len(t.Data), len(t.Ints)))
		}
		e.Offsets = [2]int64{at, at + n}
		at += n
		header[t.Name] = e
	}
	text, err := json.Marshal(header)
	if err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	text = append(text, bytes.Repeat([]byte(" "), -len(text)&7)...) // values begin at a multiple of 8
	if len(text) > maxHeader {
		return fmt.Errorf("weights: a header of %d bytes, at most %d can be", len(text), maxHeader)
	}
	out := bufio.NewWriterSize(w, 1<<20)
	_, _ = out.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(text)))) // Flush returns the error
	_, _ = out.Write(text)
	for _, t := range tensors {
		writeValues(out, t)
	}
	return out.Flush()
}

// writeValues writes a tensor's values, little-endian.
func writeValues(out *bufio.Writer, t Tensor) {
	var b [8]byte
	for _, v := range t.Data {
		binary.LittleEndian.PutUint32(b[:], math.Float32bits(v))
		_, _ = out.Write(b[:4])
	}
	for _, v := range t.Ints {
		binary.LittleEndian.PutUint64(b[:], uint64(v))
		_, _ = out.Write(b[:])
	}
}

// File is a safetensors file opened for reading.
type File struct {
	// About is the file's metadata.
	About map[string]string

	name  string
	r     io.ReaderAt
	close func() error
	start int64 // beginning of the values
	infos []Info
}

// Open opens a file and checks its header against its length. The caller closes it.
func Open(path string) (*File, error) {
	f, err := pathname.Open(path)
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	var out *File
	var info os.FileInfo
	if info, err = f.Stat(); err == nil {
		out, err = NewFile(path, f, info.Size())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	out.close = f.Close
	return out, nil
}

// Close closes the file.
func (f *File) Close() error { return f.close() }

// NewFile reads the header of a file of size bytes; name is for errors. Each length is compared
// with the size before an allocation.
func NewFile(name string, r io.ReaderAt, size int64) (*File, error) {
	f := &File{name: name, r: r, close: func() error { return nil }}
	var prefix [8]byte
	if size < 8 {
		return nil, f.fault(size, "the file ends within the header's length")
	}
	if _, err := r.ReadAt(prefix[:], 0); err != nil {
		return nil, fmt.Errorf("weights: %s: %w", name, err)
	}
	n := binary.LittleEndian.Uint64(prefix[:])
	if n > maxHeader || int64(n) > size-8 {
		return nil, f.fault(0, "a header of %d bytes in a file of %d, at most %d: it is no safetensors file, or was cut off", n, size, maxHeader)
	}
	text := make([]byte, n)
	if _, err := r.ReadAt(text, 8); err != nil {
		return nil, fmt.Errorf("weights: %s: %w", name, err)
	}
	f.start = 8 + int64(n)
	if err := f.header(text); err != nil {
		return nil, err
	}
	return f, f.check(size - f.start)
}

// header reads the JSON; names must be unique.
func (f *File) header(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return f.fault(8, "the header is no JSON object")
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return f.fault(8+d.InputOffset(), "the header cannot be read: %v", err)
		}
		if seen[name] {
			return f.fault(8+d.InputOffset(), "two tensors are named %q", name)
		}
		seen[name] = true
		if name == "__metadata__" {
			err = d.Decode(&f.About)
		} else {
			var e entry
			if err = d.Decode(&e); err == nil {
				err = f.add(name, e)
			}
		}
		if err != nil {
			return f.fault(8+d.InputOffset(), "the header's entry %q: %v", name, err)
		}
	}
	if _, err := d.Token(); err != nil {
		return f.fault(8+d.InputOffset(), "the header cannot be read: %v", err)
	}
	if rest := text[d.InputOffset():]; strings.TrimSpace(string(rest)) != "" {
		return f.fault(8+d.InputOffset(), "something follows the header's object")
	}
	return nil
}

// add adds a tensor after checking the number of values against its shape.
func (f *File) add(name string, e entry) error {
	width, ok := widths[e.Type]
	if !ok {
		return fmt.Errorf("values of type %q, which is not known", e.Type)
	}
	info := Info{Name: name, Type: e.Type, Shape: []int{}, lo: e.Offsets[0], hi: e.Offsets[1]}
	n := int64(1)
	for _, d := range e.Shape {
		if d < 0 || d > math.MaxInt32 || d > 0 && n > math.MaxInt64/16/d {
			return fmt.Errorf("a shape %v, which cannot be", e.Shape)
		}
		n *= d
		info.Shape = append(info.Shape, int(d))
	}
	if info.lo < 0 || info.hi < info.lo || info.hi-info.lo != n*int64(width) {
		return fmt.Errorf("offsets %v for %d values of %d bytes", e.Offsets, n, width)
	}
	f.infos = append(f.infos, info)
	return nil
}

// check verifies that the tensors cover all values, without holes and overlaps.
func (f *File) check(size int64) error {
	order := slices.Clone(f.infos)
	slices.SortStableFunc(order, func(a, b Info) int {
		if a.lo != b.lo {
			return int(min(1, max(-1, a.lo-b.lo)))
		}
		return int(min(1, max(-1, a.hi-b.hi)))
	})
	at := int64(0)
	for _, i := range order {
		if i.lo != at {
			return f.fault(f.start+at, "%q begins at %d of the values, want %d: tensors overlap, or leave a hole", i.Name, i.lo, at)
		}
		at = i.hi
	}
	if at != size {
		return f.fault(f.start+min(at, size), "the tensors have %d bytes, the file %d: it was cut off, or something follows", at, size)
	}
	return nil
}

func (f *File) fault(at int64, format string, args ...any) error {
	return fmt.Errorf("weights: %s, offset %d: %s", f.name, at, fmt.Sprintf(format, args...))
}

// Tensors lists the file's tensors, in the header's order.
func (f *File) Tensors() []Info { return slices.Clone(f.infos) }

// Read returns a tensor's values as float32. Other types than F32, F16, BF16 and F64 are an error.
func (f *File) Read(name string) ([]float32, error) {
	i := slices.IndexFunc(f.infos, func(i Info) bool { return i.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("weights: %s has no tensor %q", f.name, name)
	}
	info := f.infos[i]
	if !info.Float() {
		return nil, fmt.Errorf("weights: %s: %q has values of type %s, want F32, F16, BF16 or F64", f.name, name, info.Type)
	}
	width := widths[info.Type]
	out := make([]float32, (info.hi-info.lo)/int64(width))
	in := bufio.NewReaderSize(io.NewSectionReader(f.r, f.start+info.lo, info.hi-info.lo), 1<<18)
	var b [8]byte
	for v := range out {
		if _, err := io.ReadFull(in, b[:width]); err != nil {
			return nil, fmt.Errorf("weights: %s: %q: %w", f.name, name, err)
		}
		out[v] = number(info.Type, b)
	}
	return out, nil
}

// number is a value of a type.
func number(kind string, b [8]byte) float32 {
	switch kind {
	case "F64":
		return float32(math.Float64frombits(binary.LittleEndian.Uint64(b[:])))
	case "BF16":
		return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[:])) << 16)
	case "F16":
		return float32(npy.Half(binary.LittleEndian.Uint16(b[:])))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(b[:]))
}
