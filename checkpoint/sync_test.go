package checkpoint

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// unsynced is a file on a file system without fsync.
type unsynced struct {
	*os.File
	err error
}

func (u unsynced) Sync() error { return u.err }

// A checkpoint gets its name where fsync is unsupported (EINVAL), and not where the disk fails.
func TestSavesWithoutFsync(t *testing.T) {
	for err, want := range map[error]bool{syscall.EINVAL: true, syscall.EIO: false} {
		dir := t.TempDir()
		f, create := os.CreateTemp(dir, "x")
		if create != nil {
			t.Fatal(create)
		}
		w := &Written{file: unsynced{f, err}, path: filepath.Join(dir, "step"), dir: dir}
		fault := w.name()
		if _, missing := os.Stat(w.path); (fault == nil) != want || (missing == nil) != want {
			t.Errorf("%v: %v, %v", err, fault, missing)
		}
	}
}
