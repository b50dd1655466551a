package shard

import (
	"context"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/store"
	"github.com/ringo-ml/ringo/internal/server/store/storetest"
)

// The filter never counts too low, and rarely too high, up to the number of keys that
// it is made for.
func TestFilterAgainstMap(t *testing.T) {
	const bytes = 256 << 10
	f := newFilter(Admission{Count: 3, FilterBytes: bytes})
	r := rand.New(rand.NewPCG(1, 2))
	exact := map[uint64]int{}
	news, wrong := 0, 0
	for len(exact) < bytes/keyBytes*95/100 {
		key := mix(r.Uint64N(bytes))
		if r.IntN(3) == 0 {
			key = mix(r.Uint64N(100)) // some come often
		}
		if got, want := f.count(key), min(exact[key], mostCount); got < want {
			t.Fatalf("key %d: %d, seen %d times", key, got, want)
		} else if exact[key] == 0 {
			news++
			if got > 0 {
				wrong++
			}
		}
		before := exact[key]
		exact[key]++
		if got := f.see(key); got < min(before+1, mostCount) {
			t.Fatalf("key %d: %d after %d times", key, got, before+1)
		}
	}
	// At the end it is at its worst.
	last := 0
	for range 10_000 {
		if f.count(r.Uint64()) > 0 {
			last++
		}
	}
	if part := float64(wrong) / float64(news); part > 0.02 {
		t.Errorf("%.1f %% of %d new keys were counted before", 100*part, news)
	}
	if part := float64(last) / 10_000; part > 0.05 {
		t.Errorf("at the end %.1f %% of new keys were counted before", 100*part)
	}
	for key := range exact {
		want := f.count(key) / 2
		f.decay()
		if got := f.count(key); got != want {
			t.Errorf("halved: %d, want %d", got, want)
		}
		break
	}
}

// Keys beyond those that the filter is made for halve its counts by themselves.
func TestFilterDecays(t *testing.T) {
	f := newFilter(Admission{Count: 2, FilterBytes: 4096})
	for range 10 {
		f.see(5)
	}
	for key := uint64(1000); f.count(5) == 10; key++ {
		if f.see(key); key > 10_000 {
			t.Fatal("it does not decay")
		}
	}
	if n := f.count(5); n != 5 {
		t.Errorf("%d, want 5", n)
	}
	if newFilter(Admission{Count: 1}) != nil {
		t.Error("a filter that filters nothing")
	}
}

func TestAdmissionByCount(t *testing.T) {
	for name, s := range map[string]store.Store{"none": nil, "memory": storetest.NewMemory(0)} {
		c := zeros(s)
		c.Admission = Admission{Count: 3}
		tb := newTable(t, c)
		keys, x, ones := sequence(0, 100), make([]float32, 100*dim), slices.Repeat([]float32{1}, 100*dim)
		for round := range 5 {
			must(t, tb.Pull(keys, x))
			must(t, tb.Push(0, uint64(round+1), keys, ones, 1))
		}
		must(t, tb.Peek(keys, x))
		// The third pull makes the row, and three pushes find it.
		off := 0
		for _, v := range x {
			if v != 3 {
				off++
			}
		}
		if off > 3*dim { // the filter may count too high
			t.Errorf("store %s: %d of %d weights are not 3: %v", name, off, len(x), x[:6])
		}
		// What is on SSD is admitted: it was before.
		if s != nil {
			evictAll(t, tb)
			tb.filter.decay()
			tb.filter.decay()
			must(t, tb.Push(0, 100, keys, ones, 1))
			if got := whole(t, tb, 50); got[0] != 4 {
				t.Errorf("store %s: a stored row is %v, want 4", name, got)
			}
		}
		// Keys that nobody pulled get no row by a push.
		must(t, tb.Push(0, 101, sequence(5000, 100), ones, 1))
		must(t, tb.Peek(sequence(5000, 100), x))
		if slices.Max(x) != 0 {
			t.Errorf("store %s: gradients of keys that are not admitted were kept", name)
		}
	}
}

