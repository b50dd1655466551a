// Package npy reads arrays of numbers in NumPy's formats: one array of a .npy file, or several
// arrays of a .npz archive, compressed or not.
//
// The size of an array is checked against the file before memory is allocated. Rows in C order of a
// .npy or an uncompressed .npz are read from the file on demand, except after Hold. Other arrays
// are loaded.
package npy

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/hugepage"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// MaxArrays limits the arrays of a file or folder.
const MaxArrays = 1 << 12

// Fault is an error in a file. Offset is the byte in the file, or in the uncompressed array of an
// archive.
type Fault struct {
	File    string
	Array   string // name in an archive; empty: the file is the array, or the archive is damaged
	Offset  int64
	Problem string
}

// Error returns file, array, byte and problem.
func (f *Fault) Error() string {
	where := f.File
	if f.Array != "" {
		where += ": " + f.Array
	}
	return fmt.Sprintf("%s: byte %d: %s", where, f.Offset, f.Problem)
}

// Array is an array of a file. Goroutines may read simultaneously.
type Array struct {
	// Name is the name in the archive or of the file, without .npy.
	Name string
	// Shape lists the dimensions; a single number has no dimension.
	Shape []int
	Type  Type

	file, entry string
	begin       int64 // first value's offset in the entry
	values      io.ReaderAt
}

// fault returns a Fault at an offset of the values.
func (a *Array) fault(offset int64, problem string) error {
	return &Fault{a.file, a.entry, a.begin + offset, problem}
}

// Len returns the number of rows, the first dimension.
func (a *Array) Len() int {
	if len(a.Shape) == 0 {
		return 0
	}
	return a.Shape[0]
}

// RowSize returns the numbers of a row: the product of the other dimensions.
func (a *Array) RowSize() int {
	n := 1
	for _, d := range a.Shape[min(1, len(a.Shape)):] {
		n *= d
	}
	return n
}

// String returns name, shape and type.
func (a *Array) String() string {
	dims := make([]string, len(a.Shape))
	for i, d := range a.Shape {
		dims[i] = fmt.Sprint(d)
	}
	return fmt.Sprintf("%s (%s, %v)", a.Name, strings.Join(dims, " x "), a.Type)
}

// Bytes reads n rows from row on, in C order and the file's byte order. buf is used if large
// enough.
func (a *Array) Bytes(buf []byte, row, n int) ([]byte, error) {
	if row < 0 || n < 0 || row > a.Len()-n {
		panic(fmt.Sprintf("npy: rows %d to %d of %d", row, row+n, a.Len()))
	}
	each := a.RowSize() * a.Type.Size
	buf = slices.Grow(buf[:0], n*each)[:n*each]
	if err := a.read(buf, int64(row)*int64(each)); err != nil {
		return nil, err
	}
	return buf, nil
}

// Float32s returns all values in C order. The allocation never exceeds the file's size, or the
// uncompressed size: Open has compared the sizes.
func (a *Array) Float32s() ([]float32, error) {
	n := a.RowSize()
	if len(a.Shape) > 0 {
		n *= a.Len()
	}
	out := make([]float32, n)
	if err := a.float32s(out, 0); err != nil {
		return nil, err
	}
	return out, nil
}

// Rows reads len(dst)/RowSize rows from row on as float32, in C order. Rows of float32 in native
// byte order are copied once.
func (a *Array) Rows(dst []float32, row int) error {
	each := a.RowSize()
	if each == 0 || row < 0 || len(dst)%each != 0 || row > a.Len()-len(dst)/each {
		panic(fmt.Sprintf("npy: %d values from row %d on, of %d rows of %d", len(dst), row, a.Len(), each))
	}
	return a.float32s(dst, int64(row)*int64(each)*int64(a.Type.Size))
}

// float32s reads len(dst) values from a byte offset on.
func (a *Array) float32s(dst []float32, offset int64) error {
	if a.Type == (Type{'f', 4, false}) {
		return a.read(bytesview.Bytes(dst), offset)
	}
	const block = 1 << 16 // values per read
	size := a.Type.Size
	buf := make([]byte, min(len(dst), block)*size)
	for at := 0; at < len(dst); at += block {
		part := dst[at:min(at+block, len(dst))]
		b := buf[:len(part)*size]
		if err := a.read(b, offset+int64(at)*int64(size)); err != nil {
			return err
		}
		a.Type.Float32(part, b)
	}
	return nil
}

