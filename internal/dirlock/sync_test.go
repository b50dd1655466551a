package dirlock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A file without fsync, such as a pipe, is no error, and a disk's error is one.
func TestSyncWhereUnsupported(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if w.Sync() == nil {
		t.Log("pipes have fsync here")
	}
	if err := SyncFile(w); err != nil {
		t.Error(err)
	}
	for err, want := range map[error]bool{syscall.EINVAL: false, syscall.ENOTSUP: false, syscall.EIO: true, syscall.ENOSPC: true, os.ErrClosed: true} {
		if got := unlessUnsupported(&fs.PathError{Op: "sync", Path: "x", Err: err}); (got != nil) != want || want && !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if SyncFile(f) == nil {
		t.Error("a closed file")
	}
}
