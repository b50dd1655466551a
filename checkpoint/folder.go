package checkpoint

import (
	"cmp"
	"encoding/json"
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
	"github.com/ringo-ml/ringo/internal/quantity"
)

// ErrNone is the error of Latest for a folder that has no checkpoint, or does not exist.
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

// stepOf returns the step in a file's name.
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

// Steps returns the steps of a folder's checkpoints, the highest first; none without a folder. It
// does not check the files.
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

// PathOf is the path of a step's checkpoint in a folder.
func PathOf(dir string, step int64) string { return filepath.Join(dir, fileName(step)) }

// Save writes a checkpoint to a folder, which it creates if missing, and returns the file's path.
// The file appears atomically, even if the machine fails: it is written under another name, flushed
// to disk and renamed. It replaces a checkpoint of the same step. State.Keep decides which older
// checkpoints are removed; if only the removal fails, the path is returned with the error.
// Temporary names are unique per writer, but a writer should first [Take] the folder. The arrays
// are not copied. If the file cannot be written, Passing arrays are still streamed, so that no
// sender waits.
func Save(dir string, s State) (path string, err error) {
	w, err := Write(dir, s)
	if err != nil {
		return "", err
	}
	return w.Finish()
}

// Written is a checkpoint with a complete file, not yet renamed and perhaps not on the disk.
type Written struct {
	dir, path string
	step      int64
	bytes     int64
	keep      int
	spare     []int64
	file      WriteFile
}

// Write is the first part of Save. After it returns, the arrays may change. It takes about as long
// as a copy of the arrays into the system's memory. Call Finish afterwards.
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

// Finish is the second part of Save: it waits for the disk, and renames the file. Call it once.
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

// name renames the file after its contents are on the disk.
func (w *Written) name() error {
	err := dirlock.SyncFile(w.file)
	if err = errors.Join(err, w.file.Close()); err == nil {
		err = os.Rename(w.file.Name(), w.path)
	}
	if err != nil {
		_ = os.Remove(w.file.Name()) // the first error is the relevant one
		return err
	}
	return dirlock.Sync(w.dir)
}

// WriteError reports a file that could not be written, such as on a full disk.
type WriteError struct {
	Bytes int64 // required size of the file
	Err   error
}

// Error includes the required size.
func (e *WriteError) Error() string {
	return fmt.Sprintf("%v (the file needs %d bytes)", e.Err, e.Bytes)
}

// Unwrap returns the error.
func (e *WriteError) Unwrap() error { return e.Err }

// WriteFile is a file being written by Save.
type WriteFile interface {
	io.Writer
	Name() string // temporary path
	Sync() error
	Close() error
}

// create creates a checkpoint's file under a temporary name.
func (s State) create(path string) (WriteFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	if s.Create != nil {
		return s.Create(path)
	}
	f, err := dirlock.Create(path)
	if err != nil {
		return nil, err // a nil interface, not a nil *os.File
	}
	return f, nil
}

// failing is a WriteFile that could not be created: its methods return the error.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// writeFile writes a file under a temporary name.
func (s State) writeFile(path string, header []byte) (WriteFile, error) {
	f, err := s.create(path)
	if err != nil {
		return nil, write(failing{err}, header, s.Arrays)
	}
	if err = write(f, header, s.Arrays); err != nil {
		err = errors.Join(err, f.Close())
		_ = os.Remove(f.Name()) // the first error is the relevant one
		return nil, err
	}
	return f, nil
}

// prune removes all checkpoints of a folder except for saved, the newest `keep`, and those of the
// steps in spare.
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

// Latest returns the path of the folder's checkpoint with the highest step, after checking its
// header and length. Unfinished files do not count. Without a checkpoint the error is ErrNone. If
// the newest file is damaged, Latest returns a *[DamageError] and not an older file.
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

// Locate returns the checkpoint at a path: the file, or the last one of the folder, with a verified
// header. Errors are those of Latest.
func Locate(path string) (file string, err error) {
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		return path, nil // loading checks it
	}
	return Latest(path)
}

// withWhole adds to a *DamageError the newest older checkpoint of the folder without damage, which
// it reads completely.
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

// Last elements of a path that select a checkpoint of a run's folder, see Choose. No files with
// these names exist: a link could name a removed checkpoint, and object stores have no links.
const (
	nameBest = "best"
	nameLast = "last"
)

// Choose returns the checkpoint that a path means for a reader of weights, and the reason as text.
// A file is returned as it is, without a reason. A run's folder means the best checkpoint if the
// run compares epochs (training.monitor), else the last one; if the best one's file is missing, the
// last one. FOLDER/best and FOLDER/last select one of them, unless a file or folder has this name.
// To continue a run always take the last one: [Locate].
//
// The last checkpoint of the folder names the best one, and is checked as by [Latest].
func Choose(path string) (file, why string, err error) {
	path = filepath.Clean(path)
	dir, name := path, ""
	info, err := os.Stat(path)
	switch base := filepath.Base(path); {
	case err == nil && info.Mode().IsRegular():
		return path, "", nil
	case errors.Is(err, fs.ErrNotExist) && (base == nameBest || base == nameLast):
		dir, name = filepath.Dir(path), base
	}
	last, err := Latest(dir)
	if err != nil {
		return "", "", err
	}
	f, err := Load(last)
	if err != nil {
		return "", "", err
	}
	step, best := f.Header.BestStep()
	if err := f.Close(); err != nil {
		return "", "", fmt.Errorf("checkpoint: %w", err)
	}
	file = PathOf(dir, step)
	_, missing := os.Stat(file)
	switch {
	case name == nameLast:
		return last, "the last one", nil
	case best != "" && file == last:
		return last, best + ", and the last one", nil
	case best != "" && missing == nil:
		return file, best, nil
	case name == nameBest && best == "":
		return "", "", fmt.Errorf("checkpoint: %s: the run compares no epochs (training.monitor): take %s", path, filepath.Join(dir, nameLast))
	case name == nameBest:
		return "", "", fmt.Errorf("checkpoint: %s is %s, %s: %w", path, best, filepath.Base(file), missing)
	case best != "":
		return last, fmt.Sprintf("the last one: %s, is missing (%s)", best, filepath.Base(file)), nil
	}
	return last, "the last one", nil
}

// BestStep returns the step of the best checkpoint of the run up to this one, with a description;
// "" if the run does not compare epochs, or none has ended. Package train writes the entry.
func (h Header) BestStep() (step int64, text string) {
	var past struct {
		Best struct {
			Metric string  `json:"metric"`
			Value  float64 `json:"value"`
			Epoch  int     `json:"epoch"`
			Step   int64   `json:"step"`
		} `json:"best"`
	}
	if err := json.Unmarshal([]byte(h.More["past"]), &past); err != nil {
		return 0, "" // resuming reports the error
	}
	now, _ := h.Settings.Current() // settings that no longer exist are reported elsewhere
	metric, _, _ := strings.Cut(now["training.monitor"], ":patience=")
	if b := past.Best; b.Metric != "" && b.Metric == metric {
		return b.Step, fmt.Sprintf("the best one by %s, %s of epoch %d", b.Metric, quantity.FloatDigits(b.Value, 6), b.Epoch)
	}
	return 0, ""
}