// read reads bytes of the values from an offset on.
func (a *Array) read(b []byte, offset int64) error {
	got, err := a.values.ReadAt(b, offset)
	if got == len(b) {
		return nil
	}
	var disk *fs.PathError
	if errors.As(err, &disk) {
		return err
	}
	return a.fault(offset+int64(got), "truncated: the values end here")
}

// File is the result of Open.
type File struct {
	Arrays []*Array // in archive order
	files  []*os.File
}

// Close closes the files; arrays must no longer be read.
func (f *File) Close() error {
	var errs []error
	for _, one := range f.files {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// Open opens a .npz (any zip file), or a .npy with the other .npy files of the folder. wanted
// selects arrays by name; nil selects all. Compressed arrays and arrays in Fortran order are loaded
// into memory, with no limit of size.
func Open(path string, wanted func(name string) bool) (f *File, err error) {
	if wanted == nil {
		wanted = func(string) bool { return true }
	}
	f = &File{}
	defer func() {
		if err != nil {
			_ = f.Close() // only read: no data to lose
			f = nil
		}
	}()
	if strings.EqualFold(filepath.Ext(path), ".npz") || isZip(path) {
		return f, f.openArchive(path, wanted)
	}
	names, err := filepath.Glob(filepath.Join(escaped(filepath.Dir(path)), "*.npy"))
	if err != nil {
		return f, err
	}
	if !slices.Contains(names, filepath.Clean(path)) {
		names = []string{path} // missing, or another spelling
	}
	if len(names) > MaxArrays {
		return f, fmt.Errorf("%s: %d files in one folder: want %d at most", filepath.Dir(path), len(names), MaxArrays)
	}
	for _, name := range names {
		if name != filepath.Clean(path) && !wanted(arrayName(name)) {
			continue
		}
		if err := f.openArray(name); err != nil {
			return f, err
		}
	}
	return f, nil
}

// isZip reports whether a file begins like a zip file. An unreadable file is not one: opening
// returns the error.
func isZip(path string) bool {
	f, err := pathname.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	first := make([]byte, 4)
	_, err = io.ReadFull(f, first)
	return err == nil && string(first) == "PK\x03\x04"
}

// escaped returns a folder's name as a literal glob pattern.
func escaped(dir string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(dir)
}

func arrayName(path string) string { return strings.TrimSuffix(filepath.Base(path), ".npy") }

// open opens a file, to be closed by Close, and returns the size.
func (f *File) open(path string) (*os.File, int64, error) {
	in, err := pathname.Open(path)
	if err != nil {
		return nil, 0, err
	}
	f.files = append(f.files, in)
	info, err := in.Stat()
	if err != nil {
		return nil, 0, err
	}
	return in, info.Size(), nil
}

func (f *File) openArray(path string) error {
	in, size, err := f.open(path)
	if err != nil {
		return err
	}
	a := &Array{Name: arrayName(path), file: path}
	fortran, err := a.header(in, size)
	if err != nil {
		return err
	}
	f.Arrays = append(f.Arrays, a)
	values := io.NewSectionReader(in, a.begin, size-a.begin)
	if fortran {
		return a.turn(values)
	}
	a.values = values
	return nil
}

func (f *File) openArchive(path string, wanted func(string) bool) error {
	in, size, err := f.open(path)
	if err != nil {
		return err
	}
	z, err := zip.NewReader(in, size)
	if err != nil {
		return &Fault{path, "", size, "no .npz archive, or one that was cut: " + err.Error()}
	}
	if len(z.File) > MaxArrays {
		return &Fault{path, "", 0, fmt.Sprintf("%d arrays: want %d at most", len(z.File), MaxArrays)}
	}
	for _, e := range z.File {
		if name, ok := strings.CutSuffix(e.Name, ".npy"); ok && wanted(name) {
			if err := f.openEntry(path, in, size, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// openEntry opens an array of an archive and reads the entry once for the checksum.
func (f *File) openEntry(path string, in *os.File, size int64, e *zip.File) error {
	a := &Array{Name: strings.TrimSuffix(e.Name, ".npy"), file: path, entry: e.Name}
	claimed := e.UncompressedSize64
	if most := uint64(size) * maxExpansion; claimed > most || e.Method == zip.Store && claimed > uint64(size) {
		return &Fault{path, e.Name, 0, fmt.Sprintf("impossible size of %d bytes in a file of %d", claimed, size)}
	}
	r, err := e.Open()
	if err != nil {
		return &Fault{path, e.Name, 0, err.Error()}
	}
	defer r.Close()
	fortran, err := a.header(r, int64(claimed))
	if err != nil {
		return err
	}
	f.Arrays = append(f.Arrays, a)
	if fortran {
		err = a.turn(r)
	} else if e.Method != zip.Store {
		err = a.keep(r)
	} else if at, e := e.DataOffset(); e != nil {
		err = e
	} else {
		a.values = io.NewSectionReader(in, at+a.begin, int64(claimed)-a.begin)
	}
	if err == nil {
		var rest int64
		if rest, err = io.Copy(io.Discard, r); err != nil { // wrong checksum
			return a.fault(rest, reasonOf(err))
		}
	}
	return err
}

// maxExpansion is the largest expansion of deflate.
const maxExpansion = 1032

// reasonOf describes a read error.
func reasonOf(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "truncated: it ends here"
	}
	return "damaged: " + err.Error()
}

// Hold loads the values into memory unless already loaded or larger than most bytes. Use Hold
// before reading rows in random order: a system call per row costs more than copying some thousand
// bytes.
func (a *Array) Hold(most int64) error {
	s, outside := a.values.(*io.SectionReader)
	if !outside || s.Size() > most {
		return nil
	}
	return a.keep(io.NewSectionReader(s, 0, s.Size()))
}

// keep loads all values into memory.
func (a *Array) keep(r io.Reader) error {
	all, err := a.all(r)
	a.values = bytes.NewReader(all)
	return err
}

// atOnce limits the first allocation in bytes; a larger array grows with the data received.
const atOnce = 1 << 26

func (a *Array) all(r io.Reader) ([]byte, error) {
	want := int64(a.Type.Size)
	for _, d := range a.Shape {
		want *= int64(d)
	}
	out := allocate(min(want, atOnce))[:0]
	for int64(len(out)) < want {
		if len(out) == cap(out) {
			out = append(allocate(min(want, 2*int64(len(out))))[:0], out...)
		}
		n, err := io.ReadFull(r, out[len(out):min(int64(cap(out)), want)])
		if out = out[:len(out)+n]; err != nil {
			return nil, a.fault(int64(len(out)), reasonOf(err))
		}
	}
	return out, nil
}

// allocate returns memory in huge pages: allocating small pages takes longer than reading the data.
func allocate(n int64) []byte { return bytesview.Bytes(hugepage.Floats(int(n+3) / 4))[:n:n] }

// turn reads values in Fortran order into memory in C order.
func (a *Array) turn(r io.Reader) error {
	from, err := a.all(r)
	if err != nil {
		return err
	}
	to, size := allocate(int64(len(from))), a.Type.Size
	strides, n := make([]int, len(a.Shape)), 1
	for i, d := range a.Shape {
		strides[i], n = n, n*d
	}
	at, index := 0, make([]int, len(a.Shape)) // position in from of the next value in C order
	for next := 0; next+size <= len(to); next += size {
		copy(to[next:next+size], from[at*size:])
		for d := len(index) - 1; d >= 0; d-- {
			index[d]++
			if at += strides[d]; index[d] < a.Shape[d] {
				break
			}
			at, index[d] = at-strides[d]*a.Shape[d], 0
		}
	}
	a.values = bytes.NewReader(to)
	return nil
}

// sized checks that the values of a.Shape fill the rest of an entry that has entry bytes.
func (a *Array) sized(entry int64) error {
	n, empty := int64(a.Type.Size), false
	for _, d := range a.Shape {
		if empty = empty || d == 0; d == 0 {
			continue
		}
		if n > math.MaxInt64/int64(d) {
			return &Fault{a.file, a.entry, 0, fmt.Sprintf("impossible shape %v", a.Shape)}
		}
		n *= int64(d)
	}
	if empty {
		n = 0
	}
	switch has := entry - a.begin; {
	case n > has:
		return &Fault{a.file, a.entry, entry, fmt.Sprintf("truncated: shape %v of %v needs %d bytes of values, and there are %d", a.Shape, a.Type, n, has)}
	case n < has:
		return &Fault{a.file, a.entry, a.begin + n, fmt.Sprintf("%d bytes more than shape %v of %v has", has-n, a.Shape, a.Type)}
	}
	return nil
}
