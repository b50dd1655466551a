package record

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Create creates memory for another process's Recorder, as a file of fixed size. A holder of the
// file can read the record, even after that process's death. Errors: invalid cfg, or no memory.
func Create(cfg Config) (*os.File, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.filled()
	fd, err := unix.MemfdCreate("ringo-record", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("record: making memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "ringo-record")
	err = unix.Ftruncate(fd, int64(cfg.Bytes()))
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		err = describe(f, cfg)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("record: making memory of %d bytes: %w", cfg.Bytes(), err)
	}
	return f, nil
}

// InFile creates a Recorder in a file at path, for processes without a launcher that holds their
// memory. InFile replaces an older file. Only the owner can read the file, which stays until it is
// removed. A shared lock (flock) marks the file as in use until Close or the end of the process.
// Errors: the file cannot be created, or the disk is full.
func InFile(path string, cfg Config) (*Recorder, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.filled()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // another process may have the old file open or linked
		return nil, fmt.Errorf("record: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	// The lock marks the file as in use. A file system without locks has no such mark.
	_ = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	// Without allocated space a full disk would end the process with SIGBUS.
	err = unix.Fallocate(int(f.Fd()), 0, 0, int64(cfg.Bytes()))
	r := (*Recorder)(nil)
	if err == nil {
		if err = describe(f, cfg); err == nil {
			r, err = mapped(f)
		}
	}
	if err != nil {
		_, _ = os.Remove(path), f.Close()
		return nil, fmt.Errorf("record: making %s: %w", path, err)
	}
	unmap := r.unmap
	r.file, r.unmap = path, func() error { return errors.Join(unmap(), f.Close()) }
	return r, nil
}

// describe writes the head of empty memory. cfg is complete.
func describe(f *os.File, cfg Config) error {
	m := newMemory(cfg, make([]uint64, cfg.words()))
	_, err := f.WriteAt(unsafe.Slice((*byte)(unsafe.Pointer(&m.head[0])), 8*headWords), 0)
	return err
}

// ErrHeld means that another Recorder of this process uses the memory.
var ErrHeld = errors.New("record: another recorder of this process has this memory")

// Map creates a Recorder in memory from Create, in any process, dropping earlier records. The file
// may be closed afterwards. Errors: another kind of file, a shrinkable file, or ErrHeld.
func Map(f *os.File) (*Recorder, error) {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return nil, fmt.Errorf("record: %s is not memory for a recorder", f.Name())
	}
	return mapped(f)
}

// mapped creates a Recorder in memory prepared by describe.
func mapped(f *os.File) (*Recorder, error) {
	size, err := sizeOf(f)
	if err != nil {
		return nil, err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("record: mapping %s: %w", f.Name(), err)
	}
	words := unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), size/8)
	cfg, err := configOf(words)
	if err == nil && (words[headVersion] != version || cfg.Bytes() != size) {
		err = errors.New("record: this memory is not laid out for this program's recorder")
	}
	if err == nil && !hold(&words[headHeld]) {
		err = ErrHeld
	}
	if err != nil {
		_ = unix.Munmap(b)
		return nil, err
	}
	if words[headMagic] != 0 { // left by an earlier recorder; fresh memory is zero, and occupies no memory until written
		clear(words[:headHeld])
		clear(words[headHeld+1:])
	}
	r := start(newMemory(cfg, words), cfg)
	r.unmap = func() error { return unix.Munmap(b) }
	return r, nil
}

// hold marks the memory as used by this process, and returns false if it already was. A mark of
// another process is overwritten, because that process has ended.
func hold(word *uint64) bool {
	own := uint64(os.Getpid())
	was := atomic.LoadUint64(word)
	return was != own && atomic.CompareAndSwapUint64(word, was, own)
}

// sizeOf returns the size of a file with possible Recorder memory.
func sizeOf(f *os.File) (int, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("record: %w", err)
	}
	if n := info.Size(); n < 8*headWords || n > maxBytes {
		return 0, fmt.Errorf("record: %s has %d bytes: want %d to %d", f.Name(), n, 8*headWords, maxBytes)
	}
	return int(info.Size()), nil
}

// Read returns the contents of the Recorder in the memory of f: see Decode. The process may
// continue recording. Read takes tens of milliseconds: use RecentSnapshot for polling.
func Read(f *os.File) (*Snapshot, error) {
	size, err := sizeOf(f)
	if err != nil {
		return nil, err
	}
	b, again := make([]byte, size), make([]byte, size)
	for _, into := range [][]byte{b, again} {
		if _, err := f.ReadAt(into, 0); err != nil {
			return nil, fmt.Errorf("record: reading %s: %w", f.Name(), err)
		}
	}
	return decodeLive(b, again)
}
