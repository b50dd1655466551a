package dirlock

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestRemoveUnheld removes all files of a list, and none while one of them is held or is not a
// file.
func TestRemoveUnheld(t *testing.T) {
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "missing")}
	for _, path := range paths[:2] {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(paths[1])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := share(f); errors.Is(err, ErrNoLocks) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if RemoveUnheld(paths) {
		t.Error("a held file was removed")
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(paths[0], link); err != nil {
		t.Fatal(err)
	}
	if RemoveUnheld([]string{link}) {
		t.Error("a link was removed")
	}
	if left, _ := os.ReadDir(dir); len(left) != 3 {
		t.Errorf("%d files are left, want 3", len(left))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if !RemoveUnheld(paths) {
		t.Error("files that no process holds stay")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%d files are left, want the link", len(left))
	}
}
