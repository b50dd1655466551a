package dirlock

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A folder is there as long as anybody is within, and the last one to leave removes it.
func TestVisit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "visited")
	first, err := Enter(path)
	if errors.Is(err, ErrNoLocks) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	second, err := Enter(path)
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(path, "file")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := first.Leave(); err != nil {
		t.Error(err)
	}
	if Clear(path) {
		t.Error("a folder with a visitor was removed")
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
	if err := second.Leave(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the last one left, and the folder is there: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(path, "of one who was killed"), 0o700); err != nil {
		t.Fatal(err)
	}
	v, err := Enter(path)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(path); len(left) > 0 || err != nil {
		t.Errorf("who enters finds %v of one who was killed, %v", left, err)
	}
	_ = v.Leave()
}

// What is not a folder of this user's alone is neither entered nor removed.
func TestVisitRefuses(t *testing.T) {
	dir := t.TempDir()
	open, file, link := filepath.Join(dir, "open"), filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(open, 0o755), os.WriteFile(file, nil, 0o600), os.Symlink(dir, link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{open, file, link} {
		if _, err := Enter(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s was entered: %v", path, err)
		}
		if Clear(path) {
			t.Errorf("%s was removed", path)
		}
	}
	if _, err := Enter(filepath.Join(dir, "no", "folder")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder in no folder: %v", err)
	}
}

// However many enter, leave and clear at a time, what one has written is there while he is. It holds invariant[visited-folder].
func TestVisitRaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "visited")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			own := filepath.Join(path, string(rune('a'+i)))
			for range 200 {
				v, err := Enter(path)
				if err != nil {
					t.Error(err)
					return
				}
				err = os.WriteFile(own, nil, 0o600)
				Clear(path)
				if _, gone := os.Stat(own); err != nil || gone != nil {
					t.Errorf("within a folder: %v, %v", err, gone)
				}
				_ = v.Leave()
			}
		})
	}
	all.Wait()
}
