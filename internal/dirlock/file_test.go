package dirlock

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// A file is the new one or the old one, and nothing is left of what failed half-way.
// It holds invariant[whole-or-absent].
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	wants := func(text string) {
		t.Helper()
		b, err := os.ReadFile(path)
		files, _ := os.ReadDir(dir)
		if err != nil || string(b) != text || len(files) != 1 {
			t.Fatalf("it says %q, %v, beside %v; want %q alone", b, err, files, text)
		}
	}
	says := func(text string, then error) func(io.Writer) error {
		return func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return errors.Join(err, then)
		}
	}
	for _, text := range []string{"a longer first one", "second"} {
		if err := WriteFile(path, says(text, nil)); err != nil {
			t.Fatal(err)
		}
		wants(text)
	}
	fault := errors.New("fault")
	if err := WriteFile(path, says("half", fault)); !errors.Is(err, fault) {
		t.Errorf("got %v", err)
	}
	wants("second")
	if err := WriteFile(filepath.Join(dir, "none", "file"), says("", nil)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(dir, "folder"), says("", nil)); err == nil {
		t.Error("a file in place of a folder")
	}
	if _, err := os.Stat(filepath.Join(dir, "folder"+TempSuffix)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}

// A link stays one, and what is no file is written to as it is.
func TestWriteFileInPlace(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	hello := func(w io.Writer) error { _, err := io.WriteString(w, "hello"); return err }
	if err := errors.Join(os.WriteFile(target, []byte("old"), 0o666), os.Symlink("target", link), WriteFile(link, hello)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(link)
	if got, read := os.ReadFile(target); err != nil || read != nil || string(got) != "hello" || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("%q in %v: %v, %v", got, info.Mode(), err, read)
	}
	if err := WriteFile(os.DevNull, hello); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
}

// Two writers of one path write two files, and the name says for what.
// A secret's file is nobody else's from the beginning, not only when it is whole.
func TestCreateSecret(t *testing.T) {
	f, err := CreateSecret(filepath.Join(t.TempDir(), "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.txt")
	seen := map[string]bool{}
	for range 100 {
		f, err := Create(path)
		if err != nil {
			t.Fatal(err)
		}
		of, here, ok := Unfinished(filepath.Base(f.Name()))
		if seen[f.Name()] || of != "file.txt" || !here || !ok {
			t.Fatalf("%s is for %q, %v, %v", f.Name(), of, here, ok)
		}
		seen[f.Name()] = true
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"file.txt", "file.txt.tmp", "x.0123456789abcde.tmp", "x.0123456789abcdeg.tmp", ".tmp", "0123456789abcdef.tmp"} {
		if of, _, ok := Unfinished(name); ok {
			t.Errorf("%s is for %q", name, of)
		}
	}
	if of, here, ok := Unfinished("x.0123456789abcdef.tmp"); of != "x" || here || !ok {
		t.Errorf("of another host: %q, %v, %v", of, here, ok)
	}
	if _, err := Create(filepath.Join(path, "below")); err == nil {
		t.Error("a file below none")
	}
}
