// Package store keeps rows outside a server's tables: on SSD, or in memory. A row is
// an image of bytes that means nothing to it, under a table's number and a 64-bit key.
//
// Rows of some hundred bytes are read one by one at random, and written in batches when memory has
// no room for them. [Segments] appends them to a file and has an index of it in memory.
//
// # Limits
//
// The index takes 9 to 10 bytes of memory for each row on SSD: 10 GB for 10^9 rows. A
// log-structured merge-tree needs a fifth of that, but took seven times the CPU time and wrote each
// row ten times.
package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/internal/dirlock"
)

var (
	// ErrHeld is the error of OpenSegments where another process has the directory.
	ErrHeld = dirlock.ErrHeld
	// ErrClosed is the error of a store that has been closed.
	ErrClosed = errors.New("store: the store is closed")
)

// Store holds rows by table and key. Methods may be called at once, except that no
// two writes at once may have a key in common and that Close comes last. Keys of
// a call are sorted and unique; others are refused.
type Store interface {
	// Get replaces found with the rows that there are of the keys, in their
	// order, each as it is at some moment of the call.
	Get(table uint32, keys []uint64, found *Rows) error
	// Put writes rows, new ones and in place of old ones: all or none. A Put
	// beyond the limit gives a *[LimitError].
	Put(table uint32, rows *Rows) error
	// Delete removes rows: all or none. Keys that there are not do not matter.
	// sizes are the rows' lengths, -1 where there is none; where it is nil they
	// are looked up.
	Delete(table uint32, keys []uint64, sizes []int32) error
	// Iterate calls do for the rows that a table has now, in no order. A row's bytes
	// are valid during the call only. do may use the store; its error ends the
	// iteration.
	Iterate(table uint32, do func(key uint64, row []byte) error) error
	// Table returns how much of one table there is.
	Table(table uint32) TableSize
	// Size returns how large the store is.
	Size() Size
	// Stats returns what the store has done since it was opened.
	Stats() Stats
	// Compact frees what Size owes. It takes as long as reading and writing the
	// store; other calls go on meanwhile.
	Compact(ctx context.Context) error
	// Close closes the store.
	Close() error
}

// KeyBytes is what a row costs beyond its image, in [Size] and against a limit.
const KeyBytes = 13

// TableSize is how much of a table a store has.
type TableSize struct {
	Rows  int64
	Bytes int64 // of the images, and KeyBytes for each
}

// Size is how large a store is, in bytes.
type Size struct {
	TableSize       // of all tables: what there is
	Disk      int64 // of the store's files now
	Peak      int64 // the most that Disk has been since the store was opened
	Owed      int64 // of Disk beyond the rows: what compaction can free, and some per cent that it cannot
	Limit     int64 // that Disk never exceeds; 0 if there is none
	Room      int64 // for rows before Put refuses more; MaxInt64 if there is no limit
}

// Stats counts what a store has done since it was opened.
type Stats struct {
	Gets         int64 // keys asked for
	Found        int64 // of them, rows that were there
	Puts         int64 // rows
	Deletes      int64 // keys
	BytesGot     int64 // of rows found
	BytesPut     int64 // of rows put
	FileReads    int64 // of files, each perhaps served by the system's page cache
	FileBytesIn  int64
	FileBytesOut int64
	IndexBytes   int64 // of memory for where rows are
	Compactions  int64
}

// Rows are rows of one table: row i has the key Keys[i] and is
// Data[Ends[i-1]:Ends[i]]. Reset lets the same memory serve again.
type Rows struct {
	Keys []uint64
	Ends []int
	Data []byte
	// Old, where it is not empty, says for Put how long the image is that each
	// row replaces, -1 for none. Put then need not look, which costs a read for
	// each row. Wrong lengths make wrong sizes.
	Old []int32
}

// Reset leaves no rows.
func (r *Rows) Reset() { r.Keys, r.Ends, r.Data, r.Old = r.Keys[:0], r.Ends[:0], r.Data[:0], r.Old[:0] }

// Len is the number of rows.
func (r *Rows) Len() int { return len(r.Keys) }

