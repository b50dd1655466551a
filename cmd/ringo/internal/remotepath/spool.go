// Package remotepath is what a command reads and saves elsewhere than on its host, as URLs name it:
// folders of checkpoints, data, and checkpoints that are only read. The job itself works with files
// of this host, below a folder that is its user's alone.
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

	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/remote"
	"github.com/ringo-ml/ringo/internal/remote/store"
)

const (
	spoolPrefix = "spool-"
	keptPrefix  = "unsaved-"      // of a spool that has what could not be carried: nobody removes it
	abandoned   = 24 * time.Hour  // after which what a killed command has left goes
	lastCarry   = 5 * time.Minute // for what is to be carried at the end
	slow        = 2 * time.Second // after which a person is told that it takes time
	headBytes   = 16<<20 + 1<<16  // in which the header of a checkpoint ends
	leftAlone   = time.Hour       // for which what is of no checkpoint stays where it is: who carries it may not have ended
)

// Mode says what a process does with a folder that lies elsewhere.
type Mode int

const (
	// Write is to save there, and to begin with nothing.
	Write Mode = iota
	// Resume is to save there, and to go on with what is there.
	Resume
	// Look is to read how the run was begun that is there, of which another process saves.
	Look
)

// Spool is the folder of this host in which a job works in place of one that lies elsewhere.
type Spool struct {
	// Dir is the folder.
	Dir string

	at      string // the one that has it, and the lock
	mirror  *remote.Mirror
	carries bool
	lock    *dirlock.Lock // nil: the file system has none
	report  func(line string)
}

// HeldError says that a run is where another one shall begin.
type HeldError struct{ Where, Last string }

// Error says what is there.
func (e *HeldError) Error() string {
	return fmt.Sprintf("%s holds a run already, saved last in %s", e.Where, e.Last)
}

// Open makes the spool of a URL, and brings there what is wanted. What is saved there is carried from now on, beside the job, until Close, if its
// name begins with below. A bucket has no lock: report is told once, and where something cannot be carried.
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
	case want == Write: // parts that servers saved, and no file that names them
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

// unfinished are those of no checkpoint that nobody carries any more.
func unfinished(of []store.Object) []store.Object {
	return slices.DeleteFunc(of, func(o store.Object) bool { return time.Since(o.At) < leftAlone })
}

// Close carries what is missing, and removes the spool; where that fails it stays, and the error names it.
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

// keep has no later command remove the spool, and returns where it is.
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

// These find the beginning of a path in a spool, in any text.
var (
	ofFile   = regexp.MustCompile(`[^\s"']*/spool-[0-9a-f]{16}/file:/`)        // never written
	ofBucket = regexp.MustCompile(`[^\s"']*/spool-[0-9a-f]{16}/(s3|azblob):/`) // never written
)

// WithURLs is a text with URLs in place of the folders of this host in which a job works.
func WithURLs(text string) string {
	return ofBucket.ReplaceAllString(ofFile.ReplaceAllString(text, "file:///"), "$1://")
}

// make makes the folder, in one that is locked as long as this process lives, and removes those that nobody has any more. Its path ends with what
// the store's URL says, by which WithURLs knows it.
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

// sweep removes the spools of commands that were killed long ago. What cannot be removed stays.
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

// Checkpoint brings a checkpoint, or a folder's last one, and what its servers have saved, to this host, if word is a URL. path is where it is then, and
// word itself where that is a path already; what file:// names is read where it is. parts says which objects belong to a checkpoint that is here. end removes what was brought.
func Checkpoint(ctx context.Context, word string, parts func(file string) (prefix string, err error)) (path string, end func() error, err error) {
	end = func() error { return nil }
	if !remote.IsURL(word) {
		return word, end, nil
	}
	if path, err := localPath(ctx, word); path != "" || err != nil {
		if _, none := os.Stat(path); err == nil && errors.Is(none, fs.ErrNotExist) {
			err = fmt.Errorf("%s: %w", remote.Shown(word), errNone)
		}
		return path, end, err
	}
	where, only := word, ""
	if parent, name := remote.Split(word); remote.KindOf(name) == remote.KindCheckpoint {
		where, only = parent, name
	}
	from, err := remote.Open(ctx, where)
	if err != nil {
		return "", nil, err
	}
	s := new(Spool)
	end = func() error { return errors.Join(from.Close(), s.remove()) }
	if path, err = s.bring(ctx, from, only, parts); errors.Is(err, errNone) {
		err = fmt.Errorf("%s: %w", remote.Shown(word), err)
	}
	if err != nil {
		return "", nil, errors.Join(err, end())
	}
	return path, end, nil
}

// bring brings the last checkpoint to a new spool, or only that of a name, and its parts.
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
	if err := m.Fetch(ctx, saved[i:i+1]); err != nil {
		return "", err
	}
	path = filepath.Join(s.Dir, saved[i].Name)
	prefix, err := parts(path)
	if err != nil || prefix == "" {
		return path, err
	}
	return path, m.Fetch(ctx, slices.DeleteFunc(objects, func(o store.Object) bool { return !strings.HasPrefix(o.Name, prefix) }))
}
