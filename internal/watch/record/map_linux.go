package record

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Create makes memory for a Recorder of another process, which gets it as a file; whoever holds the file can read what
// was recorded, whatever becomes of the process. It cannot grow or shrink. Errors: an invalid configuration, or no memory.
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

// InFile makes a Recorder in a file at path, for processes whose memory no launcher holds. It
// replaces an older file. Only its owner can read the file, which stays until it is removed. A
// shared lock (flock) marks it as in use until Close or the end of the process. Errors: the file
// cannot be made, or the disk is full.
func InFile(path string, cfg Config) (*Recorder, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.filled()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // nobody may have it open, or have linked it elsewhere
		return nil, fmt.Errorf("record: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	// A file system without locks has no such mark.
	_ = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	// Without room that is set aside a full disk would end the process with SIGBUS.
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

// describe writes the head of empty memory. cfg is filled.
func describe(f *os.File, cfg Config) error {
	m := newMemory(cfg, make([]uint64, cfg.words()))
	_, err := f.WriteAt(unsafe.Slice((*byte)(unsafe.Pointer(&m.head[0])), 8*headWords), 0)
	return err
}

// ErrHeld: another Recorder of this process records in the memory.
var ErrHeld = errors.New("record: another recorder of this process has this memory")

// Map makes a Recorder in the memory that Create has made, in whichever process. What another has recorded in it is
// forgotten. The file may be closed afterwards. Errors: it is another kind of file, one that can shrink under this process, or ErrHeld.
func Map(f *os.File) (*Recorder, error) {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return nil, fmt.Errorf("record: %s is not memory for a recorder", f.Name())
	}
	return mapped(f)
}

// mapped makes a Recorder in memory that describe has described.
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
	if words[headMagic] != 0 { // of an earlier recorder; fresh memory is zero, and takes none of the system's until it is written to
		clear(words[:headHeld])
		clear(words[headHeld+1:])
	}
	r := start(newMemory(cfg, words), cfg)
	r.unmap = func() error { return unix.Munmap(b) }
	return r, nil
}

// hold notes that this process records in the memory, unless it does already. Another process that did is no more: it was started again.
func hold(word *uint64) bool {
	own := uint64(os.Getpid())
	was := atomic.LoadUint64(word)
	return was != own && atomic.CompareAndSwapUint64(word, was, own)
}

// sizeOf is the size of a file that may be a Recorder's memory.
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

// Read is what a Recorder in the memory of f held, see Decode, or holds: its process may go on recording. It takes tens of
// milliseconds: see RecentSnapshot for who looks often.
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
