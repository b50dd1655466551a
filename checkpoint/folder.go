package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// ErrNone is the error of Latest where a folder has no checkpoint, or does not
// exist.
var ErrNone = errors.New("no checkpoint")

const (
	namePrefix = "step-"
	nameSuffix = ".ringo"
)

// entry is a checkpoint of a folder.
type entry struct {
	step int64
	path string
}

func fileName(step int64) string { return fmt.Sprintf("%s%09d%s", namePrefix, step, nameSuffix) }

// stepOf is the step that a file is named after.
func stepOf(name string) (step int64, ok bool) {
	digits, isNamed := strings.CutPrefix(name, namePrefix)
	digits, ends := strings.CutSuffix(digits, nameSuffix)
	step, err := strconv.ParseInt(digits, 10, 64)
	return step, isNamed && ends && err == nil && step >= 0 && name == fileName(step)
}

// list returns a folder's checkpoints, the newest first.
func list(dir string) ([]entry, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []entry
	for _, f := range files {
		if step, ok := stepOf(f.Name()); ok && !f.IsDir() {
			out = append(out, entry{step, filepath.Join(dir, f.Name())})
		}
	}
	slices.SortFunc(out, func(a, b entry) int { return cmp.Compare(b.step, a.step) })
	return out, nil
}

