// Package store stores rows of a server's tables outside its memory, on SSD. A row is an opaque
// image of bytes under a table's number and a 64-bit key.
//
// Rows of some hundred bytes are read individually at random, and written in batches when memory is
// full. [Segments] appends them to a file with an index in memory.
//
// # Limits
//
// The index takes 9 to 10 bytes of memory per row on SSD: 10 GB for 10^9 rows. A log-structured
// merge-tree needs a fifth of this, but took seven times the CPU time and wrote each row ten times.
package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrClosed is the error of a closed store.
var ErrClosed = errors.New("store: the store is closed")

// Store has rows by table and key. Its methods are safe for concurrent use, except that concurrent
// writes must not share keys and that Close comes last. Keys of a call must be sorted and unique.
type Store interface {
	// Get replaces found with the existing rows of the keys, in order, each as of some moment.
	Get(table uint32, keys []uint64, found *Rows) error
	// Put writes or replaces all rows or none. A Put beyond the limit returns a *[LimitError].
	Put(table uint32, rows *Rows) error
	// Delete removes rows, all or none. Missing keys are ignored. sizes are the rows' lengths, -1
	// for missing ones; if nil they are looked up.
	Delete(table uint32, keys []uint64, sizes []int32) error
	// Iterate calls do for the current rows of a table, in no order. A row's bytes are valid during
	// the call only. do may use the store; its error ends the iteration.
	Iterate(table uint32, do func(key uint64, row []byte) error) error
	// Table returns the size of one table.
	Table(table uint32) TableSize
	// Compact frees the space that rows do not use. Cost: a read and a write of the whole store;
	// other calls continue.
	Compact(ctx context.Context) error
	// Close closes the store.
	Close() error
}

// KeyBytes is the cost of a row in addition to its image, in a [TableSize].
const KeyBytes = 13

// TableSize is the size of a table in a store.
type TableSize struct {
	Rows  int64
	Bytes int64 // images, and KeyBytes for each
}

// Rows are rows of one table: row i has the key Keys[i] and the image Data[Ends[i-1]:Ends[i]].
// Reset allows reuse of the memory.
type Rows struct {
	Keys []uint64
	Ends []int
	Data []byte
	// Old, unless empty, has for Put the length of the image that each row replaces, -1 for none.
	// It saves a read per row. Wrong lengths cause wrong sizes.
	Old []int32
}

// Reset removes all rows.
func (r *Rows) Reset() { r.Keys, r.Ends, r.Data, r.Old = r.Keys[:0], r.Ends[:0], r.Data[:0], r.Old[:0] }

// Len returns the number of rows.
func (r *Rows) Len() int { return len(r.Keys) }

// Row returns the image of row i.
func (r *Rows) Row(i int) []byte {
	from := 0
	if i > 0 {
		from = r.Ends[i-1]
	}
	return r.Data[from:r.Ends[i]:r.Ends[i]]
}

// Add appends a copy of a row.
func (r *Rows) Add(key uint64, row []byte) {
	r.Keys = append(r.Keys, key)
	r.Data = append(r.Data, row...)
	r.Ends = append(r.Ends, len(r.Data))
}

func (r *Rows) bytes() int64 { return int64(len(r.Data)) + KeyBytes*int64(len(r.Keys)) }

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

func checkDelete(keys []uint64, sizes []int32) error {
	err := checkKeys(keys)
	if err == nil {
		err = checkSizes(sizes, len(keys))
	}
	if err != nil {
		return fmt.Errorf("store: delete: %w", err)
	}
	return nil
}

func checkSizes(sizes []int32, keys int) error {
	if len(sizes) != 0 && len(sizes) != keys {
		return fmt.Errorf("%d lengths of old rows for %d keys", len(sizes), keys)
	}
	return nil
}

// sizes has the sizes of all tables. The zero value is empty.
type sizes struct {
	mu     sync.Mutex
	tables map[uint32]TableSize
	total  TableSize
}

func (s *sizes) add(table uint32, c TableSize) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tables == nil {
		s.tables = map[uint32]TableSize{}
	}
	s.tables[table] = s.tables[table].plus(c)
	s.total = s.total.plus(c)
}

// Table implements Store.
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

// LimitError is the error of a Put beyond the limit. No row of it was written.
type LimitError struct {
	Need  int64 // bytes of the Put
	Over  int64 // bytes above the limit
	Limit int64
	Rows  int64 // bytes of all rows, as in [TableSize]
	Owed  int64 // bytes of the file that are no rows: compaction can free all but some per cent
}

// Error states the remedy.
func (e *LimitError) Error() string {
	return fmt.Sprintf("store: %d bytes more are %d beyond the limit of %d bytes: rows have %d, compaction owes %d at most; delete rows and compact",
		e.Need, e.Over, e.Limit, e.Rows, e.Owed)
}

// DamageError reports a damaged file of a store. Other rows remain readable.
type DamageError struct {
	Path string // file, or the directory if unknown
	Err  error
}

// Error names the file.
func (e *DamageError) Error() string {
	return fmt.Sprintf("store: %s is damaged: %v: restore a checkpoint", e.Path, e.Err)
}

// Unwrap returns the error that showed the damage.
func (e *DamageError) Unwrap() error { return e.Err }