// Row returns the image of row i.
func (r *Rows) Row(i int) []byte {
	from := 0
	if i > 0 {
		from = r.Ends[i-1]
	}
	return r.Data[from:r.Ends[i]:r.Ends[i]]
}

// Add appends a row, whose bytes it copies.
func (r *Rows) Add(key uint64, row []byte) {
	r.Keys = append(r.Keys, key)
	r.Data = append(r.Data, row...)
	r.Ends = append(r.Ends, len(r.Data))
}

// bytes is what the rows cost.
func (r *Rows) bytes() int64 { return int64(len(r.Data)) + KeyBytes*int64(len(r.Keys)) }

// maxPut is the most bytes of a Put.
const maxPut = 1 << 30

func (r *Rows) check() error {
	if err := checkKeys(r.Keys); err != nil {
		return err
	}
	if len(r.Ends) != len(r.Keys) || !slices.IsSorted(r.Ends) || len(r.Ends) > 0 && (r.Ends[0] < 0 || r.Ends[len(r.Ends)-1] != len(r.Data)) {
		return fmt.Errorf("%d keys with %d ends, which do not cut %d bytes into as many rows", len(r.Keys), len(r.Ends), len(r.Data))
	}
	if len(r.Data) > maxPut {
		return fmt.Errorf("%d bytes at once: at most %d", len(r.Data), maxPut)
	}
	return checkSizes(r.Old, len(r.Keys))
}

func checkKeys(keys []uint64) error {
	for i := 1; i < len(keys); i++ {
		if keys[i-1] >= keys[i] {
			return fmt.Errorf("key %d follows %d: want sorted and unique keys", keys[i], keys[i-1])
		}
	}
	return nil
}

func checkSizes(sizes []int32, keys int) error {
	if len(sizes) != 0 && len(sizes) != keys {
		return fmt.Errorf("%d lengths of old rows for %d keys", len(sizes), keys)
	}
	return nil
}

// change is what a write does to a table's size.
func (r *Rows) change(old []int32) TableSize {
	c := TableSize{int64(len(r.Keys)), r.bytes()}
	return c.minus(old)
}

// minus takes away rows of the given lengths, those that there are.
func (t TableSize) minus(sizes []int32) TableSize {
	for _, n := range sizes {
		if n >= 0 {
			t.Rows--
			t.Bytes -= int64(n) + KeyBytes
		}
	}
	return t
}

// sizes are how much there is of all tables. The zero value is nothing of any.
type sizes struct {
	mu     sync.Mutex
	tables map[uint32]TableSize
	total  TableSize
}

// add changes how much there is of a table.
func (s *sizes) add(table uint32, c TableSize) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tables == nil {
		s.tables = map[uint32]TableSize{}
	}
	s.tables[table] = s.tables[table].plus(c)
	s.total = s.total.plus(c)
}

// Table is Store's.
func (s *sizes) Table(table uint32) TableSize {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tables[table]
}

func (s *sizes) all() TableSize {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

func (t TableSize) plus(u TableSize) TableSize { return TableSize{t.Rows + u.Rows, t.Bytes + u.Bytes} }

// LimitError is the error of a Put that the limit has no room for. Nothing of it
// was written.
type LimitError struct {
	Need int64 // bytes of the Put
	Over int64 // bytes too many
	Size Size  // at that moment
}

// Error says what to do.
func (e *LimitError) Error() string {
	return fmt.Sprintf("store: %d bytes more are %d beyond the limit of %d bytes: rows have %d, compaction owes %d at most; delete rows and compact",
		e.Need, e.Over, e.Size.Limit, e.Size.Bytes, e.Size.Owed)
}

// DamageError says which file of a store is damaged. Rows elsewhere can be read.
type DamageError struct {
	Path string // the file, or the directory where that is not known
	Err  error
}

// Error names the file.
func (e *DamageError) Error() string {
	return fmt.Sprintf("store: %s is damaged: %v: restore a checkpoint", e.Path, e.Err)
}

// Unwrap is the error that showed the damage.
func (e *DamageError) Unwrap() error { return e.Err }
