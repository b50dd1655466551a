package clicks

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// Files lists the files of rows in paths; see data.ClickFiles.
func Files(paths ...string) ([]string, error) {
	var out []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			out = append(out, path)
			continue
		}
		names, err := FileNames(path, "")
		if err != nil {
			return nil, err
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("%s has no .tsv, .csv or .txt file, nor a .gz or .zst of one", path)
		}
		for _, name := range names {
			out = append(out, filepath.Join(path, name))
		}
	}
	return out, nil
}

// FileNames returns the files of rows in a folder with a word in their names.
func FileNames(dir, word string) ([]string, error) {
	all, err := datafile.TextFiles(dir, true)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range all {
		plain, packing := datafile.UnpackedName(name)
		if strings.Contains(strings.ToLower(name), word) && (packing == "" || !slices.Contains(all, plain)) {
			names = append(names, name)
		}
	}
	slices.SortStableFunc(names, naturally)
	return names, nil
}

// evidenceBytes is the length of the beginning and the end that identify a file.
const evidenceBytes = 1 << 16

// WriteEvidence writes the names, sizes, beginnings and ends of files. It skips unreadable files,
// which fail later.
func WriteEvidence(w io.Writer, files []string) {
	for _, path := range files {
		f, err := pathname.Open(path)
		if err != nil {
			continue
		}
		size := int64(0)
		if info, err := f.Stat(); err == nil {
			size = info.Size()
		}
		fmt.Fprintf(w, "%q %d\n", filepath.Base(path), size)
		_, _ = io.Copy(w, io.NewSectionReader(f, 0, evidenceBytes))
		_, _ = io.Copy(w, io.NewSectionReader(f, max(0, size-evidenceBytes), evidenceBytes))
		_ = f.Close()
	}
}

// naturally compares names, with digits as numbers.
func naturally(a, b string) int {
	for a != "" && b != "" {
		m, n := digits(a), digits(b)
		if m > 0 && n > 0 {
			x, y := strings.TrimLeft(a[:m], "0"), strings.TrimLeft(b[:n], "0")
			if len(x) != len(y) {
				return len(x) - len(y)
			}
			if c := strings.Compare(x, y); c != 0 {
				return c
			}
			a, b = a[m:], b[n:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

// digits returns the number of digits at the beginning of a name.
func digits(name string) int {
	return len(name) - len(strings.TrimLeft(name, "0123456789"))
}

// plainFile is an open uncompressed file, cut at every size bytes. A line belongs to the piece with
// its first byte. Goroutines may read pieces concurrently.
type plainFile struct {
	path   string
	f      *os.File
	length int64 // at opening
	size   int64 // bytes per piece
	most   int   // maximum line; 0: default
	users  atomic.Int32
}

// release closes the file after its last user.
func (p *plainFile) release() {
	if p.users.Add(-1) == 0 {
		_ = p.f.Close() // read only
	}
}

// tail is the length of a read for the end of a piece's last line.
const tail = 1 << 12

// piece reads the whole lines of a piece, perhaps none, into buf's memory. It returns the lines,
// their position, and the memory.
func (p *plainFile) piece(number int64, buf []byte) (text []byte, offset int64, memory []byte, err error) {
	lo := number * p.size
	hi := min(lo+p.size, p.length)
	from := max(lo-1, 0) // previous byte, for a line that begins with the piece
	if buf, err = p.read(buf[:0], from, int(hi-from)); err != nil {
		return nil, 0, buf, err
	}
	start := 0
	if lo > 0 {
		if start = bytes.IndexByte(buf[:len(buf)-1], '\n') + 1; start == 0 {
			return buf[:0], hi, buf, nil
		}
	}
	last := max(start, bytes.LastIndexByte(buf[:len(buf)-1], '\n')+1) // position of the last line
	most := max(p.most, longest(int(p.size)))
	for at := hi; buf[len(buf)-1] != '\n' && at < p.length; {
		n := min(tail, p.length-at)
		if buf, err = p.read(buf, at, int(n)); err != nil {
			return nil, 0, buf, err
		}
		more := buf[len(buf)-int(n):]
		if i := bytes.IndexByte(more, '\n'); i >= 0 {
			buf = buf[:len(buf)-len(more)+i+1]
		}
		if len(bytes.TrimSuffix(buf[last:], []byte{'\n'})) > most {
			return nil, 0, buf, tooLong(p.path, from+int64(last), most)
		}
		at += n
	}
	return buf[start:], from + int64(start), buf, nil
}

// read appends n bytes from a position on.
func (p *plainFile) read(buf []byte, at int64, n int) ([]byte, error) {
	buf = slices.Grow(buf, n)
	got, err := p.f.ReadAt(buf[len(buf):len(buf)+n], at)
	buf = buf[:len(buf)+got]
	if got == n {
		return buf, nil
	}
	if err == io.EOF {
		return buf, datafile.Errorf(p.path, at+int64(got), "the file ends here, but had %d bytes when it was opened: leave it alone while it is read", p.length)
	}
	return buf, datafile.ReadFault(p.path, at+int64(got), err)
}
