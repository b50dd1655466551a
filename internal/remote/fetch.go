package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/remote/store"
)

// List returns the store's objects that belong to the mirror and have valid file names. torn are
// parts of servers' checkpoints without a manifest: their mirror was interrupted, or is still
// running.
func (m *Mirror) List(ctx context.Context) (whole, torn []store.Object, err error) {
	all, err := list(ctx, m.Store, m.Patience)
	if err != nil {
		return nil, nil, err
	}
	there := map[string]bool{}
	for _, o := range all {
		there[o.Name] = true
	}
	for _, o := range all {
		switch manifest := manifestOf(o.Name); {
		case !m.has(o.Name):
		case manifest == "" || there[manifest]:
			whole = append(whole, o)
		default:
			torn = append(torn, o)
		}
	}
	return whole, torn, nil
}

// list returns all objects with valid file names: consoles create other objects for folders.
func list(ctx context.Context, from store.Store, p Patience) (all []store.Object, err error) {
	err = p.try(ctx, listing, func(ctx context.Context) (err error) {
		all, err = from.List(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%v: looking what is there: %w", from, err)
	}
	return slices.DeleteFunc(all, func(o store.Object) bool { return !fs.ValidPath(o.Name) }), nil
}

// Fetch downloads objects of List to the folder.
func (m *Mirror) Fetch(ctx context.Context, objects []store.Object) error {
	err := eachOf(objects, atOnce, func(o store.Object) error {
		path := filepath.Join(m.Dir, filepath.FromSlash(o.Name))
		if err := fetch(ctx, m.Store, m.Patience, o, o.Bytes, path); err != nil {
			return fmt.Errorf("%s: %w", o.Name, err)
		}
		info, err := os.Stat(path)
		if err == nil {
			m.enter(o.Name, stamp{info.Size(), info.ModTime()})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%v: reading %w", m.Store, err)
	}
	return nil
}

// Head downloads the first n bytes of an object to a file of the object's full length.
func (m *Mirror) Head(ctx context.Context, o store.Object, n int64) error {
	path := filepath.Join(m.Dir, filepath.FromSlash(o.Name))
	err := fetch(ctx, m.Store, m.Patience, o, min(n, o.Bytes), path)
	if err == nil {
		err = os.Truncate(path, o.Bytes)
	}
	if err != nil {
		return fmt.Errorf("%v: reading the beginning of %s: %w", m.Store, o.Name, err)
	}
	return nil
}

// errOther is the error for an object that changed during the download.
var errOther = errors.New("it was written anew while it was read: start again, when its writer has ended")

// same reports whether the object read is the listed version, by times rounded to seconds.
func same(now, was store.Object) bool {
	return now.Name == was.Name && now.Bytes == was.Bytes && now.At.Truncate(time.Second).Equal(was.At.Truncate(time.Second))
}

// fetch downloads the first n bytes of an object to a file, atomically. A retry continues at the
// last position.
func fetch(ctx context.Context, from store.Store, p Patience, o store.Object, n int64, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return dirlock.WriteFile(path, func(w io.Writer) error {
		done := int64(0)
		return p.try(ctx, n, func(ctx context.Context) error {
			if done == n {
				return nil
			}
			r, now, err := from.Read(ctx, o.Name, done, n-done)
			if err != nil {
				return err
			}
			if !same(now, o) {
				return errors.Join(&store.RefusedError{Err: errOther}, r.Close())
			}
			moved, err := io.Copy(w, io.LimitReader(r, n-done))
			done += moved
			if err = errors.Join(err, r.Close()); err == nil && done < n {
				err = fmt.Errorf("it ends after %d of %d bytes", done, n)
			}
			return err
		})
	})
}

// Download makes path equal to a URL's object, as a file, or to all objects below it, as files of a
// folder without other files. It skips files of equal size and time, and returns the number of
// bytes downloaded. path must have only earlier downloads of the same URL.
func Download(ctx context.Context, text, path string, p Patience) (came int64, err error) {
	from, err := Open(ctx, text)
	if err != nil {
		return 0, err
	}
	defer from.Close()
	parent, name := Split(text)
	if name != "" {
		came, err = downloadOne(ctx, parent, name, path, p)
		if !errors.Is(err, fs.ErrNotExist) {
			return came, err
		}
	}
	objects, err := list(ctx, from, p)
	if err != nil {
		return 0, err
	}
	if len(objects) == 0 {
		return 0, fmt.Errorf("%v: neither an object nor a folder with objects is there: %w", from, fs.ErrNotExist)
	}
	var sum atomic.Int64
	err = eachOf(objects, filesAtOnce, func(o store.Object) error {
		n, err := download(ctx, from, p, o, filepath.Join(path, filepath.FromSlash(o.Name)))
		if sum.Add(n); err != nil {
			return fmt.Errorf("%v: reading %s: %w", from, o.Name, err)
		}
		return nil
	})
	if err == nil {
		err = removeOthers(path, objects)
	}
	return sum.Load(), err
}

// filesAtOnce is the number of concurrent downloads. Most files are small: latency dominates.
const filesAtOnce = 16

// removeOthers removes files of a folder that are not in objects: the store no longer has them, or
// a crash has left them.
func removeOthers(dir string, objects []store.Object) error {
	wanted := map[string]bool{}
	for _, o := range objects {
		wanted[filepath.Join(dir, filepath.FromSlash(o.Name))] = true
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || wanted[path] {
			return err
		}
		return os.Remove(path)
	})
}

func downloadOne(ctx context.Context, parent, name, path string, p Patience) (came int64, err error) {
	from, err := Open(ctx, parent)
	if err != nil {
		return 0, err
	}
	defer from.Close()
	var o store.Object
	err = p.try(ctx, 0, func(ctx context.Context) (err error) {
		o, err = from.Stat(ctx, name)
		return err
	})
	if err == nil {
		came, err = download(ctx, from, p, o, path)
	}
	if err != nil {
		return came, fmt.Errorf("%v: reading %s: %w", from, name, err)
	}
	return came, nil
}

// download is fetch for an object that may already exist, and sets the object's time.
func download(ctx context.Context, from store.Store, p Patience, o store.Object, path string) (int64, error) {
	if info, err := os.Stat(path); err == nil && info.Size() == o.Bytes && info.ModTime().Equal(o.At) {
		return 0, nil
	}
	if err := fetch(ctx, from, p, o, o.Bytes, path); err != nil {
		return 0, err
	}
	return o.Bytes, os.Chtimes(path, o.At, o.At)
}
