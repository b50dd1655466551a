package shard

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/server/rows"
)

// Begin makes rows with the weights of keys, len(keys)*Dim values, in place of initial ones; the rule's state is that of new rows. It is called
// before the table is in use and before Load, as often as one likes; of a key that comes again the last weights count. Such rows are as
// changed ones: they go to the store when they leave memory, and checkpoints have them. Admission is not asked.
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

// beginRows is Begin of as many as put takes.
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
