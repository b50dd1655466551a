package metrics

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapped is a memory-mapped file of a Dir.
type mapped struct {
	file  *os.File
	words []uint64
}

// claim opens and locks a file of the given number of words, unless another process holds the file.
func (b *Dir) claim(name string, words int) (*mapped, error) {
	f, err := os.OpenFile(filepath.Join(b.path, name), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = errHeld
	for range tries { // a reader may briefly hold the lock
		if err = flock(f, unix.LOCK_EX); !errors.Is(err, errHeld) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err == nil {
		// Write errors appear here on a full disk. The file never shrinks: its last holder may
		// still count.
		if _, err = f.WriteAt(make([]byte, 8*words), 0); err == nil {
			err = f.Truncate(int64(8 * words))
		}
	}
	if err == nil {
		var m *mapped
		if m, err = mapFile(f, words); err == nil {
			return m, nil
		}
	}
	return nil, errors.Join(err, f.Close())
}

// tries is the number of attempts for a lock that a reader may hold for some microseconds.
const tries = 10

// flock locks without waiting, and returns errHeld for a held lock.
func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return errHeld
		default:
			return err
		}
	}
}

func mapFile(f *os.File, words int) (*mapped, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, 8*words, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &mapped{file: f, words: unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), words)}, nil
}

// look copies a file, because files may shrink, and reports whether a process holds the file.
func look(path string) (m *mapped, alive bool, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	switch err := flock(f, unix.LOCK_SH); {
	case errors.Is(err, errHeld):
		alive = true
	case err != nil:
		return nil, false, err
	}
	_, most := layout(OfRank, maxRanks)
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > int64(8*most) {
		return nil, false, errors.Join(err, errors.New("not a file of figures"))
	}
	words := make([]uint64, info.Size()/8)
	if len(words) > 0 {
		_, err = f.ReadAt(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words)), 0)
	}
	return &mapped{words: words}, alive, err
}

// release releases the lock. The memory stays mapped: another goroutine may still count.
func (m *mapped) release() error {
	if m.file == nil {
		return nil
	}
	return errors.Join(flock(m.file, unix.LOCK_UN), m.file.Close())
}
