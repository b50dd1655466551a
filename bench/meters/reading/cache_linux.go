package reading

import (
	"os"

	"golang.org/x/sys/unix"
)

// canDropCache says whether dropCache does anything.
const canDropCache = true

// dropCache makes the system forget the pages that it keeps of a file. Those not
// written yet are written first, for only clean ones are dropped.
func dropCache(f *os.File) error {
	if err := f.Sync(); err != nil {
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}
