package store

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// readNow reads what the system has in memory, at most; wait says that it has none of it.
func readNow(fd int, b [][]byte, from int64) (n int, wait bool, err error) {
	n, err = unix.Preadv2(fd, b, from, unix.RWF_NOWAIT)
	if errors.Is(err, unix.EAGAIN) {
		return 0, true, nil
	}
	return max(n, 0), false, err
}

// ask has the system read a part of a file, and does not wait for it.
func ask(fd int, from, n int64) { _ = unix.Fadvise(fd, from, n, unix.FADV_WILLNEED) }

// atRandom tells the system that a file is read here and there: it is not to read ahead.
func atRandom(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM) }
