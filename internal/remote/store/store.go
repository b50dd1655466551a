// Package store defines a store of objects, such as a bucket of a cloud, and implements it for
// folders. Buckets are in module modules/cloud.
package store

import (
	"context"
	"io"
	"time"
)

// Store is a set of named objects, such as start-1/server-0/JOB: names satisfy fs.ValidPath. Its
// methods are safe for concurrent use.
//
// The error of a missing object is fs.ErrNotExist, that of a permanent failure a *[RefusedError]; a
// retry may avoid other errors.
type Store interface {
	// List returns all objects, in no order.
	List(ctx context.Context) ([]Object, error)
	// Stat returns an object.
	Stat(ctx context.Context, name string) (Object, error)
	// Read returns n bytes of an object from an offset, all if negative, and the Object, which may
	// differ from the listed version.
	Read(ctx context.Context, name string, from, n int64) (io.ReadCloser, Object, error)
	// Write creates or replaces an object with the size bytes of r, atomically.
	Write(ctx context.Context, name string, r io.Reader, size int64) error
	// Remove removes an object. A missing object is no error.
	Remove(ctx context.Context, name string) error
	// Close ends the store's connections.
	Close() error
	// String returns the store's URL, without client-specific parameters.
	String() string
}

// Object describes an object of a store.
type Object struct {
	Name  string
	Bytes int64
	At    time.Time // time of the write; Stat and Read may round it to seconds
}

// RefusedError is an error that a retry would repeat, such as a missing or read-only bucket.
type RefusedError struct{ Err error }

// Error returns the wrapped error's text.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *RefusedError) Unwrap() error { return e.Err }
