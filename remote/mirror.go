package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/remote/store"
)

// atOnce is how many objects travel at the same time.
const atOnce = 4

// Mirror carries what appears in a folder to a store, beside who writes there. What [KindOf] knows not stays where it is. One process
// mirrors a folder; several may mirror their own folders to one store, if each writes files of its own.
type Mirror struct {
	Dir   string
	Store store.Store
	Patience
	// Every is the pause between two looks at the folder; 0: 1 s.
	Every time.Duration
	// Report gets lines about what a person should know. It may be nil.
	Report func(line string)

	known  map[string]stamp // what the store has of this folder
	failed bool             // the last look failed, which was told
	stop   context.CancelFunc
	done   chan struct{}
}

// stamp tells whether a file is the one that was carried.
type stamp struct {
	bytes int64
	at    time.Time
}

// Start carries what appears, from time to time, until End.
func (m *Mirror) Start(ctx context.Context) {
	ctx, m.stop = context.WithCancel(ctx)
	m.done = make(chan struct{})
	every := m.Every
	if every == 0 {
		every = time.Second
	}
	go func() {
		defer close(m.done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			err := m.Sync(ctx)
			if err != nil && ctx.Err() == nil && !m.failed && m.Report != nil {
				m.Report(fmt.Sprintf("%v; the job goes on, and this is tried again", err))
			}
			m.failed = err != nil
		}
	}()
}

// End ends what Start began, and carries what is missing, once, within ctx.
func (m *Mirror) End(ctx context.Context) error {
	if m.stop != nil {
		m.stop()
		<-m.done
	}
	return m.Sync(ctx)
}

// Sync makes the store have what the folder has, and then removes what the folder has no more, of what it had. invariant[parts-first]: what others
// refer to is carried before them, and removed after them. An error leaves the rest to the next time.
func (m *Mirror) Sync(ctx context.Context) error {
	first, err := m.scan()
	if err != nil {
		return fmt.Errorf("remote: %s: %w", m.Dir, err)
	}
	files, err := m.scan() // so that it has all that files of the first look refer to
	if err != nil {
		return fmt.Errorf("remote: %s: %w", m.Dir, err)
	}
	for kind := KindPart; kind <= KindCheckpoint; kind++ {
		var changed []string
		for name, s := range files {
			before, was := first[name]
			if KindOf(name) == kind && m.known[name] != s && (kind < KindCheckpoint || was && before == s) {
				changed = append(changed, name)
			}
		}
		slices.Sort(changed)
		if err := m.each(ctx, changed, m.carry); err != nil {
			return fmt.Errorf("remote: saving to %v: %w", m.Store, err)
		}
	}
	for kind := KindCheckpoint; kind >= KindPart; kind-- {
		var gone []string
		for name := range m.known {
			if _, there := files[name]; !there && KindOf(name) == kind {
				gone = append(gone, name)
			}
		}
		if err := m.each(ctx, gone, m.drop); err != nil {
			return fmt.Errorf("remote: removing what is old from %v: %w", m.Store, err)
		}
	}
	return nil
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
		if err != nil || KindOf(filepath.ToSlash(name)) == KindNone {
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

// each does something with names, a few at once, and enters the stamps that it returns: what the store has then, or zero.
func (m *Mirror) each(ctx context.Context, names []string, do func(ctx context.Context, name string) (stamp, error)) error {
	var mu sync.Mutex
	var errs []error
	var wait sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for _, name := range names {
		free <- struct{}{}
		mu.Lock()
		failed := len(errs) > 0
		mu.Unlock()
		if failed {
			break
		}
		wait.Go(func() {
			defer func() { <-free }()
			s, err := do(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			if m.known == nil {
				m.known = map[string]stamp{}
			}
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			case s == stamp{}:
				delete(m.known, name)
			default:
				m.known[name] = s
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// carry brings a file to the store. One that went away meanwhile is not brought.
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
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return stamp{}, nil
		}
	}
	return s, err
}

func (m *Mirror) drop(ctx context.Context, name string) (stamp, error) {
	return stamp{}, m.try(ctx, 0, func(ctx context.Context) error { return m.Store.Remove(ctx, name) })
}

// Names are those that the store has of this folder, sorted.
func (m *Mirror) Names() []string { return slices.Sorted(maps.Keys(m.known)) }
