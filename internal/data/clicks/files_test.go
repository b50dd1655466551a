package clicks

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/datatest"
)

func TestClickFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"day_10.gz", "day_2.gz", "day_2", "day_1.tsv.zst", "day_01a", "README.md", ".hidden", "x.tar.gz"} {
		datatest.Write(t, dir, map[string][]byte{name: nil})
	}
	got, err := Files(filepath.Join(dir, "README.md"), dir)
	for i := range got {
		got[i] = filepath.Base(got[i])
	}
	if want := []string{"README.md", "day_1.tsv.zst", "day_01a", "day_2", "day_10.gz"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	for _, path := range []string{"/nowhere", t.TempDir()} {
		if _, err := Files(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	names := []string{"", "a", "a1", "a01", "a2", "a10", "b", "1", "02", "10", "a1b2", "a1b10"}
	for _, a := range names {
		for _, b := range names {
			if x, y := naturally(a, b), naturally(b, a); cmp.Compare(x, 0) != -cmp.Compare(y, 0) {
				t.Errorf("%q and %q: %d and %d", a, b, x, y)
			}
		}
	}
	if naturally("day_9", "day_10") >= 0 || naturally("day_9.gz", "day_9") <= 0 {
		t.Error("not in natural order")
	}
}

// The pieces of a file are its lines, each in the piece that it begins in,
// whatever the bytes.
func FuzzClickPieces(f *testing.F) {
	f.Add([]byte("a\nbb\n\nccc"), uint8(3))
	f.Add([]byte("\n\n\n"), uint8(0))
	f.Fuzz(func(t *testing.T, raw []byte, size uint8) {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, raw, 0o666); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		p := &plainFile{path: path, f: file, length: int64(len(raw)), size: 1 + int64(size)}
		var all, memory []byte
		for k := int64(0); k*p.size < p.length; k++ {
			var text []byte
			var offset int64
			if text, offset, memory, err = p.piece(k, memory); err != nil {
				t.Fatal(err)
			}
			if len(text) == 0 {
				continue
			}
			if offset != int64(len(all)) || offset/p.size != k {
				t.Fatalf("piece %d of %d bytes begins at %d, after %d bytes", k, p.size, offset, len(all))
			}
			if last := bytes.LastIndexByte(text[:len(text)-1], '\n') + 1; (offset+int64(last))/p.size != k {
				t.Fatalf("piece %d has a line of another", k)
			}
			all = append(all, text...)
		}
		if !bytes.Equal(all, raw) {
			t.Fatalf("%q became %q", raw, all)
		}
	})
}
