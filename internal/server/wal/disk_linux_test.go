package wal

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A file size limit, as a quota would be one.
func TestFileSizeLimit(t *testing.T) { runChild(t, child("limit", t.TempDir())) }

func underLimit(dir string) error {
	signal.Ignore(syscall.SIGXFSZ)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	limit := unix.Rlimit{Cur: 50_000, Max: old.Max}
	return fullThenRoom(dir, func() error { return unix.Setrlimit(unix.RLIMIT_FSIZE, &limit) },
		func() error { return unix.Setrlimit(unix.RLIMIT_FSIZE, &old) }, syscall.EFBIG)
}

// A disk of its own that is really full. It needs a mount namespace.
func TestSmallDisk(t *testing.T) {
	c := child("tmpfs", t.TempDir())
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	}
	runChild(t, c)
}

func onSmallDisk(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		return fmt.Errorf("cannot mount a tmpfs: %w", err)
	}
	ballast := filepath.Join(dir, "ballast")
	return fullThenRoom(filepath.Join(dir, "log"),
		func() error { return os.WriteFile(ballast, make([]byte, 128<<10), 0o666) },
		func() error { return os.Remove(ballast) }, syscall.ENOSPC)
}

// fullThenRoom fills a log until the disk is full, opens it again when there is room,
// and looks for every record that was acknowledged.
func fullThenRoom(dir string, fill, room func() error, want error) error {
	l, err := Open(dir, Config{Sync: true})
	if err != nil {
		return err
	}
	if err := fill(); err != nil {
		return err
	}
	safe, err := untilFull(l)
	var w *WriteError
	if safe == 0 || !errors.As(err, &w) || !errors.Is(err, want) || !w.Cut || w.Safe != safe {
		return fmt.Errorf("%d records, then %v", safe, err)
	}
	if again, err := untilFull(l); again != 0 || !errors.Is(err, want) {
		return fmt.Errorf("went on without room: %d records, %v", again, err)
	}
	if err := l.Close(); !errors.As(err, &w) {
		return fmt.Errorf("closed without room: %v", err)
	}
	if err := room(); err != nil {
		return err
	}
	if l, err = Open(dir, Config{Sync: true}); err != nil {
		return err
	}
	for range 20 {
		p, err := l.Append([]byte("after"))
		if err == nil {
			err = l.Wait(p)
		}
		if err != nil {
			return err
		}
	}
	if err := l.Close(); err != nil {
		return err
	}
	if l, err = Open(dir, Config{}); err != nil {
		return err
	}
	n := uint64(0)
	err = l.Replay(1, func(number uint64, r []byte) error {
		n = number
		if number <= safe && len(r) != 5000 || number > safe && string(r) != "after" {
			return fmt.Errorf("record %d has %d bytes", number, len(r))
		}
		return nil
	})
	if err == nil && n != safe+20 {
		err = fmt.Errorf("%d records, want %d and 20", n, safe)
	}
	return errors.Join(err, l.Close())
}

// diskChildren are what the binary is besides for the tests of this file.
func diskChildren() map[string]func(dir string) error {
	return map[string]func(dir string) error{"limit": underLimit, "tmpfs": onSmallDisk}
}
