package clicks

import (
	"os"

	"golang.org/x/sys/unix"
)

// readAhead asks the system to load a part of a file into memory. It is a hint: an error shows when
// the part is read.
func readAhead(f *os.File, at, n int64) {
	_ = unix.Fadvise(int(f.Fd()), at, n, unix.FADV_WILLNEED)
}
