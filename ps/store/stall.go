package store

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Pebble lets a write wait, for as long as it takes, while files of level 0 or buffers
// wait to be merged or written. Merging may have no room, and then never ends. So
// no write gets there: ready holds writes back before, with errors for its ends.
const (
	l0Compaction  = 2                 // sublevels of level 0 that are merged
	stopSublevels = 8                 // of level 0: more wait
	pebbleStop    = 3 * stopSublevels // which writes at once hardly reach
	// mergePatience is how long a write waits for merging that gets nowhere.
	mergePatience = 30 * time.Second
	glance        = 2 * time.Millisecond
)

// backlog is what waits to be written or merged.
type backlog struct {
	sublevels int   // of level 0
	buffered  int64 // bytes in buffers
	merge     int64 // that merging level 0 writes before anything is let go of
	running   bool  // something is merged or written now, or will be without another write
}

func (d *Disk) backlog() backlog {
	m := d.db.Metrics()
	b := backlog{sublevels: int(m.Levels[0].Sublevels), buffered: int64(m.MemTable.Size)}
	b.merge = m.Levels[0].TablesSize + baseSize(m, 4*d.c.tableBytes())
	b.running = m.Compact.NumInProgress > 0 || m.MemTable.Count > 1 || b.sublevels >= l0Compaction
	return b
}

// full says that a write would wait for others' files or buffers.
func (b backlog) full(c Config) bool {
	return b.sublevels >= stopSublevels || b.buffered >= buffers*c.bufferBytes()
}

// baseSize is the size of the level that level 0 is merged into. It is the first that has
// anything, or an empty one above it where its ideal size is beyond most: nine tenths of
// all for the last level, and for each above a tenth of the one below.
func baseSize(m *pebble.Metrics, most int64) int64 {
	all, first := int64(0), 0
	for i := range m.Levels {
		all += m.Levels[i].TablesSize
		if first == 0 && i > 0 && m.Levels[i].TablesSize > 0 {
			first = i
		}
	}
	if first == 0 {
		return 0
	}
	ideal := all - all/10
	for range len(m.Levels) - 1 - first {
		ideal /= 10
	}
	if ideal > most && first > 1 {
		return 0
	}
	return m.Levels[first].TablesSize
}

// over is how many bytes the limit lacks for all that is buffered and under way to be
// written, and then merged with level 0.
func (d *Disk) over(b backlog) int64 {
	if d.c.LimitBytes == 0 {
		return 0
	}
	used, _ := d.ledger.used()
	return max(0, used+d.ledger.spare+b.merge+2*(b.buffered+d.writing.Load())-d.c.LimitBytes)
}

// ready waits until n bytes, which are among those under way, can be written without a
// stall that may not end. Where nothing is left to wait for, they are refused if they
// have no room and strict says so.
func (d *Disk) ready(n int64, strict bool) error {
	var last backlog
	lastUsed, moved := int64(-1), time.Now()
	for {
		b := d.backlog()
		over := d.over(b)
		if !b.full(d.c) && (over == 0 || !b.running && !strict) {
			return nil
		}
		if err := d.writable(); err != nil {
			return err
		}
		if !b.full(d.c) && !b.running {
			return &LimitError{n, over, d.Size()}
		}
		fault := d.merging.Load()
		used, _ := d.ledger.used()
		b.running = true                                   // it also is, now and then, while all that is merged fails
		if b != last || used != lastUsed && fault == nil { // what fails writes, too
			last, lastUsed, moved = b, used, time.Now()
		}
		if time.Since(moved) > d.patience {
			err := error(&LimitError{n, over, d.Size()})
			if fault != nil {
				err = *fault
			}
			return fmt.Errorf("store: %s: %d levels of files wait to be merged and %d bytes to be written, and none has moved for %v: %w", d.dir, b.sublevels, b.buffered, d.patience, err)
		}
		time.Sleep(glance)
	}
}
