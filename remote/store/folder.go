package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ringo-ml/ringo/internal/folder"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// Folder is a folder as a store, by its path: a file for each object.
type Folder string

// String is the method of Store.
func (f Folder) String() string { return "file://" + filepath.ToSlash(string(f)) }

// Close is the method of Store.
func (f Folder) Close() error { return nil }

// at is where an object's file is.
func (f Folder) at(name string) (string, error) {
	if !fs.ValidPath(name) || name == "." {
		return "", &RefusedError{fmt.Errorf("%q is no name of an object", name)}
	}
	return filepath.Join(string(f), filepath.FromSlash(name)), nil
}

// List is the method of Store. Files that are not whole are not there.
func (f Folder) List(ctx context.Context) (out []Object, err error) {
	err = filepath.WalkDir(string(f), func(path string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(absent(err), fs.ErrNotExist):
			return nil // it went away meanwhile, or is not there yet
		case err != nil || !d.Type().IsRegular() || strings.HasSuffix(path, folder.TempSuffix):
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(string(f), path)
		out = append(out, Object{Name: filepath.ToSlash(name), Bytes: info.Size(), At: info.ModTime()})
		return err
	})
	return out, err
}

// Stat is the method of Store.
func (f Folder) Stat(_ context.Context, name string) (o Object, err error) {
	path, err := f.at(name)
	if err != nil {
		return o, err
	}
	info, err := os.Stat(path)
	if err = absent(err); err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	if err != nil {
		return o, err
	}
	return Object{Name: name, Bytes: info.Size(), At: info.ModTime()}, nil
}

// Read is the method of Store.
func (f Folder) Read(_ context.Context, name string, from, n int64) (io.ReadCloser, error) {
	path, err := f.at(name)
	if err != nil {
		return nil, err
	}
	file, err := pathname.Open(path)
	if err != nil {
		return nil, absent(err)
	}
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if n < 0 {
		return file, nil
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(file, n), file}, nil
}

// absent has what lies below a file be what is not there.
func absent(err error) error {
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

// Write is the method of Store.
func (f Folder) Write(ctx context.Context, name string, r io.Reader, size int64) error {
	path, err := f.at(name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return folder.WriteFile(path, func(w io.Writer) error {
		n, err := io.Copy(w, r)
		if err == nil && n != size {
			err = fmt.Errorf("%s has %d bytes, not %d", name, n, size)
		}
		return errors.Join(err, ctx.Err())
	})
}

// Remove is the method of Store. Folders that are empty then go, too.
func (f Folder) Remove(_ context.Context, name string) error {
	path, err := f.at(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for dir := filepath.Dir(path); dir != string(f) && os.Remove(dir) == nil; dir = filepath.Dir(dir) {
	}
	return nil
}
