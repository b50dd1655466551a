package store

import (
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// compaction is how Pebble names the files that it writes while it merges others.
const compaction vfs.DiskWriteCategory = "pebble-compaction"

// ledger is the system's files with an account of those in one directory: how many
// bytes they have at every moment, those that nobody needs any more and are yet to
// be removed included.
type ledger struct {
	vfs.FS
	dir   string
	limit int64 // 0 for none
	spare int64 // of the limit, not for compactions: what else may still be written

	reads, in, out atomic.Int64

	mu    sync.Mutex
	files map[string]*entry
	bytes int64
	peak  int64
}

// entry is a file of the ledger.
type entry struct {
	size int64
	gone bool
}

// newLedger counts the files that dir has.
func newLedger(fs vfs.FS, dir string) (*ledger, error) {
	l := &ledger{FS: fs, dir: dir, files: map[string]*entry{}}
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		info, err := fs.Stat(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			l.files[name] = &entry{size: info.Size()}
			l.bytes += info.Size()
		}
	}
	l.peak = l.bytes
	return l, nil
}

// used returns how many bytes the files have, and had at most.
func (l *ledger) used() (now, peak int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes, l.peak
}

// name is a path's name in the ledger; not ok where the file lies elsewhere.
func (l *ledger) name(path string) (name string, ok bool) {
	return filepath.Base(path), filepath.Dir(path) == l.dir
}

func (l *ledger) forget(name string) {
	if e := l.files[name]; e != nil {
		l.bytes -= e.size
		e.gone = true
		delete(l.files, name)
	}
}

// Create makes a file. One of a compaction that might exceed the limit is refused:
// Pebble gives the compaction up and tries again later.
func (l *ledger) Create(path string, category vfs.DiskWriteCategory) (vfs.File, error) {
	name, ours := l.name(path)
	if !ours {
		return l.FS.Create(path, category)
	}
	if category == compaction && l.limit > 0 && !l.waitForRoom() {
		return nil, errNoRoom
	}
	f, err := l.FS.Create(path, category)
	if err != nil {
		return f, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(name)
	e := &entry{}
	l.files[name] = e
	return &ledgerFile{f, l, e}, nil
}

// waitForRoom waits a moment for what earlier compactions have left to be removed.
func (l *ledger) waitForRoom() bool {
	for range 50 {
		if now, _ := l.used(); now+l.spare <= l.limit {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

var errNoRoom = errors.New("no room within the store's limit for a compaction")

// Open opens a file whose reads count.
func (l *ledger) Open(path string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := l.FS.Open(path, opts...)
	if _, ours := l.name(path); err != nil || !ours {
		return f, err
	}
	return &ledgerFile{f, l, &entry{gone: true}}, nil
}

// Remove removes a file.
func (l *ledger) Remove(path string) error {
	err := l.FS.Remove(path)
	if name, ours := l.name(path); err == nil && ours {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.forget(name)
	}
	return err
}

// Rename renames a file.
func (l *ledger) Rename(from, to string) error {
	err := l.FS.Rename(from, to)
	old, ours := l.name(from)
	name, still := l.name(to)
	if err == nil && ours && still {
		l.mu.Lock()
		defer l.mu.Unlock()
		e := l.files[old]
		delete(l.files, old)
		l.forget(name)
		if e != nil {
			l.files[name] = e
		}
	}
	return err
}

// ReuseForWrite makes a new file instead of an old one, so that what the account
// says of a file is what has been written to it.
func (l *ledger) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := l.Remove(from); err != nil {
		return nil, err
	}
	return l.Create(to, category)
}

// GetDiskUsage counts what the limit leaves as what the disk has left.
func (l *ledger) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	u, err := l.FS.GetDiskUsage(path)
	if err == nil && l.limit > 0 {
		now, _ := l.used()
		u.AvailBytes = min(u.AvailBytes, uint64(max(l.limit-now, 0)))
	}
	return u, err
}

// ledgerFile is a file whose growth and reads count.
type ledgerFile struct {
	vfs.File
	l *ledger
	e *entry
}

// Write appends to a file.
func (f *ledgerFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	f.l.out.Add(int64(n))
	f.l.mu.Lock()
	if !f.e.gone {
		f.e.size += int64(n)
		f.l.bytes += int64(n)
		f.l.peak = max(f.l.peak, f.l.bytes)
	}
	f.l.mu.Unlock()
	if errors.Is(err, syscall.ENOSPC) {
		time.Sleep(50 * time.Millisecond) // Pebble tries again at once, for as long as it takes
	}
	return n, err
}

// ReadAt reads from a file.
func (f *ledgerFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(b, off)
	f.l.reads.Add(1)
	f.l.in.Add(int64(n))
	return n, err
}

// Preallocate does nothing: room that is taken before it is used would not be in
// the account.
func (f *ledgerFile) Preallocate(int64, int64) error { return nil }
