package shard

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/store"
	"github.com/ringo-ml/ringo/internal/server/store/storetest"
)

// Rows come from the store ahead of the pull, which misses none of them then; of keys without a row nothing is made or counted.
func TestPrefetch(t *testing.T) {
	const n = 2500 // more than are brought in at a time
	tb := tiered(t)
	keys, x := sequence(0, n), make([]float32, n*dim)
	must(t, tb.Pull(keys, x))
	must(t, tb.Push(0, 1, keys, x, 1))
	evictAll(t, tb)
	want := make([]float32, n*dim)
	must(t, tb.Peek(keys, want))

	before := statsOf(tb)
	if got := tb.Prefetch(t.Context(), sequence(0, n+100)); got != n {
		t.Fatalf("brought %d rows, want %d", got, n)
	}
	s := statsOf(tb)
	if s.MemoryRows != n || s.Prefetched != n || s.Pulled != before.Pulled || s.Missed != before.Missed || s.Made != before.Made || s.StoreHits != before.StoreHits {
		t.Errorf("%+v, before %+v", s, before)
	}
	if again := tb.Prefetch(t.Context(), keys); again != 0 {
		t.Errorf("brought %d rows that were there", again)
	}
	must(t, tb.Pull(keys, x))
	if s := statsOf(tb); s.Missed != before.Missed || !slices.Equal(x, want) {
		t.Errorf("the pull missed %d rows", s.Missed-before.Missed)
	}
	tiers(t, tb)
}

// It gives up where it would have to wait for room, when its context is done, at a fault, and where there is no store; it leaves nothing behind.
func TestPrefetchGivesUp(t *testing.T) {
	tb := newTable(t, zeros(&broken{Memory: storetest.NewMemory(0)}))
	s := tb.store.(*broken)
	const n = 2000
	keys, x := sequence(0, n), make([]float32, n*dim)
	must(t, tb.Push(0, 1, keys, x, 1))
	evictAll(t, tb)

	must(t, tb.room.take(tb.room.maxRows/8)) // by someone who is about to bring in rows
	held := tb.room.maxRows / 8
	for rest := tb.room.maxRows - held; rest > 100; rest -= min(rest, tb.room.maxRows/8) {
		must(t, tb.room.take(min(rest, tb.room.maxRows/8)))
		held += min(rest, tb.room.maxRows/8)
	}
	if got := tb.Prefetch(t.Context(), keys); got != 0 {
		t.Errorf("brought %d rows for which there is no room", got)
	}
	tb.room.give(held)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := tb.Prefetch(ctx, keys); got != 0 {
		t.Errorf("brought %d rows when nobody wants them any more", got)
	}
	s.err = errors.New("broken")
	if got := tb.Prefetch(t.Context(), keys); got != 0 {
		t.Errorf("brought %d rows that cannot be read", got)
	}
	if err := tb.Pull(keys, x); !errors.Is(err, s.err) {
		t.Errorf("the pull meets %v", err)
	}
	s.err = nil
	must(t, tb.Pull(keys, x))
	tiers(t, tb)
	if alone := newTable(t, small(nil)); alone.Prefetch(t.Context(), keys) != 0 {
		t.Error("brought rows from no store")
	}
}

// broken is a store that cannot be read while it has an error.
type broken struct {
	*storetest.Memory
	err error
}

func (s *broken) Get(table uint32, keys []uint64, found *store.Rows) error {
	if s.err != nil {
		return s.err
	}
	return s.Memory.Get(table, keys, found)
}
