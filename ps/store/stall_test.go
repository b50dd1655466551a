package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// phantom makes the limit smaller by so many bytes, as if files had them.
func phantom(d *Disk, n int64) {
	d.ledger.mu.Lock()
	defer d.ledger.mu.Unlock()
	d.ledger.bytes += n
}

// stored makes a store with a limit and n rows in files.
func stored(t *testing.T, n uint64) *Disk {
	d := mustOpen(t, t.TempDir(), Config{LimitBytes: MinLimitBytes})
	t.Cleanup(func() { must(t, d.Close()) })
	var rows Rows
	for k := range n {
		rows.Add(k, []byte{byte(k), byte(k >> 8)})
	}
	must(t, d.Put(1, &rows))
	must(t, d.Compact(context.Background()))
	return d
}

// Where nothing can be merged a write ends with an error that says so, before it would
// wait for ever; and goes on once there is room.
func TestNothingMerges(t *testing.T) {
	const n, batch = 60_000, 2000
	d := stored(t, n)
	d.patience = 1200 * time.Millisecond // twice what a compaction waits for room
	phantom(d, MinLimitBytes)
	var keys []uint64
	var err error
	deleted := uint64(0)
	for err == nil && deleted < n {
		keys = keys[:0]
		for range batch {
			keys = append(keys, deleted)
			deleted++
		}
		err = d.Delete(1, keys, nil)
	}
	if !errors.Is(err, errNoRoom) {
		t.Fatalf("after %d deletes without room to merge: %v", deleted, err)
	}
	if got := d.Table(1).Rows; got != int64(n-(deleted-batch)) {
		t.Errorf("%d rows, want those that no delete took of %d", got, n)
	}
	var l *LimitError
	one := &Rows{Keys: []uint64{1}, Ends: []int{1}, Data: []byte{1}}
	if err := d.Put(1, one); !errors.As(err, &l) {
		t.Errorf("a row beyond the limit: %v", err)
	}
	phantom(d, -MinLimitBytes)
	d.patience = mergePatience
	must(t, d.Delete(1, keys, nil))
	must(t, d.Put(1, one))
}

// Compact tries again while there is no room for a moment.
func TestCompactWaitsForRoom(t *testing.T) {
	d := stored(t, 20_000)
	must(t, d.Delete(1, []uint64{3, 5, 7000}, nil))
	phantom(d, MinLimitBytes)
	back := time.AfterFunc(time.Second, func() { phantom(d, -MinLimitBytes) }) // after a first try
	defer back.Stop()
	must(t, d.Compact(context.Background()))
}

// The level below level 0 is the one that Pebble says has taken what was merged.
func TestBaseSize(t *testing.T) {
	const kib = 1 << 10
	for _, c := range []struct {
		sizes map[int]int64
		want  int64
	}{
		{map[int]int64{0: 500 * kib}, 0},
		{map[int]int64{6: 100 * kib}, 100 * kib},                                              // small enough to be merged whole
		{map[int]int64{6: 10 << 20}, 0},                                                       // a level above is begun
		{map[int]int64{5: 90 * kib, 6: 1 << 20}, 90 * kib},                                    // a tenth of the last
		{map[int]int64{5: 2100 * kib, 6: 9400 * kib}, 0},                                      // level 4 is begun
		{map[int]int64{0: 1600 * kib, 4: 465 * kib, 5: 2100 * kib, 6: 9400 * kib}, 465 * kib}, // as seen
	} {
		m := &pebble.Metrics{}
		for level, size := range c.sizes {
			m.Levels[level].TablesSize = size
		}
		if got := baseSize(m, 128*kib); got != c.want {
			t.Errorf("%v: %d, want %d", c.sizes, got, c.want)
		}
	}
}
