package shard

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/rowinit"
	"github.com/ringo-ml/ringo/internal/server/store"
	"github.com/ringo-ml/ringo/internal/server/store/storetest"
	"github.com/ringo-ml/ringo/optim"
)

// Rows that begin with given weights move as those whose initial weights these are, leave memory and come back, and are in checkpoints.
func TestBegin(t *testing.T) {
	for name, s := range map[string]store.Store{"memory": nil, "tiers": storetest.NewMemory(0)} {
		t.Run(name, func(t *testing.T) {
			cfg := small(s)
			rule := optim.NewRowWiseAdagrad(0.1) // whose state does not begin with zeros
			cfg.Rows.Rule = rule
			if s != nil {
				cfg.MemoryBytes = costOf(cfg.Rows, leastRows)
			}
			tb := newTable(t, cfg)
			twin := small(nil)
			twin.Rows.Rule, twin.Rows.Init = rule, rowinit.Constant(2.5)
			want := newTable(t, twin)

			n := 3 * leastRows
			keys, weights := make([]uint64, n), slices.Repeat([]float32{2.5}, n*dim)
			for i := range keys {
				keys[i] = uint64(i * 7)
			}
			must(t, tb.Begin(keys, weights))
			if st := statsOf(tb); s != nil && st.StoreRows == 0 {
				t.Errorf("all rows are in memory: %+v", st)
			}
			part, grads := keys[:1000], slices.Repeat([]float32{1, -2, 3}, 1000)
			must(t, tb.Push(0, 1, part, grads, 1))
			must(t, want.Push(0, 1, part, grads, 1))
			check := func(tb *Table) {
				t.Helper()
				got, expected := make([]float32, len(weights)), make([]float32, len(weights))
				must(t, tb.Peek(keys, got))
				must(t, want.Peek(keys, expected))
				if !slices.Equal(got, expected) {
					t.Error("rows have other weights")
				}
			}
			check(tb)
			dir := filepath.Join(t.TempDir(), "saved")
			if saved := save(t, tb, dir); saved.Rows < int64(n) {
				t.Errorf("%+v", saved)
			}
			plain := cfg
			plain.Store, plain.MemoryBytes = nil, 0
			loaded := newTable(t, plain)
			_, err := loaded.Load(context.Background(), dir, "", nil)
			must(t, err)
			check(loaded)
			if err := tb.Begin(keys[:2], weights[:5]); err == nil || !strings.Contains(err.Error(), "5 weights for 2 keys") {
				t.Errorf("%v", err)
			}
		})
	}
}
