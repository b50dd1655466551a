package shard

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/server/rows"
)

// Begin creates rows with the given weights, len(keys)*Dim values, instead of initial ones; the
// rule's state is that of new rows. It runs any number of times before the table is in use and
// before Load; the last weights of a key win. Such rows count as changed: eviction writes them to
// the store, and checkpoints include them. Admission does not apply.
func (t *Table) Begin(keys []uint64, weights []float32) error {
	t.slow.Lock()
	defer t.slow.Unlock()
	if len(weights) != len(keys)*t.Dim() {
		return t.fault("beginning", fmt.Errorf("%d weights for %d keys of %d", len(weights), len(keys), t.Dim()))
	}
	l := &loader{t: t}
	chunk := len(keys)
	if t.store != nil {
		chunk = t.chunk
	}
	for lo := 0; lo < len(keys); lo += chunk {
		hi := min(lo+chunk, len(keys))
		if err := l.beginRows(keys[lo:hi], weights[lo*t.Dim():hi*t.Dim()]); err != nil {
			return t.fault("beginning", err)
		}
	}
	return nil
}

// beginRows is Begin for at most the rows that put accepts.
func (l *loader) beginRows(keys []uint64, weights []float32) error {
	t := l.t
	l.values, l.usage = l.values[:0], l.usage[:0]
	for i := range keys {
		l.values = append(l.values, weights[i*t.Dim():][:t.Dim()]...)
		for _, p := range t.rows.Parts() {
			l.values = append(l.values, slices.Repeat([]float32{p.Initial}, p.Width)...)
		}
		l.usage = append(l.usage, rows.Usage{Last: t.rows.Epoch(), Changed: true})
	}
	if t.store == nil {
		_, err := t.rows.Import(keys, l.values, l.usage, true)
		return err
	}
	return l.put(keys, l.values, l.usage)
}
