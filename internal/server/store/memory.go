package store

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
)

// Memory is a store in maps, for tests and for servers without an SSD. A row takes about three
// times [KeyBytes] more than its image.
type Memory struct {
	limit int64

	mu     sync.RWMutex
	tables map[uint32]map[uint64][]byte
	size   TableSize
	sizes  map[uint32]TableSize
	peak   int64
	stats  Stats
	closed bool
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty store of rows with at most limit bytes, 0 for any.
func NewMemory(limit int64) *Memory {
	return &Memory{limit: limit, tables: map[uint32]map[uint64][]byte{}, sizes: map[uint32]TableSize{}}
}

// Get implements Store.
func (m *Memory) Get(table uint32, keys []uint64, found *Rows) error {
	found.Reset()
	if err := checkKeys(keys); err != nil {
		return fmt.Errorf("store: get: %w", err)
	}
	m.mu.Lock() // guards the counters too
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	for _, k := range keys {
		if row, ok := m.tables[table][k]; ok {
			found.Add(k, row)
		}
	}
	m.stats.Gets += int64(len(keys))
	m.stats.Found += int64(found.Len())
	m.stats.BytesGot += int64(len(found.Data))
	return nil
}

// Put implements Store. Wrong lengths of old rows are an error.
func (m *Memory) Put(table uint32, rows *Rows) error {
	if err := rows.check(); err != nil {
		return fmt.Errorf("store: put: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	old, err := m.old(table, rows.Keys, rows.Old)
	if err != nil {
		return fmt.Errorf("store: put: %w", err)
	}
	change := rows.change(old)
	if over := m.size.Bytes + change.Bytes - m.limit; m.limit > 0 && over > 0 {
		return &LimitError{rows.bytes(), over, m.now()}
	}
	if m.tables[table] == nil {
		m.tables[table] = map[uint64][]byte{}
	}
	for i, k := range rows.Keys {
		m.tables[table][k] = slices.Clone(rows.Row(i))
	}
	m.add(table, change)
	m.stats.Puts += int64(rows.Len())
	m.stats.BytesPut += int64(len(rows.Data))
	return nil
}

// Delete implements Store. Wrong lengths are an error.
func (m *Memory) Delete(table uint32, keys []uint64, sizes []int32) error {
	if err := checkDelete(keys, sizes); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	old, err := m.old(table, keys, sizes)
	if err != nil {
		return fmt.Errorf("store: delete: %w", err)
	}
	for _, k := range keys {
		delete(m.tables[table], k)
	}
	m.add(table, TableSize{}.minus(old))
	m.stats.Deletes += int64(len(keys))
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

// old returns the lengths of the existing rows, and compares them with the caller's.
func (m *Memory) old(table uint32, keys []uint64, believed []int32) ([]int32, error) {
	out := make([]int32, len(keys))
	for i, k := range keys {
		out[i] = -1
		if row, ok := m.tables[table][k]; ok {
			out[i] = int32(len(row))
		}
		if len(believed) > 0 && believed[i] != out[i] {
			return nil, fmt.Errorf("key %d of table %d: the old row has %d bytes, not %d", k, table, out[i], believed[i])
		}
	}
	return out, nil
}

func (m *Memory) add(table uint32, c TableSize) {
	m.size = m.size.plus(c)
	m.sizes[table] = m.sizes[table].plus(c)
	m.peak = max(m.peak, m.size.Bytes)
}

// Iterate implements Store.
func (m *Memory) Iterate(table uint32, do func(key uint64, row []byte) error) error {
	m.mu.RLock()
	if m.closed {
		m.mu.RUnlock()
		return ErrClosed
	}
	rows := maps.Clone(m.tables[table])
	m.mu.RUnlock()
	for _, k := range slices.Sorted(maps.Keys(rows)) {
		if err := do(k, rows[k]); err != nil {
			return err
		}
	}
	return nil
}

// Table implements Store.
func (m *Memory) Table(table uint32) TableSize {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.sizes[table]
}

// Size implements Store. Owed is 0.
func (m *Memory) Size() Size {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.now()
}

func (m *Memory) now() Size {
	s := Size{TableSize: m.size, Disk: m.size.Bytes, Peak: m.peak, Limit: m.limit, Room: math.MaxInt64}
	if m.limit > 0 {
		s.Room = m.limit - m.size.Bytes
	}
	return s
}

// Stats implements Store.
func (m *Memory) Stats() Stats {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.stats
}

// Compact implements Store, without an effect.
func (m *Memory) Compact(context.Context) error { return nil }

// Close implements Store. It drops the rows.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	m.closed, m.tables = true, nil
	return nil
}
