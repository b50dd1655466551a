package store

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// readNow reads data from the page cache without blocking; wait reports that none is there.
func readNow(fd int, b [][]byte, from int64) (n int, wait bool, err error) {
	n, err = unix.Preadv2(fd, b, from, unix.RWF_NOWAIT)
	if errors.Is(err, unix.EAGAIN) {
		return 0, true, nil
	}
	return max(n, 0), false, err
}

// ask starts a read of a part of a file without waiting.
func ask(fd int, from, n int64) { _ = unix.Fadvise(fd, from, n, unix.FADV_WILLNEED) }

// atRandom disables read-ahead for a file.
func atRandom(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM) }
