// Package remotepath maps URLs of checkpoint folders and data to local folders, which only the user
// can read. It downloads the files that a job reads, and uploads those that the job writes.
package remotepath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/remote"
	"github.com/ringo-ml/ringo/internal/remote/store"
)

const (
	spoolPrefix = "spool-"
	keptPrefix  = "unsaved-"      // spools with files that could not be uploaded, kept from cleanup
	abandoned   = 24 * time.Hour  // age for removing a killed command's files
	lastCarry   = 5 * time.Minute // time for the last upload
	slow        = 2 * time.Second // time after which a slow upload is reported
	headBytes   = 16<<20 + 1<<16  // maximum end of a checkpoint's header
	leftAlone   = time.Hour       // age before files without a checkpoint count as abandoned: their upload may continue
)

// Mode is the use of a remote folder.
type Mode int

const (
	// Write saves to the folder; a run there is an error.
	Write Mode = iota
	// Resume saves to the folder, continuing its run.
	Resume
	// Look reads the begin of a run saved by another process.
	Look
)

// Spool is the local folder of a job for a remote folder.
type Spool struct {
	// Dir is the local folder.
	Dir string

	at      string // parent folder with the lock
	mirror  *remote.Mirror
	carries bool
	lock    *dirlock.Lock // nil: the file system has no locks
	report  func(line string)
}

// HeldError means that the target of a new run has a run already.
type HeldError struct{ Where, Last string }

// Error names the existing run.
func (e *HeldError) Error() string {
	return fmt.Sprintf("%s already has checkpoints of a run, the last one in %s", e.Where, e.Last)
}

// Open creates the spool of a URL, and downloads the files needed for the mode. Files with names
// beginning with below are uploaded in the background, until Close. Object stores have no locks:
// report gets a line about that, and about failed uploads.
func Open(ctx context.Context, url, below string, want Mode, report func(line string)) (_ *Spool, err error) {
	from, err := remote.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	s := &Spool{report: report}
	defer func() {
		if err != nil {
			err = errors.Join(err, from.Close(), s.remove())
		}
	}()
	if err := s.make(from); err != nil {
		return nil, err
	}
	s.mirror = &remote.Mirror{Dir: s.Dir, Store: from, Prefix: below, Report: report}
	objects, torn, err := s.mirror.List(ctx)
	if err != nil {
		return nil, err
	}
	saved := remote.Checkpoints(objects)
	switch {
	case want == Look && len(saved) > 0:
		err = s.mirror.Head(ctx, saved[0], headBytes)
	case want == Write && len(saved) > 0:
		err = &HeldError{from.String(), saved[0].Name}
	case want == Write: // parts saved by servers, without a checkpoint file that names them
		s.mirror.Disown(unfinished(objects))
	case want == Resume:
		err = s.mirror.Fetch(ctx, objects)
	}
	if err == nil && want != Look {
		err = s.mirror.Try(ctx)
	}
	if err != nil {
		return nil, err
	}
	s.mirror.Disown(unfinished(torn))
	if s.carries = want != Look; s.carries {
		report(fmt.Sprintf("what is saved goes to %v, by way of %s; it cannot be locked: see to it that no other job saves there", from, s.Dir))
		s.mirror.Start(context.WithoutCancel(ctx))
	}
	return s, nil
}

// unfinished returns the files without a checkpoint that no process uploads any more.
func unfinished(of []store.Object) []store.Object {
	return slices.DeleteFunc(of, func(o store.Object) bool { return time.Since(o.At) < leftAlone })
}

// Close uploads the rest and removes the spool. If this fails, the error names the retained spool.
func (s *Spool) Close() error {
	var err error
	if s.carries {
		ctx, cancel := context.WithTimeout(context.Background(), lastCarry)
		told := time.AfterFunc(slow, func() {
			s.report(fmt.Sprintf("what was saved last is still on its way to %v, which may take %v", s.mirror.Store, lastCarry))
		})
		err = s.mirror.End(ctx)
		told.Stop()
		cancel()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("what was saved last is not where it belongs, but below %s: %w", s.keep(), err), s.mirror.Store.Close(), s.release())
	}
	return errors.Join(s.mirror.Store.Close(), s.remove())
}

// keep protects the spool from cleanup, and returns its path.
func (s *Spool) keep() string {
	at := filepath.Join(filepath.Dir(s.at), keptPrefix+strings.TrimPrefix(filepath.Base(s.at), spoolPrefix))
	if err := os.Rename(s.at, at); err == nil {
		s.at = at
	}
	return s.at
}

func (s *Spool) release() error {
	if s.lock == nil {
		return nil
	}
	return s.lock.Release()
}

func (s *Spool) remove() error {
	if s.at == "" {
		return nil
	}
	return errors.Join(s.release(), os.RemoveAll(s.at))
}

// Patterns of the beginning of a spool path in text.
var (
	ofFile   = regexp.MustCompile(`[^\s"']*/spool-[0-9a-f]{16}/file:/`)        // pattern only, not a file
	ofBucket = regexp.MustCompile(`[^\s"']*/spool-[0-9a-f]{16}/(s3|azblob):/`) // pattern only, not a file
)

// WithURLs replaces paths of spools in a text by their URLs.
func WithURLs(text string) string {
	return ofBucket.ReplaceAllString(ofFile.ReplaceAllString(text, "file:///"), "$1://")
}

