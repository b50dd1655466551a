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

// atOnce is how many objects travel at the same time.
const atOnce = 4

// Mirror carries what appears in a folder to a store, beside who writes there. What [KindOf] knows not stays where it is. One process
// mirrors a folder; several may mirror their own folders to one store, if each has names of its own.
type Mirror struct {
	Dir   string
	Store store.Store
	// Prefix is what names begin with that are this mirror's, such as server-0/; "": all are.
	Prefix string
	Patience
	// Every is the pause between two looks at the folder; 0: 1 s.
	Every time.Duration
	// Report gets lines about what a person should know. It may be nil.
	Report func(line string)

	mu    sync.Mutex
	known map[string]stamp // what the store has of this folder

	failed bool          // the last look failed, which was told
	end    chan struct{} // closed: the look that goes on is the last
	cancel context.CancelFunc
	done   chan struct{}
}

// stamp tells whether a file is the one that was carried.
type stamp struct {
	bytes int64
	at    time.Time
}

// errGone is that of a file which went away before it was carried.
var errGone = errors.New("it is gone")

// Start carries what appears, from time to time, until End or the end of ctx.
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

// reportState reports the first of several looks that failed, and the first that did not any more.
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

// End ends what Start began, and carries what is missing, once, within ctx. What is on its way already is not begun anew.
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

// probe is an object that is there only while Try looks whether the store takes one.
const probe = "ringo-probe"

// Try reports why nothing could be saved, before anything is: a store that may be read only, for instance. What cannot be removed is no fault: then
// what is old stays, too.
func (m *Mirror) Try(ctx context.Context) error {
	err := m.try(ctx, 0, func(ctx context.Context) error { return m.Store.Write(ctx, probe, strings.NewReader(""), 0) })
	if err != nil {
		return fmt.Errorf("%v: nothing can be saved there: %w", m.Store, err)
	}
	_ = m.Store.Remove(ctx, probe)
	return nil
}

// Sync makes the store have what the folder has, and then removes what the folder has no more, of what it had. invariant[parts-first]: what others
// refer to is carried before them, and removed after them: a checkpoint of servers that adds to another one, too. An error leaves the rest
// to the next time.
func (m *Mirror) Sync(ctx context.Context) error {
	first, err := m.scan()
	if err != nil {
		return fmt.Errorf("%s: %w", m.Dir, err)
	}
	files, err := m.scan() // so that it has all that files of the first look refer to
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
			slices.Reverse(changed) // where there is no time for all, the last one counts
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

// Disown has the next Sync remove objects of the store that the folder lacks, as if it had had them.
func (m *Mirror) Disown(objects []store.Object) {
	for _, o := range objects {
		m.enter(o.Name, stamp{at: o.At})
	}
}

// has tells whether a name is one that is mirrored.
func (m *Mirror) has(name string) bool {
	return KindOf(name) != KindNone && strings.HasPrefix(name, m.Prefix)
}

// scan finds the folder's files that are mirrored.
func (m *Mirror) scan() (map[string]stamp, error) {
	out := map[string]stamp{}
	err := filepath.WalkDir(m.Dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went away meanwhile
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

// each does something with names, some at a time, and enters the stamps that it returns: what the store has then, or zero.
func (m *Mirror) each(ctx context.Context, names []string, atOnce int, do func(ctx context.Context, name string) (stamp, error)) error {
	return eachOf(names, atOnce, func(name string) error {
		s, err := do(ctx, name)
		if errors.Is(err, errGone) {
			return nil // and what the store has of that name is as it was
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

// carry brings a file to the store.
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
