package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ringo-ml/ringo/internal/folder"
	"github.com/ringo-ml/ringo/remote/store"
)

// List returns the store's objects that a mirror knows, and whose names may be those of files.
func (m *Mirror) List(ctx context.Context) (out []store.Object, err error) {
	var all []store.Object
	err = m.try(ctx, 0, func(ctx context.Context) (err error) {
		all, err = m.Store.List(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("remote: looking what %v has: %w", m.Store, err)
	}
	there := map[string]bool{}
	for _, o := range all {
		there[o.Name] = true
	}
	for _, o := range all {
		if manifest := manifestOf(o.Name); fs.ValidPath(o.Name) && KindOf(o.Name) != KindNone && (manifest == "" || there[manifest]) {
			out = append(out, o)
		}
	}
	return out, nil
}

// Fetch brings objects of List to the folder.
func (m *Mirror) Fetch(ctx context.Context, objects []store.Object) error {
	sizes, names := map[string]int64{}, []string{}
	for _, o := range objects {
		sizes[o.Name], names = o.Bytes, append(names, o.Name)
	}
	err := m.each(ctx, names, func(ctx context.Context, name string) (stamp, error) {
		path := filepath.Join(m.Dir, filepath.FromSlash(name))
		if err := fetch(ctx, m.Store, m.Patience, store.Object{Name: name, Bytes: sizes[name]}, sizes[name], path); err != nil {
			return stamp{}, err
		}
		info, err := os.Stat(path)
		if err != nil {
			return stamp{}, err
		}
		return stamp{info.Size(), info.ModTime()}, nil
	})
	if err != nil {
		return fmt.Errorf("remote: reading from %v: %w", m.Store, err)
	}
	return nil
}

// Head brings the beginning of an object, at most n bytes, to a file of the object's whole length: for who reads no more.
func (m *Mirror) Head(ctx context.Context, o store.Object, n int64) error {
	path := filepath.Join(m.Dir, filepath.FromSlash(o.Name))
	err := fetch(ctx, m.Store, m.Patience, o, min(n, o.Bytes), path)
	if err == nil {
		err = os.Truncate(path, o.Bytes)
	}
	if err != nil {
		return fmt.Errorf("remote: reading the beginning of %s from %v: %w", o.Name, m.Store, err)
	}
	return nil
}

// fetch writes the first n bytes of an object to a file, which appears whole. A try that fails is gone on with where it ended.
func fetch(ctx context.Context, from store.Store, p Patience, o store.Object, n int64, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return folder.WriteFile(path, func(w io.Writer) error {
		done := int64(0)
		return p.try(ctx, n, func(ctx context.Context) error {
			if done == n {
				return nil
			}
			r, err := from.Read(ctx, o.Name, done, n-done)
			if err != nil {
				return err
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

// Download brings what a URL names to a place of this host: an object as a file, or all objects below it as files of a folder. What is there
// already in its length and as new is not brought again, and returned is how many bytes came. What is at path must be of earlier
// downloads of the same URL alone.
func Download(ctx context.Context, text, path string, p Patience) (came int64, err error) {
	parent, name := Split(text)
	if name != "" {
		came, err = downloadOne(ctx, parent, name, path, p)
		if !errors.Is(err, fs.ErrNotExist) {
			return came, err
		}
	}
	from, err := Open(ctx, text)
	if err != nil {
		return 0, err
	}
	defer from.Close()
	var objects []store.Object
	err = p.try(ctx, 0, func(ctx context.Context) (err error) {
		objects, err = from.List(ctx)
		return err
	})
	if err == nil && len(objects) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return 0, fmt.Errorf("remote: looking what %v has: %w", from, err)
	}
	for _, o := range objects {
		if !fs.ValidPath(o.Name) { // such as what consoles leave for a folder
			continue
		}
		n, err := download(ctx, from, p, o, filepath.Join(path, filepath.FromSlash(o.Name)))
		if came += n; err != nil {
			return came, fmt.Errorf("remote: reading %s from %v: %w", o.Name, from, err)
		}
	}
	return came, nil
}

// downloadOne is Download of one object, where there is one.
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
		return came, fmt.Errorf("remote: reading %s from %v: %w", name, from, err)
	}
	return came, nil
}

// download is fetch of an object that may be there already, and that has the object's time then.
func download(ctx context.Context, from store.Store, p Patience, o store.Object, path string) (int64, error) {
	if info, err := os.Stat(path); err == nil && info.Size() == o.Bytes && info.ModTime().Equal(o.At) {
		return 0, nil
	}
	if err := fetch(ctx, from, p, o, o.Bytes, path); err != nil {
		return 0, err
	}
	return o.Bytes, os.Chtimes(path, o.At, o.At)
}
