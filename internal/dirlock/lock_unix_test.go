//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirlock

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A process that is between fork and exec has its parent's files.
func TestReleasedBesideAFork(t *testing.T) {
	dir := t.TempDir()
	l, err := Take(dir)
	if err != nil {
		t.Fatal(err)
	}
	child, err := unix.Dup(int(l.f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(child)
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	again, err := Take(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Release(); err != nil {
		t.Error(err)
	}
}
