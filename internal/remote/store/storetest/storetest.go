// Package storetest is the test suite for stores.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/ringo-ml/ringo/internal/remote/store"
)

// Run runs the suite on an empty store.
func Run(t *testing.T, s store.Store) {
	ctx := t.Context()
	wants := func(names ...string) {
		t.Helper()
		all, err := s.List(ctx)
		var got []string
		for _, o := range all {
			if got = append(got, o.Name); o.At.IsZero() {
				t.Errorf("%s has no time", o.Name)
			}
		}
		if slices.Sort(got); err != nil || !slices.Equal(got, names) {
			t.Fatalf("it lists %q, %v, want %q", got, err, names)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := s.Write(ctx, name, strings.NewReader(text), int64(len(text))); err != nil {
			t.Fatal(err)
		}
	}
	wants()
	write("a/b/c", "first")
	write("a/b/c", "hello, world")
	write("empty", "")
	wants("a/b/c", "empty")
	read := func(name string, from, n int64) (string, error) { return read(t, s, name, from, n) }
	for _, c := range []struct {
		from, n int64
		want    string
	}{{0, -1, "hello, world"}, {7, -1, "world"}, {1, 4, "ello"}, {0, 100, "hello, world"}} {
		if got, err := read("a/b/c", c.from, c.n); err != nil || got != c.want {
			t.Errorf("%d bytes from %d on are %q, %v, want %q", c.n, c.from, got, err, c.want)
		}
	}
	if o, err := s.Stat(ctx, "a/b/c"); err != nil || o.Bytes != 12 || o.Name != "a/b/c" {
		t.Errorf("%+v, %v", o, err)
	}
	if got, err := read("empty", 0, -1); err != nil || got != "" {
		t.Errorf("%q, %v", got, err)
	}
	large := make([]byte, 12<<20+5)                 // several parts
	_, _ = rand.NewChaCha8([32]byte{1}).Read(large) // never fails
	write("large", string(large))
	if got, err := read("large", 0, -1); err != nil || !bytes.Equal([]byte(got), large) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	failures(t, s, large)
	wants("a/b/c", "empty", "large")
	for range 2 { // a missing object is no error
		if err := errors.Join(s.Remove(ctx, "a/b/c"), s.Remove(ctx, "large")); err != nil {
			t.Error(err)
		}
	}
	wants("empty")
	atOnce(t, s)
}

// read reads bytes of an object, and checks the returned Object.
func read(t *testing.T, s store.Store, name string, from, n int64) (string, error) {
	r, o, err := s.Read(t.Context(), name, from, n)
	if err != nil {
		return "", err
	}
	if was, err := s.Stat(t.Context(), name); err != nil || o.Name != name || o.Bytes != was.Bytes || !o.At.Truncate(time.Second).Equal(was.At.Truncate(time.Second)) {
		t.Errorf("%+v is read of %+v, %v", o, was, err)
	}
	text, err := io.ReadAll(r)
	return string(text), errors.Join(err, r.Close())
}

// failures tests errors, which must not change the store.
func failures(t *testing.T, s store.Store, large []byte) {
	for _, none := range []string{"none", "a", "a/b/c/d"} {
		_, _, read := s.Read(t.Context(), none, 0, -1)
		if _, err := s.Stat(t.Context(), none); !errors.Is(err, fs.ErrNotExist) || !errors.Is(read, fs.ErrNotExist) && none != "a" {
			t.Errorf("%s: %v, %v", none, err, read)
		}
	}
	fault := errors.New("torn")
	for _, n := range []int{0, 100, len(large)} { // ends early, perhaps after several parts
		torn := io.MultiReader(bytes.NewReader(large[:n]), iotest.ErrReader(fault))
		if err := s.Write(t.Context(), "torn", torn, int64(len(large))+1); !errors.Is(err, fault) {
			t.Errorf("torn after %d bytes: %v", n, err)
		}
		if err := s.Write(t.Context(), "short", bytes.NewReader(large[:n]), int64(len(large))+1); err == nil {
			t.Errorf("%d bytes of %d were taken for all", n, len(large)+1)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Write(ended, "ended", bytes.NewReader(large), int64(len(large))); err == nil {
		t.Error("written after its context's end")
	}
	for _, bad := range []string{"", "..", "../x", "/x", "a//b", "a/"} {
		var refused *store.RefusedError
		if err := s.Write(t.Context(), bad, strings.NewReader(""), 0); !errors.As(err, &refused) {
			t.Errorf("%q was taken: %v", bad, err)
		}
	}
}

// atOnce tests concurrent writers of an object: a reader gets the whole object of some writer.
func atOnce(t *testing.T, s store.Store) {
	var wait sync.WaitGroup
	for i := range 4 {
		text := strings.Repeat(fmt.Sprint(i), 100_000)
		wait.Go(func() {
			for range 3 {
				if err := s.Write(t.Context(), "one", strings.NewReader(text), int64(len(text))); err != nil {
					t.Error(err)
				}
				r, _, err := s.Read(t.Context(), "one", 0, -1)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(r)
				if err = errors.Join(err, r.Close()); err != nil || len(got) != len(text) || strings.Trim(string(got), string(got[:1])) != "" {
					t.Errorf("%d bytes, %v: not one writer's", len(got), err)
				}
			}
		})
	}
	wait.Wait()
}
