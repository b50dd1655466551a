package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ringo-ml/ringo/internal/crc32c"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// File is a checkpoint opened for reading.
type File struct {
	// Header describes the run.
	Header Header

	path   string
	r      io.ReaderAt
	close  func() error
	arrays []Info
	starts []int64 // beginning of each array's values
}

// Load opens a checkpoint and checks its header and its length; reads check the arrays. The caller
// closes it. A damaged file returns a *[DamageError].
func Load(path string) (*File, error) {
	f, err := pathname.Open(path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	out := &File{path: path, r: f, close: f.Close}
	if err := out.readIndex(info.Size()); err != nil {
		_ = f.Close()
		return nil, withWhole(err)
	}
	return out, nil
}

// Close closes the file.
func (f *File) Close() error { return f.close() }

// Arrays lists the file's arrays, in order.
func (f *File) Arrays() []Info { return slices.Clone(f.arrays) }

// readIndex reads the header of a file of size bytes. The size and maxHeader limit its allocations.
func (f *File) readIndex(size int64) error {
	prefix := make([]byte, prefixSize)
	if size < int64(prefixSize) {
		return f.damage(size, "the file ends within its first %d bytes", prefixSize)
	}
	if err := f.readAt(prefix, 0); err != nil {
		return err
	}
	if string(prefix[:len(Magic)]) != Magic {
		return f.damage(0, "it does not begin with %q: it is not a checkpoint", Magic)
	}
	if v := binary.LittleEndian.Uint32(prefix[len(Magic):]); v != version {
		return fmt.Errorf("checkpoint: %s: format version %d, this program reads version %d: use the one that wrote it, or a newer one", f.path, v, version)
	}
	length := int64(binary.LittleEndian.Uint32(prefix[len(Magic)+4:]))
	end := int64(prefixSize) + length + crcSize
	if length > maxHeader {
		return f.damage(int64(len(Magic)+4), "a header of %d bytes: at most %d are possible", length, maxHeader)
	}
	if end > size {
		return f.damage(size, "truncated: the file ends within its header of %d bytes", length)
	}
	all := make([]byte, end)
	if err := f.readAt(all, 0); err != nil {
		return err
	}
	text, sum := all[:end-crcSize], binary.LittleEndian.Uint32(all[end-crcSize:])
	if got := crc32c.Checksum(text); got != sum {
		return f.damage(int64(prefixSize), "the header's checksum is %08x, the file says %08x", got, sum)
	}
	var ix index
	if err := json.Unmarshal(text[prefixSize:], &ix); err != nil {
		return f.damage(int64(prefixSize), "the header cannot be read: %v", err)
	}
	f.Header, f.arrays = ix.Header, ix.Arrays
	return f.place(end, size)
}

// place computes the offsets of the arrays, which must fill the file from offset at to its end.
func (f *File) place(at, size int64) error {
	seen := map[string]bool{}
	for _, a := range f.arrays {
		width := int64(kind(a.Kind).width())
		if a.Name == "" || seen[a.Name] || width == 0 || a.Len < 0 {
			return f.damage(int64(prefixSize), "the header has an array %q of %v: out of range", a.Name, a)
		}
		seen[a.Name] = true
		f.starts = append(f.starts, at)
		if a.Len > (size-at-crcSize)/width || size-at < crcSize {
			return f.damage(size, "the file ends within array %q of %v, which begins at offset %d: it was cut off", a.Name, a, at)
		}
		at += a.Len*width + crcSize
	}
	if at != size {
		return f.damage(at, "%d bytes follow the last array", size-at)
	}
	return nil
}

// Read fills the given arrays. If the names, kinds or lengths of arrays and file differ, Read
// changes no array, and its error lists all differences; arrays of ranks (RankName) that only the
// file has are no difference. After any other error, the arrays' values are undefined. A damaged
// file returns a *[DamageError]. Read needs no memory except a small buffer.
func (f *File) Read(arrays ...Array) error {
	if err := f.fit(arrays, true); err != nil {
		return fmt.Errorf("checkpoint: %s does not fit this run: %w", f.path, err)
	}
	return f.read(arrays)
}

// ReadSome is Read, except that the file may have further arrays.
func (f *File) ReadSome(arrays ...Array) error {
	if err := f.fit(arrays, false); err != nil {
		return fmt.Errorf("checkpoint: %s: %w", f.path, err)
	}
	return f.read(arrays)
}

func (f *File) read(arrays []Array) error {
	buf := make([]byte, chunkBytes)
	for _, a := range arrays {
		i := slices.IndexFunc(f.arrays, func(has Info) bool { return has.Name == a.name })
		if err := f.readArray(i, buf, a); err != nil {
			return withWhole(err)
		}
	}
	return nil
}

// fit reports arrays that are missing in the file or have another kind or length there and, with
// all set, arrays that only the file has.
func (f *File) fit(arrays []Array, all bool) error {
	errs := unique(arrays)
	wanted := map[string]bool{}
	for _, a := range arrays {
		wanted[a.name] = true
		i := slices.IndexFunc(f.arrays, func(has Info) bool { return has.Name == a.name })
		switch {
		case i < 0:
			errs = append(errs, fmt.Errorf("array %q: the file has none, this run has %v", a.name, a.info()))
		case f.arrays[i] != a.info():
			errs = append(errs, fmt.Errorf("array %q: the file has %v, this run has %v", a.name, f.arrays[i], a.info()))
		}
	}
	for _, has := range f.arrays {
		if all && !wanted[has.Name] && !ofRank(has.Name) {
			errs = append(errs, fmt.Errorf("array %q: the file has %v, this run has none", has.Name, has))
		}
	}
	return errors.Join(errs...)
}

// verify reads the whole file and checks every checksum.
func (f *File) verify() error {
	buf := make([]byte, chunkBytes)
	for i := range f.arrays {
		if err := f.readArray(i, buf, Array{}); err != nil {
			return err
		}
	}
	return nil
}

// readArray reads array i to `to`, in pieces, and verifies the checksum. A zero `to` only verifies.
func (f *File) readArray(i int, buf []byte, to Array) error {
	a, at := f.arrays[i], f.starts[i]
	width, sum, room := int64(kind(a.Kind).width()), uint32(0), to.buffer()
	per := int64(len(buf)) / width
	for lo := int64(0); lo < a.Len; lo += per {
		n := min(per, a.Len-lo)
		into, first := to.window(int(lo), int(lo+n), room)
		part := buf[:n*width]
		if to.kind != "" {
			part = into.view(first, first+int(n))
		}
		if err := f.readAt(part, at+lo*width); err != nil {
			return err
		}
		sum = crc32c.Update(sum, part)
		if to.pass != nil {
			if err := to.pass(into.floats); err != nil {
				return err
			}
		}
	}
	end := at + a.Len*width
	if err := f.readAt(buf[:crcSize], end); err != nil {
		return err
	}
	if want := binary.LittleEndian.Uint32(buf); sum != want {
		return f.damage(at, "array %q of %v, up to offset %d, has checksum %08x, the file says %08x", a.Name, a, end, sum, want)
	}
	return nil
}

// readAt fills b from an offset.
func (f *File) readAt(b []byte, at int64) error {
	n, err := f.r.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return f.damage(at+int64(n), "the file became shorter while it was read")
	}
	return fmt.Errorf("checkpoint: %s: reading at offset %d: %w", f.path, at+int64(n), err)
}

func (f *File) damage(at int64, format string, args ...any) error {
	return &DamageError{Path: f.path, Offset: at, Item: fmt.Sprintf(format, args...)}
}

// DamageError reports a file with other contents than Save wrote.
type DamageError struct {
	// Path is the file, and Offset the first byte of the damage, or of the damaged part.
	Path   string
	Offset int64
	// Item describes the damage.
	Item string
	// Whole is the path of the folder's newest older checkpoint without damage, or "".
	Whole string
}

// Error includes the remedy.
func (e *DamageError) Error() string {
	text := fmt.Sprintf("checkpoint: %s is damaged at offset %d: %s", e.Path, e.Offset, e.Item)
	if e.Whole == "" {
		return text + "; the folder has no older complete checkpoint"
	}
	return fmt.Sprintf("%s; %s is whole: remove the damaged file to go on from there", text, e.Whole)
}
