//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirlock

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// lock locks the open file, not the process, so that two callers in a process exclude each other.
func lock(f *os.File) error { return flock(f, unix.LOCK_EX) }

// share takes a shared lock, which only excludes lock.
func share(f *os.File) error { return flock(f, unix.LOCK_SH) }

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrHeld
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOLCK):
			return fmt.Errorf("%w: %w", ErrNoLocks, err)
		default:
			return err
		}
	}
}

// alive reports whether a process of this host exists.
func alive(pid int) bool { return !errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

// ours reports whether this user owns a file.
func ours(info os.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Getuid()
}
