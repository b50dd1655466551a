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

// ErrHeld is the error of Take and Prepare where another job saves to the folder.
var ErrHeld = dirlock.ErrHeld

// Hold is a folder taken for one writer of checkpoints. Nil holds nothing.
type Hold struct{ lock *dirlock.Lock }

// Take makes a folder for checkpoints where there is none, and this process the only one that saves
// there until it releases the folder or ends, however it ends. It reports, before a run and not when it first saves,
// a folder that another process has, by name (ErrHeld), and one to which nothing can be written. A fresh
// folder must hold no checkpoint yet: those of a run that got further would
// outlive the new run's own, and be gone on from in their place. What writers that were killed left
// behind is removed.
//
// On a file system without locks warning says so, and who starts jobs has to see to it that one folder has one. A
// network file system may keep processes of one host apart alone. Even then no writer is in another's way
// while a file is not whole, and each file is one writer's.
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
		return nil, "", fmt.Errorf("checkpoint: another job saves to %s, %v: wait for its end, or name another folder: %w", dir, held.By, ErrHeld)
	case errors.Is(err, dirlock.ErrNoLocks):
		warning = fmt.Sprintf("%s cannot be locked (%v): see to it that no other job saves there", dir, err)
	case err != nil:
		return fail(err)
	}
	if err := h.look(dir, fresh); err != nil {
		_ = h.Release() // the first fault is what matters
		return nil, "", err
	}
	return h, warning, nil
}

// look looks whether a run can save to the folder.
func (h *Hold) look(dir string, fresh bool) error {
	all, err := list(dir)
	if err == nil && fresh && len(all) > 0 {
		return setting.Errorf("checkpoint.dir", "%s holds a run already, saved last in %s: go on with it (%v), name another folder, or remove its checkpoints", dir, filepath.Base(all[0].path), setting.Path("checkpoint.resume"))
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

// tryFile makes a file as Save does, and removes it. A disk that is full now need not be when the run first saves.
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

// Release lets the folder go.
func (h *Hold) Release() error {
	if h == nil || h.lock == nil {
		return nil
	}
	return h.lock.Release()
}

// Prepare is Take for a moment: what it reports, a launcher can tell before it starts anything.
func Prepare(dir string, fresh bool) error {
	h, _, err := Take(dir, fresh)
	if err != nil {
		return err
	}
	return h.Release()
}

// leftAlone is for how long an unfinished file is not touched before it is taken for one that a killed writer left, where
// the writer may be on another host, which a lock may not keep out.
const leftAlone = time.Hour

// removeLeftovers removes unfinished files that nobody writes: with the lock, those of this host.
func removeLeftovers(dir string, locked bool) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		of, here, ok := dirlock.Unfinished(f.Name())
		if !ok { // older versions had no number in the name
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
