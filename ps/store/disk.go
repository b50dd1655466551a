package store

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringo-ml/ringo/internal/folder"
)

// Disk is a store in a directory, held by Pebble. Compactions run beside the
// calls, one at a time. Once damage has been found it takes no more rows. Where its
// list of files cannot be written, which little but a failing disk makes happen, it
// panics: Pebble cannot go on then.
type Disk struct {
	dir    string
	c      Config
	lock   *folder.Lock
	ledger *ledger
	db     *pebble.DB
	write  *pebble.WriteOptions
	read   *pebble.IterOptions

	closed     atomic.Bool
	damage     atomic.Pointer[DamageError] // the first found beside the calls
	background atomic.Pointer[error]       // why the last flush failed
	merging    atomic.Pointer[error]       // why the last compaction failed
	writing    atomic.Int64                // bytes of writes under way
	patience   time.Duration               // see stall.go

	sizes

	gets, found, puts, deletes, bytesGot, bytesPut atomic.Int64
}

var _ Store = (*Disk)(nil)

// rowsFolder holds Pebble's files.
const rowsFolder = "rows"

// Open opens the store in a directory, which it makes where there is none, and
// takes it ([ErrHeld] where another process has it). A directory that holds
// something else is refused. Damage that shows at once gives a *[DamageError], a
// format that this program does not know [ErrVersion].
//
// A full disk is an error of what is written, but for Pebble's manifest: where not even
// that finds room it ends the process, and rows that were not in files are lost. The
// limit is to be well below what the disk has, and others are not to fill it.
func Open(dir string, c Config) (*Disk, error) {
	fail := func(err error) (*Disk, error) { return nil, fmt.Errorf("store: opening %s: %w", dir, err) }
	if err := c.Validate(); err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fail(err)
	}
	lock, err := folder.Take(dir)
	if err != nil {
		return fail(err)
	}
	d := &Disk{dir: dir, c: c, lock: lock, write: pebble.NoSync, patience: mergePatience}
	if c.Log {
		d.write = pebble.Sync
	}
	d.read = &pebble.IterOptions{UseL6Filters: true} // most keys of a batch may be new ones
	if err := d.start(); err != nil {
		return fail(errors.Join(err, lock.Release()))
	}
	return d, nil
}

// start opens Pebble and reads how large the tables are.
func (d *Disk) start() (err error) {
	rows := filepath.Join(d.dir, rowsFolder)
	if err := checkFormat(d.dir); err != nil {
		return err
	}
	if err := checkList(d.dir); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(d.dir, listFile)), os.MkdirAll(rows, 0o777)); err != nil {
		return err
	}
	if d.ledger, err = newLedger(vfs.Default, rows); err != nil {
		return err
	}
	if d.c.LimitBytes > 0 {
		d.ledger.limit = d.c.LimitBytes
		d.ledger.spare = d.c.flushBytes() + 2*d.c.tableBytes()
	}
	events := &pebble.EventListener{
		DataCorruption:  func(i pebble.DataCorruptionInfo) { d.damaged(i.Path, i.Details) },
		BackgroundError: d.failed,
		FlushEnd:        func(i pebble.FlushInfo) { d.flushed(i.Err) },
		CompactionEnd:   func(i pebble.CompactionInfo) { d.merged(i.Err) },
	}
	if d.db, err = pebble.Open(rows, d.c.options(d.ledger, events)); err != nil {
		if strings.Contains(err.Error(), "format major version") {
			return fmt.Errorf("%w (%w)", err, ErrVersion)
		}
		return d.known(err)
	}
	if err := d.readSizes(); err != nil {
		return errors.Join(d.known(err), d.db.Close())
	}
	return nil
}

func (d *Disk) damaged(path string, err error) {
	d.damage.CompareAndSwap(nil, &DamageError{path, err})
}

// failed looks for damage in an error of what runs beside the calls. A compaction
// that failed otherwise is tried again, and does not matter to a call.
func (d *Disk) failed(err error) {
	var damage *DamageError
	if errors.As(d.known(err), &damage) {
		d.damaged(damage.Path, damage.Err)
	}
}

// flushed keeps why rows cannot be written to files, until they can. That there were
// none to write is an error for Pebble, and one of its own.
func (d *Disk) flushed(err error) {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		d.background.Store(&err)
	} else {
		d.background.Store(nil)
	}
}

// merged keeps why files cannot be merged, until they can.
func (d *Disk) merged(err error) {
	if err != nil {
		d.merging.Store(&err)
	} else {
		d.merging.Store(nil)
	}
}

// known turns Pebble's errors into those of this package.
func (d *Disk) known(err error) error {
	if err == nil || !pebble.IsCorruptionError(err) {
		return err
	}
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
		return &DamageError{info.Path, err}
	}
	return &DamageError{d.dir, err}
}

func (d *Disk) readSizes() error {
	it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: []byte{sizePrefix}, UpperBound: []byte{rowPrefix}})
	if err != nil {
		return err
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var value []byte
		var s TableSize
		if value, err = it.ValueAndErr(); err == nil {
			s, err = decodeSize(value)
		}
		if k := it.Key(); err == nil && len(k) == 5 {
			d.add(uint32(k[1])<<24|uint32(k[2])<<16|uint32(k[3])<<8|uint32(k[4]), s)
		}
	}
	return errors.Join(err, it.Error(), it.Close())
}

// Size is Store's.
func (d *Disk) Size() Size {
	now, peak := d.ledger.used()
	s := Size{TableSize: d.all(), Disk: now, Peak: peak, Limit: d.c.LimitBytes, Room: math.MaxInt64}
	s.Owed = max(s.Disk-s.Bytes, 0)
	if s.Limit > 0 {
		s.Room = max(s.Limit-now-d.c.reserve(), 0)
	}
	return s
}

// Stats is Store's.
func (d *Disk) Stats() Stats {
	s := Stats{
		Gets: d.gets.Load(), Found: d.found.Load(), Puts: d.puts.Load(), Deletes: d.deletes.Load(),
		BytesGot: d.bytesGot.Load(), BytesPut: d.bytesPut.Load(),
		FileReads: d.ledger.reads.Load(), FileBytesIn: d.ledger.in.Load(), FileBytesOut: d.ledger.out.Load(),
	}
	if !d.closed.Load() {
		m := d.db.Metrics()
		s.CacheHits, s.CacheMisses, s.CacheBytes = m.BlockCache.Hits, m.BlockCache.Misses, m.BlockCache.Size
		s.Compactions = m.Compact.Count
	}
	return s
}

// Close is Store's. Rows that were put are in files when it returns.
func (d *Disk) Close() error {
	if d.closed.Swap(true) {
		return ErrClosed
	}
	err := errors.Join(d.flush(), d.db.Close())
	if err == nil {
		err = writeList(d.dir)
	}
	if err = errors.Join(err, d.lock.Release()); err != nil {
		return fmt.Errorf("store: closing %s: %w", d.dir, err)
	}
	return nil
}

// flush brings all rows into files. Where the disk is full it does not wait for
// room, as Pebble does.
func (d *Disk) flush() error {
	done, err := d.db.AsyncFlush()
	if err != nil {
		return d.known(err)
	}
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-look.C:
			if err := d.background.Load(); err != nil {
				return *err
			}
		}
	}
}