// make creates the spool, in a folder that is locked during this process, and removes abandoned
// spools. The path ends with the store's URL, for WithURLs.
func (s *Spool) make(of store.Store) error {
	at, err := rendezvous.Private(fmt.Sprintf("%s%016x", spoolPrefix, rand.Uint64()))
	if err != nil {
		return err
	}
	sweep(filepath.Dir(at))
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	s.at = at
	if s.lock, err = dirlock.Take(at); err != nil && !errors.Is(err, dirlock.ErrNoLocks) {
		return err
	}
	scheme, rest, _ := strings.Cut(of.String(), "://")
	s.Dir = filepath.Join(at, scheme+":", filepath.FromSlash(rest))
	return os.MkdirAll(s.Dir, 0o700)
}

// sweep removes the spools of commands killed long ago, if possible.
func sweep(dir string) {
	old, _ := filepath.Glob(filepath.Join(dir, spoolPrefix+"*"))
	for _, path := range old {
		info, err := os.Stat(path)
		if err != nil || time.Since(info.ModTime()) < abandoned {
			continue
		}
		if lock, err := dirlock.Take(path); err == nil {
			_ = lock.Release()
			_ = os.RemoveAll(path)
		}
	}
}

var errNone = errors.New("no checkpoint is there")

// Checkpoint downloads a checkpoint, or a folder's last one, with its servers' files, if word is a
// URL. path is the local path, or word itself if not a URL; file:// URLs are read in place. parts
// returns the prefix of a local checkpoint file's objects. end removes the downloaded files.
func Checkpoint(ctx context.Context, word string, parts func(file string) (prefix string, err error)) (path string, end func() error, err error) {
	end = func() error { return nil }
	if !remote.IsURL(word) {
		return word, end, nil
	}
	if path, err := localPath(ctx, word); path != "" || err != nil {
		if _, none := os.Stat(path); err == nil && errors.Is(none, fs.ErrNotExist) && !isChoice(filepath.Base(path)) {
			err = fmt.Errorf("%s: %w", remote.Shown(word), errNone)
		}
		return path, end, err
	}
	where, only := word, ""
	parent, name := remote.Split(word)
	if remote.KindOf(name) == remote.KindCheckpoint {
		where, only = parent, name
	}
	path, end, err = downloaded(ctx, where, only, parts)
	if errors.Is(err, errNone) && isChoice(name) {
		if path, end, err = downloaded(ctx, parent, "", parts); err == nil {
			path = filepath.Join(path, name)
		}
	}
	if errors.Is(err, errNone) {
		err = fmt.Errorf("%s: %w", remote.Shown(word), err)
	}
	return path, end, err
}

// isChoice reports whether checkpoint.Choose accepts a name instead of a file name in a folder.
// Callers check first that no file or folder has this name.
func isChoice(name string) bool { return name == "best" || name == "last" }

// downloaded is Checkpoint for a store's folder, or for the folder's object only if not "".
func downloaded(ctx context.Context, where, only string, parts func(file string) (prefix string, err error)) (path string, end func() error, err error) {
	from, err := remote.Open(ctx, where)
	if err != nil {
		return "", nil, err
	}
	s := new(Spool)
	end = func() error { return errors.Join(from.Close(), s.remove()) }
	if path, err = s.bring(ctx, from, only, parts); err != nil {
		return "", nil, errors.Join(err, end())
	}
	return path, end, nil
}

// bring downloads the named checkpoint with its parts to a new spool; for "" the last checkpoint
// and the best one, and returns the folder.
func (s *Spool) bring(ctx context.Context, from store.Store, only string, parts func(file string) (prefix string, err error)) (path string, err error) {
	if err := s.make(from); err != nil {
		return "", err
	}
	m := &remote.Mirror{Dir: s.Dir, Store: from}
	objects, _, err := m.List(ctx)
	if err != nil {
		return "", err
	}
	saved := remote.Checkpoints(objects)
	i := slices.IndexFunc(saved, func(o store.Object) bool { return only == "" || o.Name == only })
	if i < 0 {
		return "", errNone
	}
	path = filepath.Join(s.Dir, saved[i].Name)
	if err := s.fetchWhole(ctx, m, objects, saved[i], parts); err != nil || only != "" {
		return path, err
	}
	f, err := checkpoint.Load(path)
	if err != nil {
		return "", err
	}
	step, best := f.Header.BestStep()
	name := filepath.Base(checkpoint.PathOf("", step))
	if k := slices.IndexFunc(saved, func(o store.Object) bool { return o.Name == name }); best != "" && k > i {
		err = s.fetchWhole(ctx, m, objects, saved[k], parts)
	}
	return s.Dir, errors.Join(err, f.Close())
}

// fetchWhole downloads a checkpoint with its parts.
func (s *Spool) fetchWhole(ctx context.Context, m *remote.Mirror, objects []store.Object, file store.Object, parts func(file string) (prefix string, err error)) error {
	if err := m.Fetch(ctx, []store.Object{file}); err != nil {
		return err
	}
	prefix, err := parts(filepath.Join(s.Dir, file.Name))
	if err != nil || prefix == "" {
		return err
	}
	return m.Fetch(ctx, slices.DeleteFunc(slices.Clone(objects), func(o store.Object) bool { return !strings.HasPrefix(o.Name, prefix) }))
}
