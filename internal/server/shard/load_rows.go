package shard

import (
	"cmp"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/store"
)

// loadBatch holds the reusable buffers of a call that reads the store.
type loadBatch struct {
	missing []int32 // indices in the caller's batch
	once    rows.Once

	missingKeys []missingKey // missing keys, sorted
	keys        []uint64     // the current chunk of missing keys, unique
	from        []int32      // row in its part for each key, or absent or denied
	each        int          // keys in a part
	parts       []*part
	done        sync.WaitGroup
	fresh       []uint64

	leftKeys  []uint64 // see replay
	leftGrads []float32

	counts *pullPart // the pull whose keys are counted, else nil
	missed []uint64  // keys to count
}

type missingKey struct {
	key uint64
	at  int32
}

// Results for a key that is not in the store.
const (
	absent = -1 // gets its initial weights
	denied = -2 // same, without a row
)

// part is the unit of work of a reader.
type part struct {
	keys   []uint64
	source []int32
	found  store.Rows
	values []float32
	usage  []rows.Usage
	row    rows.Row // view of values
	reads  readMode
	made   int
	err    error
	done   *sync.WaitGroup
}

type readMode uint8

const (
	readForCall readMode = iota // rows are loaded for a call
	prefetching                 // rows are loaded for a future call
	readOnly                    // memory is not changed
)

// bring loads the rows of the batch's missing keys into memory, and creates rows for admitted keys
// without one. It writes the weights of all these rows to dst, and sets the entries of keys without
// a row in drop; dst or drop may be nil.
func (t *Table) bring(tr *loadBatch, keys []uint64, dst []float32, drop []bool) error {
	tr.sort(keys)
	for lo := 0; lo < len(tr.missingKeys); {
		hi := tr.cut(lo, t.partKeys())
		if err := t.room.take(len(tr.keys)); err != nil {
			return err
		}
		made, err := t.enter(tr, drop != nil)
		t.room.give(len(tr.keys) - made)
		if err != nil {
			return err
		}
		t.deliver(tr, tr.missingKeys[lo:hi], dst, drop)
		lo = hi
	}
	return nil
}

func (tr *loadBatch) sort(keys []uint64) {
	tr.missingKeys = tr.missingKeys[:0]
	for _, at := range tr.missing {
		tr.missingKeys = append(tr.missingKeys, missingKey{keys[at], at})
	}
	slices.SortFunc(tr.missingKeys, func(a, b missingKey) int { return cmp.Compare(a.key, b.key) })
}

// cut fills keys with up to most distinct keys of missingKeys from lo, and returns the index of the
// next one.
func (tr *loadBatch) cut(lo, most int) (hi int) {
	tr.keys = tr.keys[:0]
	for hi = lo; hi < len(tr.missingKeys); hi++ {
		if n := len(tr.keys); n == 0 || tr.keys[n-1] != tr.missingKeys[hi].key {
			if n == most {
				break
			}
			tr.keys = append(tr.keys, tr.missingKeys[hi].key)
		}
	}
	tr.from = slices.Grow(tr.from[:0], len(tr.keys))[:len(tr.keys)]
	return hi
}

// enter loads or creates the rows of the batch's keys, and returns the increase of rows in memory.
// It holds the gate from the first read of the store to the last row: see the package comment.
func (t *Table) enter(tr *loadBatch, push bool) (made int, err error) {
	t.gate.RLock()
	defer t.gate.RUnlock()
	made, err = t.readAll(tr, readForCall)
	if err != nil {
		return made, err
	}
	n := 0
	if tr.counts != nil {
		n, err = t.countPart(tr)
	} else {
		n, err = t.make(tr, func(key uint64) bool { return t.admits(key, push) })
	}
	return made + n, err
}

