package store

import (
	"os"

	"golang.org/x/sys/unix"
)

// atRandom tells the system that a file is read here and there: it is not to read ahead.
func atRandom(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM) }
