package dirlock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestPrivate makes a folder for its user alone, and rejects one that others can read, a link and a
// file.
func TestPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mine")
	for range 2 {
		if err := Private(dir); err != nil || !OwnedByUser(dir) {
			t.Fatalf("%v", err)
		}
	}
	link, file := dir+"-link", dir+"-file"
	if err := errors.Join(os.Symlink(dir, link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, link, file} {
		if err := Private(path); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := Private(filepath.Join(dir, "a", "b")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no parent: %v", err)
	}
}