// make creates rows for the batch's absent keys that are admitted. If keys are counted, the rows
// are marked as changed: evicted without an image, such a row would be counted again at the key's
// next pull, and perhaps denied.
func (t *Table) make(tr *loadBatch, admits func(key uint64) bool) (made int, err error) {
	tr.fresh = tr.fresh[:0]
	for i, from := range tr.from {
		if from != absent {
			continue
		}
		if !admits(tr.keys[i]) {
			tr.from[i] = denied
			t.counts.denied.Add(1)
			continue
		}
		tr.fresh = append(tr.fresh, tr.keys[i])
	}
	if len(tr.fresh) == 0 {
		return 0, nil
	}
	made, err = t.rows.Make(tr.fresh, t.filter != nil)
	t.counts.made.Add(int64(made))
	return made, err
}

// leastPart is the minimum number of keys in a part: their read takes as long as waking a reader.
const leastPart = 16

// readAll reads the batch's keys from the store, in parts by several readers.
func (t *Table) readAll(tr *loadBatch, what readMode) (made int, err error) {
	n := len(tr.keys)
	if t.store == nil {
		for i := range tr.from {
			tr.from[i] = absent
		}
		return 0, nil
	}
	tr.each = max(leastPart, (n+2*readers-1)/(2*readers))
	parts := (n + tr.each - 1) / tr.each
	for len(tr.parts) < parts {
		tr.parts = append(tr.parts, &part{done: &tr.done})
	}
	tr.done.Add(parts)
	for i, p := range tr.parts[:parts] {
		lo, hi := i*tr.each, min(n, (i+1)*tr.each)
		p.keys, p.source, p.reads = tr.keys[lo:hi], tr.from[lo:hi], what
		if parts == 1 {
			t.read(p)
		} else {
			t.jobs <- p
		}
	}
	tr.done.Wait()
	for _, p := range tr.parts[:parts] {
		made += p.made
		if what == readForCall {
			t.counts.storeHits.Add(int64(p.found.Len()))
		}
		if err == nil {
			err = p.err
		}
	}
	return made, err
}

// reader reads parts until Close.
func (t *Table) reader() {
	for p := range t.jobs {
		t.read(p)
	}
}

func (t *Table) read(p *part) {
	p.made, p.err = t.readPart(p)
	p.done.Done()
}

// readPart reads a part and writes the rows to memory, except those already in memory.
func (t *Table) readPart(p *part) (made int, err error) {
	if err := t.store.Get(t.cfg.Number, p.keys, &p.found); err != nil {
		return 0, err
	}
	n, width := p.found.Len(), t.rows.Width()
	p.values = slices.Grow(p.values[:0], n*width)[:n*width]
	p.usage = slices.Grow(p.usage[:0], n)[:n]
	at := 0
	for i, key := range p.keys {
		p.source[i] = absent
		if at == n || p.found.Keys[at] != key {
			continue
		}
		values := p.values[at*width:][:width]
		f, day, err := t.readImage(key, p.found.Row(at), values)
		if err != nil {
			return 0, err
		}
		t.view(&p.row, key, values)
		t.age(&p.row, day, t.days.at(t.rows.Hash(key)))
		p.usage[at] = rows.Usage{Last: t.rows.Epoch(), Touches: f.Touches, Stored: true, Changed: t.unseen(f) > 0}
		if p.reads == readForCall {
			p.usage[at].Touches++
		}
		p.source[i] = int32(at)
		at++
	}
	if p.reads == readOnly || n == 0 {
		return 0, nil
	}
	made, err = t.rows.Import(p.found.Keys, p.values, p.usage, false)
	t.counts.both.Add(int64(made))
	return made, err
}

func (t *Table) deliver(tr *loadBatch, want []missingKey, dst []float32, drop []bool) {
	dim, width, at := t.rows.Dim(), t.rows.Width(), 0
	for _, w := range want {
		for tr.keys[at] != w.key {
			at++
		}
		from := tr.from[at]
		if drop != nil {
			drop[w.at] = from == denied
		}
		if dst == nil {
			continue
		}
		to := dst[int(w.at)*dim:][:dim]
		if from >= 0 {
			copy(to, tr.parts[at/tr.each].values[int(from)*width:][:dim])
		} else {
			t.rows.Initial(w.key, to)
		}
	}
}
