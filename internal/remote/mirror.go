package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/remote/store"
)

// atOnce is the number of concurrent transfers.
const atOnce = 4

// Mirror uploads new files of a folder to a store, concurrently with their writers. Files of
// KindNone stay. One process mirrors a folder; several processes may mirror their folders to the
// same store, with distinct names.
type Mirror struct {
	Dir   string
	Store store.Store
	// Prefix is the prefix of this mirror's names, such as server-0/; "": all names.
	Prefix string
	Patience
	// Every is the interval between scans of the folder; 0: 1 s.
	Every time.Duration
	// Report receives lines for users. It may be nil.
	Report func(line string)

	mu    sync.Mutex
	known map[string]stamp // objects of this folder in the store

	failed bool          // the last scan failed, and was reported
	end    chan struct{} // closed: the current scan is the last
	cancel context.CancelFunc
	done   chan struct{}
}

// stamp identifies a version of a file.
type stamp struct {
	bytes int64
	at    time.Time
}

// errGone is the error of a file removed before its upload.
var errGone = errors.New("it is gone")

// Start uploads new files periodically, until End or the end of ctx.
func (m *Mirror) Start(ctx context.Context) {
	ctx, m.cancel = context.WithCancel(ctx)
	m.end, m.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(m.done)
		tick := time.NewTicker(cmp.Or(m.Every, time.Second))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-m.end:
				return
			case <-tick.C:
			}
			m.reportState(ctx, m.Sync(ctx))
		}
	}()
}

// reportState reports the first of consecutive failures, and the first success afterwards.
func (m *Mirror) reportState(ctx context.Context, err error) {
	switch failed := err != nil; {
	case m.Report == nil || ctx.Err() != nil || failed == m.failed:
	case failed:
		m.Report(fmt.Sprintf("%v; the job goes on, and this is tried again", err))
	default:
		m.Report(fmt.Sprintf("%v has all that was saved again", m.Store))
	}
	m.failed = err != nil
}

// End stops Start's uploads, and runs a last Sync within ctx. Running uploads complete.
func (m *Mirror) End(ctx context.Context) error {
	if m.end != nil {
		close(m.end)
		select {
		case <-m.done:
		case <-ctx.Done():
		}
		m.cancel()
		<-m.done
	}
	return m.Sync(ctx)
}

// probe is the temporary object of Try.
const probe = "ringo-probe"

// Try reports in advance why saving is impossible, such as a read-only store. A failure to remove
// the probe is no error: old files then stay too.
func (m *Mirror) Try(ctx context.Context) error {
	err := m.try(ctx, 0, func(ctx context.Context) error { return m.Store.Write(ctx, probe, strings.NewReader(""), 0) })
	if err != nil {
		return fmt.Errorf("%v: nothing can be saved there: %w", m.Store, err)
	}
	_ = m.Store.Remove(ctx, probe)
	return nil
}

// Sync makes the store equal to the folder: new files are uploaded, then files gone from the folder
// removed. invariant[parts-first]: a referenced file, such as the base of a server's delta, is
// always uploaded before its references and removed after them, because a store must always have
// complete checkpoints. After an error the rest is left to the next Sync.
func (m *Mirror) Sync(ctx context.Context) error {
	first, err := m.scan()
	if err != nil {
		return fmt.Errorf("%s: %w", m.Dir, err)
	}
	files, err := m.scan() // includes all files with references from the first scan
	if err != nil {
		return fmt.Errorf("%s: %w", m.Dir, err)
	}
	for kind := KindPart; kind <= KindCheckpoint; kind++ {
		var changed []string
		for name, s := range files {
			before, was := first[name]
			if KindOf(name) == kind && m.known[name] != s && (kind < KindCheckpoint || was && before == s) {
				changed = append(changed, name)
			}
		}
		slices.SortFunc(changed, inOrder)
		if kind == KindCheckpoint {
			slices.Reverse(changed) // the latest step first, if time is short
		}
		if err := m.each(ctx, changed, kind.atOnce(), m.carry); err != nil {
			return fmt.Errorf("%v: saving %w", m.Store, err)
		}
	}
	for kind := KindCheckpoint; kind >= KindPart; kind-- {
		var gone []string
		for name := range m.known {
			if _, there := files[name]; !there && KindOf(name) == kind {
				gone = append(gone, name)
			}
		}
		slices.SortFunc(gone, func(a, b string) int { return inOrder(b, a) })
		if err := m.each(ctx, gone, kind.atOnce(), m.drop); err != nil {
			return fmt.Errorf("%v: removing what is old: %w", m.Store, err)
		}
	}
	return nil
}

// Disown makes the next Sync remove objects that the folder lacks.
func (m *Mirror) Disown(objects []store.Object) {
	for _, o := range objects {
		m.enter(o.Name, stamp{at: o.At})
	}
}

// has reports whether a name is mirrored.
func (m *Mirror) has(name string) bool {
	return KindOf(name) != KindNone && strings.HasPrefix(name, m.Prefix)
}

func (m *Mirror) scan() (map[string]stamp, error) {
	out := map[string]stamp{}
	err := filepath.WalkDir(m.Dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed since
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(m.Dir, path)
		if err != nil || !m.has(filepath.ToSlash(name)) {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			out[filepath.ToSlash(name)] = stamp{info.Size(), info.ModTime()}
		}
		return err
	})
	return out, err
}

// each calls do for names concurrently, and records the returned stamps: the object's version, or
// zero.
func (m *Mirror) each(ctx context.Context, names []string, atOnce int, do func(ctx context.Context, name string) (stamp, error)) error {
	return eachOf(names, atOnce, func(name string) error {
		s, err := do(ctx, name)
		if errors.Is(err, errGone) {
			return nil // the store's object is unchanged
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		m.enter(name, s)
		return nil
	})
}

func (m *Mirror) enter(name string, s stamp) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[string]stamp{}
	}
	if m.known[name] = s; s == (stamp{}) {
		delete(m.known, name)
	}
}

func (m *Mirror) carry(ctx context.Context, name string) (s stamp, err error) {
	path := filepath.Join(m.Dir, filepath.FromSlash(name))
	info, err := os.Stat(path)
	if err == nil {
		s = stamp{info.Size(), info.ModTime()}
		err = m.try(ctx, s.bytes, func(ctx context.Context) error {
			f, err := pathname.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			return m.Store.Write(ctx, name, f, s.bytes)
		})
	}
	if errors.Is(err, fs.ErrNotExist) {
		if _, there := os.Stat(path); errors.Is(there, fs.ErrNotExist) {
			return stamp{}, errGone
		}
	}
	return s, err
}

func (m *Mirror) drop(ctx context.Context, name string) (stamp, error) {
	return stamp{}, m.try(ctx, 0, func(ctx context.Context) error { return m.Store.Remove(ctx, name) })
}
