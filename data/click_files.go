package data

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

// ClickFiles lists the files of rows that paths name: a file stands for itself,
// a folder for the files in it whose names end as those of tables or text do
// (.tsv, .csv, .txt or nothing, .gz, .zst or .zstd after it), in the order of
// their names with numbers by value, so that day_2 comes before day_10. A name
// that is there plain and compressed is taken plain.
func ClickFiles(paths ...string) ([]string, error) {
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
		names, err := clickNames(path, "")
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

// clickNames are the names of a folder's files of rows that have a word in them.
func clickNames(dir, word string) ([]string, error) {
	all, err := textFiles(dir, true)
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

// evidenceBytes is how much of a file's beginning and end stands for it.
const evidenceBytes = 1 << 16

// writeFiles writes what tells other files from these: their names, sizes, and
// how they begin and end. Files that cannot be read are told by who reads them.
func writeFiles(w io.Writer, files []string) {
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

// naturally compares names, digits in them as numbers.
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

// digits is how many digits a name begins with.
func digits(name string) int {
	return len(name) - len(strings.TrimLeft(name, "0123456789"))
}

// plainFile is an open file that is not compressed. It is cut at every size
// bytes; a line belongs to the piece that it begins in. Goroutines may read
// pieces at once.
type plainFile struct {
	path   string
	f      *os.File
	length int64 // when it was opened
	size   int64 // of a piece
	most   int   // how long a line may be; 0: as usual
	users  atomic.Int32
}

// release closes the file after its last user.
func (p *plainFile) release() {
	if p.users.Add(-1) == 0 {
		_ = p.f.Close() // it was only read
	}
}

// tail is how much is read at a time to find the end of a piece's last line.
const tail = 1 << 12

// piece reads the whole lines of a piece, of which there may be none, into
// buf's memory, and returns them, where they begin, and the memory.
func (p *plainFile) piece(number int64, buf []byte) (text []byte, offset int64, memory []byte, err error) {
	lo := number * p.size
	hi := min(lo+p.size, p.length)
	from := max(lo-1, 0) // the byte before says whether a line begins with the piece
	if buf, err = p.read(buf[:0], from, int(hi-from)); err != nil {
		return nil, 0, buf, err
	}
	start := 0
	if lo > 0 {
		if start = bytes.IndexByte(buf[:len(buf)-1], '\n') + 1; start == 0 {
			return buf[:0], hi, buf, nil
		}
	}
	last := max(start, bytes.LastIndexByte(buf[:len(buf)-1], '\n')+1) // where the last line begins
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

// read appends n bytes from a place on.
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