// Steps are those of a folder's checkpoints, the highest first; none where there is no folder. Whether
// they are whole is not looked at.
func Steps(dir string) (steps []int64, err error) {
	all, err := list(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	for _, e := range all {
		steps = append(steps, e.step)
	}
	return steps, nil
}

// PathOf is where a folder has the checkpoint of a step.
func PathOf(dir string, step int64) string { return filepath.Join(dir, fileName(step)) }

// Save writes a checkpoint to a folder, which it makes where there is none, and
// returns the file's path. The file appears whole or not at all, also when the
// machine fails: it is written under another name, forced to the disk and
// renamed. One of the same step is replaced. Older checkpoints are removed as State.Keep says;
// where only that fails the path is returned with the error. Until it is whole the file has a
// name that no other writer uses, but who saves to one folder should have it: [Take]. The
// arrays are not copied. Where the file cannot be written the arrays of Passing go by all the
// same, so that nobody waits who has them.
func Save(dir string, s State) (path string, err error) {
	w, err := Write(dir, s)
	if err != nil {
		return "", err
	}
	return w.Finish()
}

// Written is a checkpoint whose file has all of it, and neither its name yet nor a place on the disk that a failure of the machine leaves.
type Written struct {
	dir, path string
	step      int64
	bytes     int64
	keep      int
	spare     []int64
	file      WriteFile
}

// Write is the first part of Save: the arrays may change when it returns. It takes as long as a copy of them into the system's
// memory. Finish must follow.
func Write(dir string, s State) (*Written, error) {
	w := &Written{dir: dir, path: PathOf(dir, s.Header.Step), step: s.Header.Step, keep: s.Keep, spare: s.Spare}
	if err := s.check(); err != nil {
		return nil, w.failed(err)
	}
	header, err := encodeHeader(s)
	if err != nil {
		return nil, w.failed(err)
	}
	w.bytes = s.size(header)
	if w.file, err = s.writeFile(w.path, header); err != nil {
		return nil, w.failed(&WriteError{Bytes: w.bytes, Err: err})
	}
	return w, nil
}

// Finish is the other part of Save. It takes as long as the disk. One goroutine calls it, once.
func (w *Written) Finish() (path string, err error) {
	if err := w.name(); err != nil {
		return "", w.failed(&WriteError{Bytes: w.bytes, Err: err})
	}
	if err := prune(w.dir, w.path, w.keep, w.spare); err != nil {
		return w.path, fmt.Errorf("checkpoint: removing what is older than %s: %w", w.path, err)
	}
	return w.path, nil
}

func (w *Written) failed(err error) error {
	return fmt.Errorf("checkpoint: saving step %d in %s: %w", w.step, w.dir, err)
}

// name gives a file its name when its contents are on the disk.
func (w *Written) name() error {
	err := dirlock.SyncFile(w.file)
	if err = errors.Join(err, w.file.Close()); err == nil {
		err = os.Rename(w.file.Name(), w.path)
	}
	if err != nil {
		_ = os.Remove(w.file.Name()) // the first fault is what matters
		return err
	}
	return dirlock.Sync(w.dir)
}

// WriteError is a file that could not be written, for want of room perhaps.
type WriteError struct {
	Bytes int64 // that the file needs
	Err   error
}

// Error says how long the file would have been.
func (e *WriteError) Error() string {
	return fmt.Sprintf("%v (the file needs %d bytes)", e.Err, e.Bytes)
}

// Unwrap is the fault.
func (e *WriteError) Unwrap() error { return e.Err }

// WriteFile is a file that Save writes.
type WriteFile interface {
	io.Writer
	Name() string // where it is until it is whole
	Sync() error
	Close() error
}

// create makes the file of a checkpoint under another name.
func (s State) create(path string) (WriteFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	if s.Create != nil {
		return s.Create(path)
	}
	f, err := dirlock.Create(path)
	if err != nil {
		return nil, err // and no *os.File that is nil
	}
	return f, nil
}

// failing is a file that could not be made.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// writeFile writes a file, under another name.
func (s State) writeFile(path string, header []byte) (WriteFile, error) {
	f, err := s.create(path)
	if err != nil {
		return nil, write(failing{err}, header, s.Arrays)
	}
	if err = write(f, header, s.Arrays); err != nil {
		err = errors.Join(err, f.Close())
		_ = os.Remove(f.Name()) // the first fault is what matters
		return nil, err
	}
	return f, nil
}

// prune removes all but the newest keep checkpoints, the one just saved and those to spare.
func prune(dir, saved string, keep int, spare []int64) error {
	if keep == 0 {
		return nil
	}
	all, err := list(dir)
	if err != nil {
		return err
	}
	for _, e := range all[min(keep, len(all)):] {
		if e.path != saved && !slices.Contains(spare, e.step) {
			if err := os.Remove(e.path); err != nil {
				return err
			}
		}
	}
	return nil
}

// Latest returns the path of the folder's checkpoint of the highest step, whose
// header and length it checks. Files that a Save did not finish do not count.
// Where there is none the error is ErrNone. A damaged newest file is an error,
// a *[DamageError], and no reason to take another one in silence.
func Latest(dir string) (path string, err error) {
	all, err := list(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(all) == 0 {
		return "", fmt.Errorf("checkpoint: %s: %w", dir, ErrNone)
	}
	if err != nil {
		return "", fmt.Errorf("checkpoint: %w", err)
	}
	f, err := Load(all[0].path)
	if err != nil {
		return "", err
	}
	return all[0].path, f.Close()
}

// Of returns the checkpoint that a path means: that file, or the last one of that folder, whose header has been checked. Errors: as
// Latest.
func Of(path string) (file string, err error) {
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		return path, nil // whoever loads it checks it
	}
	return Latest(path)
}

// withWhole adds to a damage the newest older checkpoint of the same folder
// that is whole, which it reads in full to know.
func withWhole(err error) error {
	var d *DamageError
	if !errors.As(err, &d) {
		return err
	}
	step, ok := stepOf(filepath.Base(d.Path))
	all, listErr := list(filepath.Dir(d.Path))
	if !ok || listErr != nil {
		return err
	}
	for _, e := range all {
		if e.step < step && whole(e.path) {
			d.Whole = e.path
			break
		}
	}
	return err
}

func whole(path string) bool {
	file, err := pathname.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return false
	}
	f := &File{path: path, r: file}
	return f.readIndex(info.Size()) == nil && f.verify() == nil
}
