package remotepath

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/remote"
	"github.com/ringo-ml/ringo/internal/remote/store"
)

// longestWait limits the wait for another process of this host that downloads the same data.
const longestWait = time.Hour

// Data downloads the file or folder at a URL to this host, and returns the local path. The data
// stay for later jobs, which download only new or changed files. Processes of a host download once.
// report gets a line about downloads. file:// URLs are read in place.
func Data(ctx context.Context, url string, report func(line string)) (string, error) {
	if path, err := localPath(ctx, url); path != "" || err != nil {
		return path, err
	}
	at, err := rendezvous.Private(fmt.Sprintf("data-%x", sha256.Sum256([]byte(url)))[:21])
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(at, 0o700); err != nil {
		return "", err
	}
	lock, err := take(ctx, at)
	if err != nil {
		return "", fmt.Errorf("bringing %s to this host: %w", remote.Shown(url), err)
	}
	_, name := remote.Split(url)
	if name == "" {
		name = "all"
	}
	path := filepath.Join(at, name)
	came, err := remote.Download(ctx, url, path, remote.Patience{})
	if lock != nil {
		err = errors.Join(err, lock.Release())
	}
	if came > 0 && err == nil {
		report(fmt.Sprintf("%s: %s came to %s", remote.Shown(url), quantity.Traffic(float64(came)), path))
	}
	return path, err
}

// localPath returns the path of a file: URL, or "" for another scheme.
func localPath(ctx context.Context, url string) (string, error) {
	if !strings.HasPrefix(url, "file:") {
		return "", nil
	}
	s, err := remote.Open(ctx, url)
	if err != nil {
		return "", err
	}
	f, _ := s.(store.Folder)
	return string(f), s.Close()
}

// take locks a folder, and waits for a held lock.
func take(ctx context.Context, dir string) (*dirlock.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	for {
		lock, err := dirlock.Take(dir)
		switch {
		case errors.Is(err, dirlock.ErrNoLocks):
			return nil, nil // each file still appears atomically
		case !errors.Is(err, dirlock.ErrHeld):
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
