// Package store is what a store of objects is, such as a bucket of a cloud, and a folder as one. Buckets are in module remote/cloud.
package store

import (
	"context"
	"io"
	"time"
)

// Store is a place of objects with names, such as start-1/server-0/JOB: what fs.ValidPath takes. Its methods may be called by several
// goroutines.
//
// Where an object is not there the error is fs.ErrNotExist; one that trying again cannot mend is a *[RefusedError]; others may be gone
// with the next try.
type Store interface {
	// List returns all objects, in no certain order.
	List(ctx context.Context) ([]Object, error)
	// Stat finds one object.
	Stat(ctx context.Context, name string) (Object, error)
	// Read returns an object's bytes from an offset on, n of them, negative: all that follow, and of which object they are: it may be
	// another one than was listed.
	Read(ctx context.Context, name string, from, n int64) (io.ReadCloser, Object, error)
	// Write makes an object of the size bytes that r has, in place of one of that name. It appears whole or not at all.
	Write(ctx context.Context, name string, r io.Reader, size int64) error
	// Remove removes an object. That it is not there is no error.
	Remove(ctx context.Context, name string) error
	// Close ends the store's connections.
	Close() error
	// String is the store's URL, without what is for its client alone.
	String() string
}

// Object is one of a store's.
type Object struct {
	Name  string
	Bytes int64
	At    time.Time // when it was written; lists may know it more exactly than Stat and Read, which know the second
}

// RefusedError is a fault that another try would meet again, such as a bucket that is not there or may not be written.
type RefusedError struct{ Err error }

// Error is the fault's.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap is the fault.
func (e *RefusedError) Unwrap() error { return e.Err }
