// Package storetest has a store in maps, for tests: the naive twin of store.Segments. It also
// reports wrong lengths of old rows, which Segments trusts.
package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/internal/server/store"
)

// Memory is a store in maps. A row costs its image and store.KeyBytes.
type Memory struct {
	limit int64

	mu     sync.Mutex
	tables map[uint32]map[uint64][]byte
	sizes  map[uint32]store.TableSize
	total  int64 // bytes of all tables
	closed bool
}

var _ store.Store = (*Memory)(nil)

// NewMemory returns an empty store of rows with at most limit bytes, 0 for any.
func NewMemory(limit int64) *Memory {
	return &Memory{limit: limit, tables: map[uint32]map[uint64][]byte{}, sizes: map[uint32]store.TableSize{}}
}

// Get implements Store.
func (m *Memory) Get(table uint32, keys []uint64, found *store.Rows) error {
	found.Reset()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return store.ErrClosed
	}
	if err := check(keys, nil); err != nil {
		return fmt.Errorf("store: get: %w", err)
	}
	for _, k := range keys {
		if row, ok := m.tables[table][k]; ok {
			found.Add(k, row)
		}
	}
	return nil
}

// Put implements Store. Wrong lengths of old rows are an error.
func (m *Memory) Put(table uint32, rows *store.Rows) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return store.ErrClosed
	}
	if n := rows.Len(); len(rows.Ends) != n || !slices.IsSorted(rows.Ends) || n > 0 && rows.Ends[n-1] != len(rows.Data) {
		return fmt.Errorf("store: put: %d keys with ends %d for %d bytes", n, rows.Ends, len(rows.Data))
	}
	freed, err := m.old(table, rows.Keys, rows.Old)
	if err != nil {
		return fmt.Errorf("store: put: %w", err)
	}
	n := int64(rows.Len())
	need := int64(len(rows.Data)) + n*store.KeyBytes
	if over := m.total + need - freed.Bytes - m.limit; m.limit > 0 && over > 0 {
		return &store.LimitError{Need: need, Over: over, Limit: m.limit, Rows: m.total}
	}
	if m.tables[table] == nil {
		m.tables[table] = map[uint64][]byte{}
	}
	for i, k := range rows.Keys {
		m.tables[table][k] = slices.Clone(rows.Row(i))
	}
	m.add(table, n-freed.Rows, need-freed.Bytes)
	return nil
}

// Delete implements Store. Wrong lengths are an error.
func (m *Memory) Delete(table uint32, keys []uint64, sizes []int32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return store.ErrClosed
	}
	freed, err := m.old(table, keys, sizes)
	if err != nil {
		return fmt.Errorf("store: delete: %w", err)
	}
	for _, k := range keys {
		delete(m.tables[table], k)
	}
	m.add(table, -freed.Rows, -freed.Bytes)
	return nil
}

func check(keys []uint64, sizes []int32) error {
	if !slices.IsSorted(keys) || len(slices.Compact(slices.Clone(keys))) != len(keys) {
		return fmt.Errorf("keys %d: want sorted and unique keys", keys)
	}
	if len(sizes) != 0 && len(sizes) != len(keys) {
		return fmt.Errorf("%d lengths of old rows for %d keys", len(sizes), len(keys))
	}
	return nil
}

// old returns the size of the existing rows, and compares their lengths with the caller's.
func (m *Memory) old(table uint32, keys []uint64, believed []int32) (freed store.TableSize, err error) {
	if err := check(keys, believed); err != nil {
		return freed, err
	}
	for i, k := range keys {
		n := int32(-1)
		if row, ok := m.tables[table][k]; ok {
			n = int32(len(row))
			freed.Rows++
			freed.Bytes += int64(n) + store.KeyBytes
		}
		if len(believed) > 0 && believed[i] != n {
			return freed, fmt.Errorf("key %d of table %d: the old row has %d bytes, not %d", k, table, n, believed[i])
		}
	}
	return freed, nil
}

func (m *Memory) add(table uint32, rows, bytes int64) {
	s := m.sizes[table]
	m.sizes[table] = store.TableSize{Rows: s.Rows + rows, Bytes: s.Bytes + bytes}
	m.total += bytes
}

// Iterate implements Store.
func (m *Memory) Iterate(table uint32, do func(key uint64, row []byte) error) error {
	m.mu.Lock()
	closed, rows := m.closed, maps.Clone(m.tables[table])
	m.mu.Unlock()
	if closed {
		return store.ErrClosed
	}
	for _, k := range slices.Sorted(maps.Keys(rows)) {
		if err := do(k, rows[k]); err != nil {
			return err
		}
	}
	return nil
}

// Table implements Store.
func (m *Memory) Table(table uint32) store.TableSize {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sizes[table]
}

// Compact implements Store, without an effect.
func (m *Memory) Compact(context.Context) error { return nil }

// Close implements Store. It drops the rows.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return store.ErrClosed
	}
	m.closed, m.tables = true, nil
	return nil
}
