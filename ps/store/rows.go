package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
)

// scratch is what a call needs beside its arguments.
type scratch struct {
	key   []byte
	value []byte
	sizes []int32
}

var scratches = sync.Pool{New: func() any { return &scratch{} }}

// fail says which operation an error belongs to.
func (d *Disk) fail(op string, table uint32, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("store: %s: %s of table %d: %w", d.dir, op, table, d.known(err))
}

// lookup calls do for each key that there is, with its place among the keys.
func (d *Disk) lookup(s *scratch, table uint32, keys []uint64, do func(i int, row []byte)) error {
	it, err := d.db.NewIter(d.read)
	if err != nil {
		return err
	}
	for i, k := range keys {
		s.key = appendRowKey(s.key[:0], table, k)
		if it.SeekPrefixGE(s.key) { // asks the filters; a prefix is the whole key
			row, err := it.ValueAndErr()
			if err != nil {
				return errors.Join(err, it.Close())
			}
			do(i, row)
		} else if it.Error() != nil {
			break
		}
	}
	return it.Close() // with its error
}

// Get is Store's.
func (d *Disk) Get(table uint32, keys []uint64, found *Rows) error {
	found.Reset()
	if err := checkKeys(keys); err != nil {
		return fmt.Errorf("store: get: %w", err)
	}
	if d.closed.Load() {
		return ErrClosed
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	err := d.lookup(s, table, keys, func(i int, row []byte) { found.Add(keys[i], row) })
	if err != nil {
		found.Reset()
		return d.fail("get", table, err)
	}
	d.gets.Add(int64(len(keys)))
	d.found.Add(int64(found.Len()))
	d.bytesGot.Add(int64(len(found.Data)))
	return nil
}

// old returns how long the rows of the keys are, -1 for none.
func (d *Disk) old(s *scratch, table uint32, keys []uint64, believed []int32) ([]int32, error) {
	if len(believed) > 0 || len(keys) == 0 {
		return believed, nil
	}
	s.sizes = slices.Grow(s.sizes[:0], len(keys))[:len(keys)]
	for i := range s.sizes {
		s.sizes[i] = -1
	}
	err := d.lookup(s, table, keys, func(i int, row []byte) { s.sizes[i] = int32(len(row)) })
	return s.sizes, err
}

// writable tells why nothing can be written.
func (d *Disk) writable() error {
	if d.closed.Load() {
		return ErrClosed
	}
	if e := d.damage.Load(); e != nil {
		return e
	}
	if err := d.background.Load(); err != nil {
		return fmt.Errorf("store: %s: writing files: %w: rows in files are safe; writing is tried again until there is room", d.dir, *err)
	}
	return nil
}

// room refuses a Put of n bytes that has no room, within the limit or on the disk.
func (d *Disk) room(n int64) error {
	used, _ := d.ledger.used()
	reserve := d.c.reserve()
	if over := used + n + reserve - d.c.LimitBytes; d.c.LimitBytes > 0 && over > 0 {
		return &LimitError{n, over, d.Size()}
	}
	disk, err := d.ledger.FS.GetDiskUsage(d.dir)
	if err != nil {
		return nil // not to be had everywhere; then writing shows it
	}
	if free := int64(min(disk.AvailBytes, 1<<62)); free < n+reserve {
		return fmt.Errorf("store: %s: %d bytes more and %d for buffers and merging: the disk has %d left, rows put before are safe: %w", d.dir, n, reserve, free, syscall.ENOSPC)
	}
	return nil
}

// Put is Store's. Where the disk has too little room for buffers and merging it
// gives ENOSPC.
func (d *Disk) Put(table uint32, rows *Rows) error {
	if err := rows.check(); err != nil {
		return fmt.Errorf("store: put: %w", err)
	}
	if err := d.writable(); err != nil || rows.Len() == 0 {
		return err
	}
	need := rows.bytes() + rows.bytes()/8 // with headers, index and filter
	if d.c.Log {
		need *= 2
	}
	if err := d.room(need); err != nil {
		return err
	}
	d.writing.Add(need)
	defer d.writing.Add(-need)
	if err := d.ready(need, true); err != nil {
		return err
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	old, err := d.old(s, table, rows.Keys, rows.Old)
	if err != nil {
		return d.fail("put", table, err)
	}
	b := d.db.NewBatch()
	for i, k := range rows.Keys {
		row := rows.Row(i)
		op := b.SetDeferred(KeyBytes, len(row))
		appendRowKey(op.Key[:0], table, k)
		copy(op.Value, row)
		if err := op.Finish(); err != nil {
			return d.fail("put", table, errors.Join(err, b.Close()))
		}
	}
	if err := d.commit(s, b, table, rows.change(old)); err != nil {
		return d.fail("put", table, err)
	}
	d.puts.Add(int64(rows.Len()))
	d.bytesPut.Add(int64(len(rows.Data)))
	return nil
}

// commit writes a batch along with what it does to the table's size.
func (d *Disk) commit(s *scratch, b *pebble.Batch, table uint32, change TableSize) error {
	s.key = appendSizeKey(s.key[:0], table)
	s.value = appendSize(s.value[:0], change)
	err := b.Merge(s.key, s.value, nil)
	if err == nil {
		err = b.Commit(d.write)
	}
	if err == nil {
		d.add(table, change)
	}
	return errors.Join(err, b.Close())
}

// tombstoneBytes are what a deleted key takes until it is merged, with the log.
const tombstoneBytes = 64

// Delete is Store's. It needs no room within the limit.
func (d *Disk) Delete(table uint32, keys []uint64, sizes []int32) error {
	if err := checkDelete(keys, sizes); err != nil {
		return err
	}
	if err := d.writable(); err != nil || len(keys) == 0 {
		return err
	}
	need := int64(len(keys)) * tombstoneBytes
	d.writing.Add(need)
	defer d.writing.Add(-need)
	if err := d.ready(need, false); err != nil {
		return err
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	old, err := d.old(s, table, keys, sizes)
	if err != nil {
		return d.fail("delete", table, err)
	}
	b := d.db.NewBatch()
	for i, k := range keys {
		if old[i] < 0 {
			continue
		}
		s.key = appendRowKey(s.key[:0], table, k)
		// The length lets compaction see how much it can free.
		if err := b.DeleteSized(s.key, uint32(old[i]), nil); err != nil {
			return d.fail("delete", table, errors.Join(err, b.Close()))
		}
	}
	if err := d.commit(s, b, table, TableSize{}.minus(old)); err != nil {
		return d.fail("delete", table, err)
	}
	d.deletes.Add(int64(len(keys)))
	return nil
}

// Iterate is Store's. What compaction frees meanwhile is freed after it.
func (d *Disk) Iterate(table uint32, do func(key uint64, row []byte) error) error {
	if d.closed.Load() {
		return ErrClosed
	}
	it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: appendRowKey(nil, table, 0), UpperBound: tableEnd(table)})
	if err != nil {
		return d.fail("iterate", table, err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		row, err := it.ValueAndErr()
		if err != nil {
			return d.fail("iterate", table, errors.Join(err, it.Close()))
		}
		if err := do(keyOf(it.Key()), row); err != nil {
			return errors.Join(err, it.Close())
		}
	}
	return d.fail("iterate", table, it.Close())
}

// Compact is Store's. It goes through the keys range by range, so that it needs
// little room at a time.
func (d *Disk) Compact(ctx context.Context) error {
	if err := d.writable(); err != nil {
		return err
	}
	if err := d.flush(); err != nil {
		return fmt.Errorf("store: compacting %s: %w", d.dir, err)
	}
	borders, err := d.borders()
	for i := 0; i+1 < len(borders) && err == nil; i++ {
		err = d.compact(ctx, borders[i], borders[i+1])
	}
	if err != nil {
		return fmt.Errorf("store: compacting %s: %w", d.dir, d.known(err))
	}
	return nil
}

// compact merges a range of keys. Where that has no room it tries again, which waits for
// files that others have let go of, and leaves others' merging time to end.
func (d *Disk) compact(ctx context.Context, from, to []byte) error {
	for try := 0; ; try++ {
		err := d.db.Compact(ctx, from, to, false)
		if !errors.Is(err, errNoRoom) || try == 9 || ctx.Err() != nil {
			return err
		}
	}
}

// atOnce is how many files of the last level one step of Compact merges. Those of
// the levels above come on top: it must stay well below mergedTables.
const atOnce = 8

// borders cuts the keys where the files of the last level that has any begin.
func (d *Disk) borders() ([][]byte, error) {
	levels, err := d.db.SSTables()
	if err != nil {
		return nil, err
	}
	out := [][]byte{{sizePrefix}}
	for _, level := range slices.Backward(levels) {
		for i := 0; i < len(level); i += atOnce {
			out = append(out, slices.Clone(level[i].Smallest.UserKey))
		}
		if len(level) > 0 {
			break
		}
	}
	out = append(out, []byte{endPrefix})
	slices.SortFunc(out, bytes.Compare)
	return slices.CompactFunc(out, bytes.Equal), nil
}