func TestAdmissionByShare(t *testing.T) {
	for name, s := range map[string]store.Store{"none": nil, "memory": storetest.NewMemory(0)} {
		c := zeros(s)
		c.Admission = Admission{Share: 0.25}
		tb := newTable(t, c)
		const n = 4000
		keys, x, ones := sequence(0, n), make([]float32, n*dim), slices.Repeat([]float32{1}, n*dim)
		must(t, tb.Push(0, 1, keys, ones, 1))
		must(t, tb.Pull(keys, x))
		rows := 0
		for i := range keys {
			rows += int(x[i*dim])
		}
		if math.Abs(float64(rows)-n/4) > 100 || statsOf(tb).MemoryRows != rows {
			t.Errorf("store %s: %d of %d keys are admitted, %d rows", name, rows, n, statsOf(tb).MemoryRows)
		}
	}
}

func TestCalendar(t *testing.T) {
	var c dayClock
	if n := c.unseen(rows.Usage{Last: 3}, 5); n != 0 {
		t.Errorf("unseen for %d days before any has passed", n)
	}
	c.pass(1, 10)
	c.pass(3, 20)
	for last, want := range map[uint16]int{5: 4, 9: 4, 10: 3, 19: 3, 20: 0, 30: 0} {
		if got := c.unseen(rows.Usage{Last: last}, 30); got != want {
			t.Errorf("touched in epoch %d: unseen for %d days, want %d", last, got, want)
		}
	}
	c.walking, c.passing, c.below = true, 3, 100
	if c.at(99) != 4 || c.at(100) != 1 {
		t.Errorf("days %d and %d, want 4 and 1", c.at(99), c.at(100))
	}
	for e := range uint64(10) {
		c.pass(1, 100_000*(e+1))
	}
	if len(c.borders) > 2 {
		t.Errorf("%d borders are kept", len(c.borders))
	}
}

// A key that was admitted and never pushed is not counted again after its row has left memory.
func TestEvictedRowIsNotCountedAgain(t *testing.T) {
	cfg := small(storetest.NewMemory(0))
	cfg.Admission = Admission{Count: 2, FilterBytes: 1 << 20}
	tb := newTable(t, cfg)
	keys := sequence(1, 1000)
	dst := make([]float32, len(keys)*dim)
	for range 2 {
		must(t, tb.Pull(keys, dst))
	}
	if n, err := tb.Evict(len(keys)); err != nil || n < len(keys)/2 {
		t.Fatalf("%d of %d rows left memory: %v", n, len(keys), err)
	}
	must(t, tb.Pull(keys, dst))
	must(t, tb.Pull(keys, dst))
	for _, key := range keys {
		if n := tb.filter.count(key); n != 2 {
			t.Fatalf("key %d was counted %d times, want 2: it has had a row since", key, n)
		}
	}
	for range 2 { // halve the counts until they deny the keys
		tb.filter.decay()
	}
	_, err := tb.Evict(len(keys))
	must(t, err)
	must(t, tb.Pull(keys, dst))
	if s := statsOf(tb); s.Denied != int64(len(keys)) {
		t.Errorf("%d keys were denied a row, want the first pull of %d alone", s.Denied, len(keys))
	}
}

// A server's own checkpoint is refused by a table with another admission, which names both.
func TestCheckpointNeedsItsAdmission(t *testing.T) {
	cfg := small(nil)
	cfg.Admission = Admission{Count: 2, FilterBytes: 4096}
	first := newTable(t, cfg)
	must(t, first.Pull(sequence(1, 10), make([]float32, 10*dim)))
	dir := filepath.Join(t.TempDir(), "table")
	_, err := first.Save(context.Background(), dir, "of", 0)
	must(t, err)
	cfg.Admission.Count = 3
	_, err = newTable(t, cfg).Load(context.Background(), dir, "of", nil)
	if err == nil || !strings.Contains(err.Error(), `it was written with admission "count:2", this table has "count:3"`) {
		t.Errorf("%v", err)
	}
	cfg.Admission.Count = 2
	if _, err := newTable(t, cfg).Load(context.Background(), dir, "of", nil); err != nil {
		t.Error(err)
	}
}
