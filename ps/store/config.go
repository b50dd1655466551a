package store

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
)

const (
	// DefaultCacheBytes is the default of Config.CacheBytes.
	DefaultCacheBytes = 64 << 20
	// MinLimitBytes is the least limit that a store can keep.
	MinLimitBytes = 16 << 20
)

// Config says how a [Disk] is kept.
type Config struct {
	// CacheBytes is the size of the block cache, which also holds the filters,
	// 1.25 bytes a row; 0 is DefaultCacheBytes. Beside it a store has up to four
	// buffers of rows not yet in files: 1/256 of LimitBytes each, 64 KiB to
	// 16 MiB.
	CacheBytes int64
	// LimitBytes is what the files never exceed; 0 is no limit. Put keeps a part
	// of it free, for buffers and merging: 3/32, and of large limits 2.6 GiB; with
	// Log 1/64 more. Without a limit it leaves as much of the disk.
	// Checkpoints do not count, but hold on to what the store has let go of.
	LimitBytes int64
	// Log has the store keep a log of its own, and Put and Delete wait until they
	// survive a loss of power: a sync for each, or for some at once. Without it
	// writes since the last Checkpoint may be lost, the last ones first, and a
	// log of the caller's must cover them.
	Log bool
}

// Validate reports all faults together.
func (c Config) Validate() error {
	var errs []error
	if c.CacheBytes < 0 {
		errs = append(errs, fmt.Errorf("cache of %d bytes: want 0 (%d) or more", c.CacheBytes, DefaultCacheBytes))
	}
	if c.LimitBytes < 0 || c.LimitBytes > 0 && c.LimitBytes < MinLimitBytes {
		errs = append(errs, fmt.Errorf("limit of %d bytes: want 0 (none), or %d or more", c.LimitBytes, MinLimitBytes))
	}
	return errors.Join(errs...)
}

// How much is written at most before anything is let go of.
const (
	buffers      = 4  // full of rows not yet in files
	mergedTables = 40 // written by one compaction before the old ones go
)

// bufferBytes is the size of a buffer of rows not yet in files, and tableBytes
// that of a file.
func (c Config) bufferBytes() int64 { return c.share(256, 16<<20) }
func (c Config) tableBytes() int64  { return c.share(512, 64<<20) }

func (c Config) share(part, most int64) int64 {
	if c.LimitBytes == 0 {
		return most
	}
	return min(c.LimitBytes/part, most)
}

// flushBytes is what buffers may still add to files, and a log of them.
func (c Config) flushBytes() int64 {
	n := buffers * c.bufferBytes()
	if c.Log {
		n *= 2
	}
	return n
}

// reserve is what Put leaves free.
func (c Config) reserve() int64 { return c.flushBytes() + mergedTables*c.tableBytes() }

// options are Pebble's.
func (c Config) options(l *ledger, events *pebble.EventListener) *pebble.Options {
	cache := c.CacheBytes
	if cache == 0 {
		cache = DefaultCacheBytes
	}
	o := &pebble.Options{
		FS:                          l,
		Logger:                      silent{},
		EventListener:               events,
		Merger:                      counts,
		FormatMajorVersion:          pebble.FormatTableFormatV6, // with checksums of whole blocks; stated, lest a new Pebble changes it
		CacheSize:                   cache + 2*c.bufferBytes(),  // Pebble takes buffers from it, two as a rule
		DisableWAL:                  !c.Log,
		MemTableSize:                uint64(c.bufferBytes()),
		MemTableStopWritesThreshold: 2 * buffers, // see stall.go
		LBaseMaxBytes:               4 * c.tableBytes(),
		L0CompactionThreshold:       l0Compaction,
		L0StopWritesThreshold:       pebbleStop,
		MaxManifestFileSize:         c.bufferBytes(),
	}
	o.Experimental.MultiLevelCompactionHeuristic = pebble.NoMultiLevel{} // they would need more room at a time
	for i := range o.Levels {
		o.TargetFileSizes[i] = c.tableBytes()
		o.Levels[i] = pebble.LevelOptions{
			BlockSize:      4 << 10,
			IndexBlockSize: 32 << 10,
			FilterPolicy:   bloom.FilterPolicy(10),
			Compression:    func() *sstable.CompressionProfile { return sstable.NoCompression },
		}
	}
	return o
}

// silent is a log for nobody: what matters comes back as an error.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}

// Fatalf must not return: Pebble calls it where its own state and that on the disk
// may have parted, as when its list of files cannot be written.
func (silent) Fatalf(format string, a ...any) { panic("store: " + fmt.Sprintf(format, a...)) }
