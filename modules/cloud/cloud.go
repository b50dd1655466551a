// Package cloud provides buckets as stores of package remote: S3, compatible services, and Azure,
// through gocloud.dev/blob. It is a separate module, because the clients are half the size of
// ringo, and every program that uses ringo would otherwise depend on their modules.
package cloud

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"strings"
	"time"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // azblob://
	_ "gocloud.dev/blob/s3blob"    // s3://

	"github.com/ringo-ml/ringo/internal/remote/store"
)

// Bucket is the objects of a bucket below a prefix.
type Bucket struct {
	url    string
	bucket *blob.Bucket
}

// Open opens the bucket of a URL, SCHEME://BUCKET/PREFIX?PARAMETERS, with the parameters and
// credentials of gocloud.dev/blob for the scheme.
func Open(ctx context.Context, u *url.URL) (store.Store, error) {
	at := *u
	at.Path = ""
	shown := strings.TrimRight(u.Scheme+"://"+u.Host+u.Path, "/")
	b, err := blob.OpenBucket(ctx, at.String())
	if err != nil {
		return nil, unopened(u.Scheme, shown, err)
	}
	if prefix := strings.Trim(u.Path, "/"); prefix != "" {
		b = blob.PrefixedBucket(b, prefix+"/")
	}
	return &Bucket{url: shown, bucket: b}, nil
}

// String implements Store.
func (b *Bucket) String() string { return b.url }

// Close implements Store.
func (b *Bucket) Close() error { return b.bucket.Close() }

// perPage is the number of objects in a page of a list, pageTime the maximum wait for a page.
const (
	perPage  = 1000
	pageTime = time.Minute
)

// List implements Store.
func (b *Bucket) List(ctx context.Context) (out []store.Object, err error) {
	for token := blob.FirstPageToken; token != nil; {
		var page []*blob.ListObject
		bounded, cancel := context.WithTimeout(ctx, pageTime)
		page, token, err = b.bucket.ListPage(bounded, token, perPage, nil)
		cancel()
		if err != nil {
			return nil, known(err)
		}
		for _, o := range page {
			out = append(out, store.Object{Name: o.Key, Bytes: o.Size, At: o.ModTime})
		}
	}
	return out, nil
}

// Stat implements Store.
func (b *Bucket) Stat(ctx context.Context, name string) (store.Object, error) {
	if err := valid(name); err != nil {
		return store.Object{}, err
	}
	a, err := b.bucket.Attributes(ctx, name)
	if err != nil {
		return store.Object{}, known(err)
	}
	return store.Object{Name: name, Bytes: a.Size, At: a.ModTime}, nil
}

// Read implements Store.
func (b *Bucket) Read(ctx context.Context, name string, from, n int64) (io.ReadCloser, store.Object, error) {
	if err := valid(name); err != nil {
		return nil, store.Object{}, err
	}
	r, err := b.bucket.NewRangeReader(ctx, name, from, n, nil)
	if err != nil {
		return nil, store.Object{}, known(err)
	}
	return r, store.Object{Name: name, Bytes: r.Size(), At: r.ModTime()}, nil
}

// Write implements Store. An object of several parts appears after the upload of the last part.
func (b *Bucket) Write(ctx context.Context, name string, r io.Reader, size int64) error {
	if err := valid(name); err != nil {
		return err
	}
	in := &exactly{r: r, name: name, size: size}
	// Not a blob.Writer: azureblob's panics at Close where the upload has failed (v0.47.0).
	err := b.bucket.Upload(ctx, name, in, &blob.WriterOptions{ContentType: "application/octet-stream"})
	if in.fault != nil { // the client may have rephrased the error
		return in.fault
	}
	return known(err)
}

// exactly reads size bytes, and fails if r ends earlier or later, which prevents the write. It
// hides other methods of r from clients.
type exactly struct {
	r     io.Reader
	name  string
	size  int64
	done  int64
	fault error
}

func (e *exactly) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	e.done += int64(n)
	if e.done > e.size || err == io.EOF && e.done < e.size {
		err = fmt.Errorf("%s has %d bytes, not %d", e.name, e.done, e.size)
	}
	if err != nil && err != io.EOF {
		e.fault = err
	}
	return n, err
}

// Remove implements Store.
func (b *Bucket) Remove(ctx context.Context, name string) error {
	if err := valid(name); err != nil {
		return err
	}
	if err := known(b.bucket.Delete(ctx, name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func valid(name string) error {
	if !fs.ValidPath(name) || name == "." {
		return &store.RefusedError{Err: fmt.Errorf("%q is no name of an object", name)}
	}
	return nil
}
