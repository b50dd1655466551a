package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"

	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// Folder is a folder as a store, by its path: each object is a file.
type Folder string

// String implements Store.
func (f Folder) String() string { return "file://" + filepath.ToSlash(string(f)) }

// Close implements Store.
func (f Folder) Close() error { return nil }

func (f Folder) at(name string) (string, error) {
	if !fs.ValidPath(name) || name == "." {
		return "", &RefusedError{fmt.Errorf("%q is no name of an object", name)}
	}
	return filepath.Join(string(f), filepath.FromSlash(name)), nil
}

// List implements Store. It omits incomplete files and links to folders, except for the store
// itself; a link to a file counts as the file.
func (f Folder) List(ctx context.Context) (out []Object, err error) {
	root, err := filepath.EvalSymlinks(string(f))
	if errors.Is(absent(err), fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var info fs.FileInfo
		if err == nil && !d.IsDir() {
			info, err = os.Stat(path)
		}
		_, _, unfinished := dirlock.Unfinished(filepath.Base(path))
		switch {
		case errors.Is(absent(err), fs.ErrNotExist):
			return nil // removed since, or a dangling link
		case err != nil || info == nil || !info.Mode().IsRegular() || unfinished:
			return err
		}
		name, err := filepath.Rel(root, path)
		out = append(out, Object{Name: filepath.ToSlash(name), Bytes: info.Size(), At: info.ModTime()})
		return err
	})
	return out, err
}

// Stat implements Store.
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

// Read implements Store.
func (f Folder) Read(ctx context.Context, name string, from, n int64) (io.ReadCloser, Object, error) {
	path, err := f.at(name)
	if err != nil {
		return nil, Object{}, err
	}
	file, err := pathname.Open(path)
	if err != nil {
		return nil, Object{}, absent(err)
	}
	info, err := file.Stat()
	if err == nil {
		_, err = file.Seek(from, io.SeekStart)
	}
	if err != nil {
		return nil, Object{}, errors.Join(err, file.Close())
	}
	if n < 0 {
		n = math.MaxInt64
	}
	return struct {
		io.Reader
		io.Closer
	}{until{ctx, io.LimitReader(file, n)}, file}, Object{Name: name, Bytes: info.Size(), At: info.ModTime()}, nil
}

// until is a reader that stops at the end of a context.
type until struct {
	ctx context.Context
	r   io.Reader
}

func (u until) Read(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(b)
}

// absent converts the error of a path below a file to fs.ErrNotExist.
func absent(err error) error {
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

// Write implements Store.
func (f Folder) Write(ctx context.Context, name string, r io.Reader, size int64) error {
	path, err := f.at(name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return dirlock.WriteFile(path, func(w io.Writer) error {
		n, err := io.Copy(w, until{ctx, r})
		if err == nil && n != size {
			err = fmt.Errorf("%s has %d bytes, not %d", name, n, size)
		}
		return err
	})
}

// Remove implements Store. It also removes empty folders.
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
