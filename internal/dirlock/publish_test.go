package dirlock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// A directory is whole or not there, wherever filling it fails. It holds invariant[whole-or-absent].
func TestPublish(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "whole")
	left := filepath.Join(dir+TempSuffix, "left")
	if err := errors.Join(os.MkdirAll(filepath.Dir(left), 0o777), os.WriteFile(left, nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err := Publish(dir, func(tmp string) error {
		if err := os.WriteFile(filepath.Join(tmp, "half"), nil, 0o666); err != nil {
			t.Fatal(err)
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(files) != 0 {
		t.Fatalf("a failed attempt left %v: %v", files, err)
	}
	fill := func(tmp string) error { return os.WriteFile(filepath.Join(tmp, "file"), []byte("x"), 0o666) }
	if err := Publish(dir+"/", fill); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(b) != "x" {
		t.Errorf("%q: %v", b, err)
	}
	if err := Publish(dir, fill); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over one that exists: %v", err)
	}
}
