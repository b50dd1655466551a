package loadgen

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// The rates are of what they say: the chase comes by every row of a circle, gathering
// copies the rows of a batch, and updating moves them by the rule.
func TestMemory(t *testing.T) {
	m, err := NewMemory(tableOf("sgd", 4), 1000)
	must(t, err)
	must(t, m.Draw(Dist{}, 50))
	if m.rows != 1000 || m.dim != 4 {
		t.Errorf("%d rows of %d", m.rows, m.dim)
	}
	m.link()
	seen := map[uint32]bool{}
	m.batch = 1
	for range 512 {
		seen[m.at] = true
		m.chase(nil)
	}
	if len(seen) != 512 || m.at != 0 {
		t.Errorf("%d rows of 512 are in the circle, which ends at %d", len(seen), m.at)
	}
	m.batch = 50
	for i := range m.data {
		m.data[i] = float32(i)
	}
	for at := 0; at < len(m.ids); at += 50 {
		ids := m.ids[at:][:50]
		if sorted := slices.Sorted(slices.Values(ids)); len(slices.Compact(sorted)) != 50 || ids[0] < 0 || sorted[49] >= 1000 {
			t.Fatalf("a batch of %v", ids)
		}
		m.gather(ids)
		for i, id := range ids {
			if m.dst[4*i+3] != float32(4*id+3) {
				t.Fatalf("row %d is %v", id, m.dst[4*i:][:4])
			}
		}
	}
	ids := m.ids[:50]
	m.update(ids)
	for i, id := range ids {
		if want := float32(4*id) - 0.05*m.grads[4*i]; m.data[4*id] != want {
			t.Errorf("row %d begins with %v, want %v", id, m.data[4*id], want)
		}
	}
}

func TestMeasureMemory(t *testing.T) {
	m, err := NewMemory(tableOf("adagrad", 8), 3000)
	must(t, err)
	must(t, m.Draw(Dist{1.2}, 100))
	top := 0
	for _, id := range m.ids {
		if uint64(id) == Key(0)%3000 {
			top++
		}
	}
	if batches := len(m.ids) / 100; top < batches*9/10 {
		t.Errorf("the most frequent row is in %d of %d batches", top, batches)
	}
	drawn := slices.Clone(m.ids)
	if must(t, m.Draw(Dist{1.2}, 100)); !slices.Equal(m.ids, drawn) || len(drawn) != 12_000 {
		t.Errorf("%d rows were drawn, and others the second time", len(drawn))
	}
	if must(t, m.Draw(Dist{}, 100)); slices.Equal(m.ids, drawn) {
		t.Error("the same rows were drawn by another law")
	}
	r, err := m.Measure(t.Context(), time.Millisecond)
	if err != nil || r.Chase <= 0 || r.Gather <= 0 || r.Update <= 0 {
		t.Errorf("%+v: %v", r, err)
	}
	big, err := NewMemory(tableOf("sgd", 1<<16), 1<<40)
	must(t, err)
	if want := maxMemory / 4 >> 16; big.rows != want {
		t.Errorf("%d rows, want %d", big.rows, want)
	}
	if must(t, big.Draw(Dist{}, 1<<20)); big.batch != big.rows/8 {
		t.Errorf("batches of %d of %d rows", big.batch, big.rows)
	}
	if err := m.Draw(Dist{-1}, 100); err == nil {
		t.Error("a distribution that there is not")
	}
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	if _, err := m.Measure(ctx, time.Hour); err != over {
		t.Errorf("%v", err)
	}
	if _, err := NewMemory(tableOf("none", 8), 3000); err == nil {
		t.Error("a rule that there is not")
	}
}
