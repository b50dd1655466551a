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

// longestWait is how long a process waits for another one of its host that brings the same.
const longestWait = time.Hour

// Data brings what a URL names, a file or a folder, to this host, and returns its path. It stays there for later jobs, which bring what is
// new or other alone; processes of one host bring it once. report is told what has come. What file:// names is read where it is.
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

// localPath is the path of what a URL of scheme file names; "": it is of another scheme.
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

// take locks a folder, and waits for who has it.
func take(ctx context.Context, dir string) (*dirlock.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	for {
		lock, err := dirlock.Take(dir)
		switch {
		case errors.Is(err, dirlock.ErrNoLocks):
			return nil, nil // each file appears whole all the same
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
