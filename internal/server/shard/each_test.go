package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
)

// Each row comes once, at rest as it is, and while goroutines train with at least what
// was pushed before.
func TestEach(t *testing.T) {
	for name, newStore := range kinds() {
		t.Run(name, func(t *testing.T) {
			tb := newTable(t, zeros(newStore(t)))
			const keys = 9000
			l := newLedger(tb, keys)
			for at := range keys / 500 {
				batch := sequence(uint64(at*500), 500)
				must(t, tb.Push(0, uint64(at+1), batch, slices.Repeat([]float32{1}, 500*dim), 1))
				for _, key := range batch {
					l.pushed[key].Add(1)
				}
			}
			all := func(meanwhile bool) {
				t.Helper()
				before := make([]int64, keys)
				for key := range before {
					before[key] = l.pushed[key].Load()
				}
				seen := make([]int, keys)
				must(t, tb.Each(background, func(keys []uint64, weights []float32) error {
					for i, key := range keys {
						seen[key]++
						got := weights[i*dim:][:dim]
						if n := int64(got[0]); n != int64(got[dim-1]) || n < before[key] || !meanwhile && n > before[key] {
							return fmt.Errorf("key %d is %v, want %d", key, got, before[key])
						}
					}
					return nil
				}))
				if slices.Min(seen) != 1 || slices.Max(seen) != 1 {
					t.Fatalf("rows come %d to %d times", slices.Min(seen), slices.Max(seen))
				}
			}
			all(false)
			var wg sync.WaitGroup
			wg.Go(func() { train(t, tb, l, 3, 40, 1, nil) })
			for range 5 {
				all(true)
			}
			wg.Wait()
			all(false)
			enough := errors.New("enough")
			if err := tb.Each(background, func([]uint64, []float32) error { return enough }); !errors.Is(err, enough) {
				t.Error(err)
			}
			ctx, cancel := context.WithCancel(background)
			cancel()
			if err := tb.Each(ctx, func([]uint64, []float32) error { return nil }); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}
