package pathname

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// odd are names of what is no regular file, and what is said of each.
func odd(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	fifo, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "link")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o666), os.Symlink("fifo", link)); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return map[string]string{
		fifo: "it is a pipe", link: "it is a pipe", dir: "it is a folder",
		filepath.Join(dir, "socket"): "it is a socket", "/dev/zero": "it is a device", os.DevNull: "it is a device",
	}
}

// What is no regular file is refused by name and kind; a pipe is not waited for.
func TestOpenRefusesWhatIsNoRegularFile(t *testing.T) {
	for path, kind := range odd(t) {
		_, checked := Check(path)
		_, read := Read(path, 1)
		_, opened := Open(path)
		for _, err := range []error{checked, read, opened} {
			var at *fs.PathError
			if !errors.Is(err, ErrNotRegular) || !errors.As(err, &at) || at.Path != path || !strings.Contains(err.Error(), kind) {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	for _, open := range []func(string) error{
		func(p string) error { _, err := Open(p); return err },
		func(p string) error { _, err := Check(p); return err },
	} {
		if err := open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
}

func TestReadIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	content := bytes.Repeat([]byte("abc"), 1000)
	for _, n := range []int{0, 1, len(content)} {
		if err := os.WriteFile(path, content[:n], 0o666); err != nil {
			t.Fatal(err)
		}
		got, err := Read(path, int64(n))
		if err != nil || !bytes.Equal(got, content[:n]) {
			t.Errorf("%d bytes: %d, %v", n, len(got), err)
		}
		if _, err := Read(path, int64(n)-1); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%d bytes where fewer are wanted: %v", n, err)
		}
	}
	if err := os.Truncate(path, 1<<50); err == nil { // sparse
		if _, err := Read(path, 1<<20); err == nil {
			t.Error("a petabyte was read")
		}
	}
	if got, err := Read("/proc/self/status", 1<<20); err != nil && !errors.Is(err, fs.ErrNotExist) || err == nil && len(got) < 100 {
		t.Errorf("a file that does not know its size: %d bytes, %v", len(got), err)
	}
}

// A pipe is written to where it has a reader, and otherwise refused, not waited for.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(fifo, 0); err == nil || !strings.Contains(err.Error(), "nobody reads") {
		t.Errorf("nobody reads it: %v", err)
	}
	reader, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	w, err := Write(fifo, 0)
	if err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte("x"), 1<<20) // more than a pipe holds
	go func() { w.Write(long); w.Close() }()
	if got, err := io.ReadAll(reader); err != nil || !bytes.Equal(got, long) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for path, kind := range odd(t) {
		f, err := Write(path, 0)
		switch {
		case strings.Contains(kind, "device"):
			if err != nil || f.Close() != nil {
				t.Error(err)
			}
		case err == nil:
			t.Errorf("%s was opened for writing", path)
		}
	}
	if f, err := Write(filepath.Join(dir, "new"), 0); err != nil || f.Close() != nil {
		t.Error(err)
	}
}
