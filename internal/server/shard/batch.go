package shard

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/server/rows"
)

// Pull writes the weights of keys' rows to dst, len(keys)*Dim values, in order. Rows in the store
// are loaded, and keys without a row get one if they are admitted; for other keys dst gets the
// initial weights. A batch may contain a key more than once.
//
// If memory is full and rows cannot be evicted, the error wraps a *store.LimitError: no data is
// lost, and the caller may retry when the store has space.
func (t *Table) Pull(keys []uint64, dst []float32) error {
	if t.filter != nil {
		return t.PullCounted(rows.PullID{}, keys, dst, nil)
	}
	t.counts.pulled.Add(int64(len(keys)))
	if t.store == nil {
		return t.fault("pull", t.rows.Pull(keys, dst))
	}
	tr := t.batches.Get()
	defer t.batches.Put(tr)
	var err error
	if tr.missing, err = t.rows.PullPresent(keys, dst, tr.missing[:0]); err != nil || len(tr.missing) == 0 {
		return t.fault("pull", err)
	}
	t.counts.missed.Add(int64(len(tr.missing)))
	return t.fault("pull", t.bring(tr, keys, dst, nil))
}

// Peek writes the weights of keys' rows to dst, len(keys)*Dim values, in order, with initial
// weights for keys without a row. Peek creates, moves and counts no row: evaluation uses it.
func (t *Table) Peek(keys []uint64, dst []float32) error {
	tr := t.batches.Get()
	defer t.batches.Put(tr)
	var err error
	if tr.missing, err = t.rows.Peek(keys, dst, tr.missing[:0]); err != nil || len(tr.missing) == 0 || t.store == nil {
		return t.fault("peek", err)
	}
	// A row that was not in memory is in the store, up to date, or nowhere.
	tr.sort(keys)
	for lo := 0; lo < len(tr.missingKeys); {
		hi := tr.cut(lo, t.chunk)
		if err := t.look(tr); err != nil {
			return t.fault("peek", err)
		}
		t.deliver(tr, tr.missingKeys[lo:hi], dst, nil)
		lo = hi
	}
	return nil
}

// look reads the batch's rows from the store, and leaves the rows in memory unchanged.
func (t *Table) look(tr *loadBatch) error {
	t.gate.RLock() // guards the dayClock
	defer t.gate.RUnlock()
	_, err := t.readAll(tr, readOnly)
	return err
}

// patience is the number of retries of a push before pushHeld stops evictions.
const patience = 4

// Push applies the rule with gradients of keys, len(keys)*PushDim values in order (see rows.Table),
// each multiplied by scale. Each pair of a session, 0 to rows.MaxSessions-1, and a number, from 1,
// is applied once. A session's pushes are sequential and in order. After an error the caller
// repeats the same call, and rows that include the push skip the repetition.
//
// A key without a row gets one if it is admitted; otherwise its gradient is dropped. Push rejects a
// batch with a duplicate key (rows.ErrDuplicate) or with more keys than memory has capacity for
// rows.
func (t *Table) Push(session int, seq uint64, keys []uint64, grads []float32, scale float32) error {
	tr := t.batches.Get()
	defer t.batches.Put(tr)
	if r := t.replay.Load(); r != nil && len(grads) == len(keys)*t.rows.PushDim() {
		keys, grads = r.deferred(t, tr, session, seq, keys, grads)
	}
	t.counts.pushed.Add(int64(len(keys)))
	return t.fault("push", t.push(tr, session, seq, keys, grads, scale))
}

func (t *Table) push(tr *loadBatch, session int, seq uint64, keys []uint64, grads []float32, scale float32) error {
	o := &tr.once
	if t.store == nil {
		*o = rows.Once{Create: true}
		return t.rows.PushOnce(session, seq, keys, grads, scale, o)
	}
	if len(keys) > t.room.maxRows {
		return fmt.Errorf("%d keys in a batch, memory has room for %d rows: make batches smaller or raise MemoryBytes", len(keys), t.room.maxRows)
	}
	o.Drop = slices.Grow(o.Drop[:0], len(keys))[:len(keys)]
	clear(o.Drop)
	for try := 0; ; try++ {
		o.Missing = o.Missing[:0]
		if err := t.rows.PushOnce(session, seq, keys, grads, scale, o); err != nil || len(o.Missing) == 0 {
			return err
		}
		if try == patience {
			break
		}
		if try == 0 {
			t.counts.missed.Add(int64(len(o.Missing)))
		}
		tr.missing = append(tr.missing[:0], o.Missing...)
		if err := t.bring(tr, keys, nil, o.Drop); err != nil {
			return err
		}
	}
	for n := len(o.Missing); n > 0; {
		var err error
		if n, err = t.pushHeld(tr, n, session, seq, keys, grads, scale); err != nil {
			return err
		}
	}
	return nil
}

// pushHeld retries the push with evictions stopped, after it reserves memory for n rows. It returns
// the number of rows still missing, if the batch needs more than n.
func (t *Table) pushHeld(tr *loadBatch, n int, session int, seq uint64, keys []uint64, grads []float32, scale float32) (left int, err error) {
	n = min(n, t.chunk)
	if err := t.room.take(n); err != nil {
		return n, err
	}
	t.upkeep.Lock()
	defer t.upkeep.Unlock()
	made := 0
	defer func() { t.room.give(n - made) }()
	o := &tr.once
	for range 2 {
		o.Missing = o.Missing[:0]
		err = t.rows.PushOnce(session, seq, keys, grads, scale, o)
		if err != nil || len(o.Missing) == 0 || made > 0 {
			return len(o.Missing), err
		}
		tr.missing = append(tr.missing[:0], o.Missing[:min(n, len(o.Missing))]...)
		tr.sort(keys)
		hi := tr.cut(0, n)
		if made, err = t.enter(tr, true); err != nil {
			return n, err
		}
		t.deliver(tr, tr.missingKeys[:hi], nil, o.Drop)
	}
	return len(o.Missing), nil
}
