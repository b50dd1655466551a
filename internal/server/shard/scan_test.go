package shard

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// checkScan wants Scan to hand out the rows of a table that has loaded the same checkpoints, each once.
func checkScan(t *testing.T, tb *Table, dirs []string) {
	t.Helper()
	seen := map[uint64]bool{}
	must(t, Scan(background, dirs, make([]string, 9), func(keys []uint64, weights []float32) error {
		for i, key := range keys {
			if seen[key] {
				t.Fatalf("key %d comes twice", key)
			}
			seen[key] = true
			if got, want := weights[i*dim:][:dim], whole(t, tb, key)[:dim]; !slices.Equal(got, want) {
				t.Fatalf("key %d: %v, want %v", key, got, want)
			}
		}
		return nil
	}))
	if int64(len(seen)) != rowsOf(tb) || len(seen) == 0 {
		t.Errorf("%d rows of %d", len(seen), rowsOf(tb))
	}
}

func TestKeySet(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var s keySet
	twin := map[uint64]bool{}
	for range 20_000 {
		key := r.Uint64N(9000)
		if r.IntN(4) == 0 {
			key <<= 50
		}
		if s.has(key) != twin[key] {
			t.Fatalf("key %d: %v", key, s.has(key))
		}
		if r.IntN(2) == 0 && s.add(key) == twin[key] {
			t.Fatalf("key %d is new: %v", key, twin[key])
		} else if s.has(key) {
			twin[key] = true
		}
	}
}

func TestScanFaults(t *testing.T) {
	parent := t.TempDir()
	at := func(name string) string { return filepath.Join(parent, name) }
	tb := tiered(t)
	must(t, tb.Push(0, 1, sequence(0, 10), make([]float32, 10*dim), 1))
	base := save(t, tb, at("base"))
	must(t, tb.Push(0, 2, sequence(5, 10), make([]float32, 10*dim), 1))
	delta := saveDelta(t, tb, at("delta"), base.Epoch)
	saveDelta(t, tb, at("next"), delta.Epoch)
	about, err := Describe(at("delta"), "")
	if err != nil || about.Table != "ads" || about.Dim != dim || about.Rule != "adder" || !about.Delta || about.Rows != 10 || about.Deleted != 0 {
		t.Errorf("%+v, %v", about, err)
	}
	scan := func(dirs ...string) error {
		return Scan(background, dirs, make([]string, 9), func([]uint64, []float32) error { return nil })
	}
	must(t, scan(at("base"), at("delta"), at("next")))
	for want, err := range map[string]error{
		"no checkpoint":        scan(),
		"delta: true":          scan(at("delta")),
		"delta: false":         scan(at("base"), at("base")),
		"the one before is of": scan(at("base"), at("next")),
		"no such file":         scan(at("nowhere")),
		context.Canceled.Error(): func() error {
			ctx, cancel := context.WithCancel(background)
			cancel()
			return Scan(ctx, []string{at("base")}, make([]string, 9), nil)
		}(),
	} {
		if err == nil || !contains(err, want) {
			t.Errorf("%v does not hold %q", err, want)
		}
	}
	mine := errors.New("enough")
	if err := Scan(background, []string{at("base")}, make([]string, 9), func([]uint64, []float32) error { return mine }); !errors.Is(err, mine) {
		t.Error(err)
	}
	// Damage is found, wherever it is.
	path := filepath.Join(at("delta"), "memory")
	b, err := os.ReadFile(path)
	must(t, err)
	for i := 0; i < len(b); i += 7 {
		bad := slices.Clone(b)
		bad[i] ^= 4
		for _, bytes := range [][]byte{bad, b[:i]} {
			must(t, os.WriteFile(path, bytes, 0o666))
			var d *DamageError
			if err := scan(at("base"), at("delta")); !errors.As(err, &d) && !errors.Is(err, errVersion) || d != nil && d.Path != path {
				t.Fatalf("byte %d: %v", i, err)
			}
		}
	}
}
