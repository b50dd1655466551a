package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/setting"
)

// ErrHeld is the error of Take and Prepare if another job saves to the folder.
var ErrHeld = dirlock.ErrHeld

// Hold is a folder locked for a single writer of checkpoints. nil is no lock.
type Hold struct{ lock *dirlock.Lock }

// Take creates a folder for checkpoints if missing, and locks it for this process until Release or
// the process's end. A run that calls Take gets two errors at its beginning and not at its first
// save: another process uses the folder (ErrHeld, with its name), or the folder is not writable.
// With fresh, the folder must have no checkpoint: otherwise a checkpoint of an earlier, longer run
// would later be taken for this run's newest. Take removes unfinished files of killed writers.
//
// On a file system without locks, warning is not empty, and the user must ensure one job per
// folder. A network file system may only separate processes of the same host. Even then writers do
// not conflict during a write, and each file has a single writer.
func Take(dir string, fresh bool) (h *Hold, warning string, err error) {
	fail := func(err error) (*Hold, string, error) {
		return nil, "", fmt.Errorf("checkpoint: preparing %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fail(err)
	}
	h = new(Hold)
	h.lock, err = dirlock.Take(dir)
	var held *dirlock.HeldError
	switch {
	case errors.As(err, &held):
		return nil, "", fmt.Errorf("checkpoint: another job saves to %s, %v: wait for its end, or choose another folder: %w", dir, held.By, ErrHeld)
	case errors.Is(err, dirlock.ErrNoLocks):
		warning = fmt.Sprintf("%s cannot be locked (%v): ensure that no other job saves there", dir, err)
	case err != nil:
		return fail(err)
	}
	if err := h.look(dir, fresh); err != nil {
		_ = h.Release() // the first error is the relevant one
		return nil, "", err
	}
	return h, warning, nil
}

// look checks whether a run can save to the folder.
func (h *Hold) look(dir string, fresh bool) error {
	all, err := list(dir)
	if err == nil && fresh && len(all) > 0 {
		return setting.Errorf("checkpoint.dir", "%s already has checkpoints of a run, the last one in %s: resume it (%v), choose another folder, or remove the checkpoints", dir, filepath.Base(all[0].path), setting.Path("checkpoint.resume"))
	}
	if err == nil {
		err = removeLeftovers(dir, h.lock != nil)
	}
	if err == nil {
		err = tryFile(PathOf(dir, 0))
	}
	if err != nil {
		return fmt.Errorf("checkpoint: preparing %s: %w", dir, err)
	}
	return nil
}

// tryFile creates a file as Save does, and removes it. A full disk is no error, because it may have
// space again at the first save.
func tryFile(path string) error {
	f, err := dirlock.Create(path)
	if dirlock.Full(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// Release unlocks the folder.
func (h *Hold) Release() error {
	if h == nil || h.lock == nil {
		return nil
	}
	return h.lock.Release()
}

// Prepare is Take followed by Release, for a launcher to report errors before it starts processes.
func Prepare(dir string, fresh bool) error {
	h, _, err := Take(dir, fresh)
	if err != nil {
		return err
	}
	return h.Release()
}

// leftAlone is the age from which an unfinished file counts as that of a killed writer, if no lock
// excludes writers on other hosts.
const leftAlone = time.Hour

// removeLeftovers removes unfinished files older than leftAlone or, if locked, of this host.
func removeLeftovers(dir string, locked bool) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		of, here, ok := dirlock.Unfinished(f.Name())
		if !ok { // names of older versions had no number
			of, ok = strings.CutSuffix(f.Name(), dirlock.TempSuffix)
		}
		if _, named := stepOf(of); !ok || !named {
			continue
		}
		info, err := f.Info()
		if err == nil && (locked && here || time.Since(info.ModTime()) > leftAlone) {
			err = os.Remove(filepath.Join(dir, f.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
