package loadgen

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/ringo-ml/ringo/ps/client"
)

// step is the step of all that is asked and sent: without a Clock it does not end.
const step = 1

// trainer is one of the clients.
type trainer struct {
	l       *Load
	c       *client.Client
	session *client.Session
	dim     int
	width   int // of a row that is pushed: its gradient and the counts that the rule wants
	random  *rand.Rand
	grads   []float32 // of a batch, by place

	// One measurement's.
	pool   pool
	unique set
	dst    [][]float32    // of the pulls under way
	way    []*client.Pull // these
	fresh  int            // keys of a batch that nobody has asked for before
	pushed []int32        // batches, in order
	newest uint64         // the first rank of the fresh ones of the last batch
	us     []float64      // of each batch
	rows   int64
	count  int64 // batches
}

// grad is the gradient at a place of a batch, with its counts.
func (t *trainer) grad(place int) []float32 { return t.grads[place*t.width:][:t.width] }

// prepare draws keys and makes room for rows.
func (t *trainer) prepare(n uint64, w Work, keys int) error {
	if err := t.pool.draw(n, w.Batch, keys, w.Dist, &t.unique, t.random); err != nil {
		return err
	}
	for len(t.dst) < w.InFlight {
		t.dst = append(t.dst, nil)
	}
	for i := range t.dst {
		if len(t.dst[i]) < w.Batch*t.dim {
			t.dst[i] = make([]float32, w.Batch*t.dim)
		}
	}
	t.fresh = int(w.Insert * float64(w.Batch))
	t.pushed, t.us = t.pushed[:0], t.us[:0]
	return nil
}

// batch is the next batch's number and keys, its last ones as fresh as the work says.
func (t *trainer) batch() (i int, keys []uint64) {
	i = t.pool.take()
	keys = t.pool.batch(i)
	if t.fresh > 0 {
		t.newest = t.l.fresh.Add(uint64(t.fresh)) - uint64(t.fresh)
		for k := range t.fresh {
			keys[len(keys)-t.fresh+k] = Key(t.newest + uint64(k))
		}
	}
	return i, keys
}

// stream does work until a time, with several batches under way.
func (t *trainer) stream(w Work, until time.Time) error {
	t.way = t.way[:0]
	for turn := 0; turn == 0 || time.Now().Before(until); turn++ {
		i, keys := t.batch()
		if w.Op != Push {
			if len(t.way) == w.InFlight {
				if err := t.way[0].Wait(); err != nil {
					return err
				}
				t.way = append(t.way[:0], t.way[1:]...)
			}
			p, err := t.session.PullRows(0, step, keys, t.dst[turn%w.InFlight][:w.Batch*t.dim])
			if err != nil {
				return err
			}
			t.way = append(t.way, p)
		}
		if err := t.push(w, i, keys); err != nil {
			return err
		}
		t.rows += int64(w.Batch)
		t.count++
	}
	for _, p := range t.way {
		if err := p.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// push pushes a batch where the work says so, and notes it.
func (t *trainer) push(w Work, i int, keys []uint64) error {
	if w.Op == Pull {
		return nil
	}
	t.pushed = append(t.pushed, int32(i))
	return t.session.PushRows(0, step, keys, t.grads[:w.Batch*t.width])
}

// single does work until a time, one batch after the other.
func (t *trainer) single(ctx context.Context, w Work, until time.Time) error {
	for turn := 0; turn == 0 || time.Now().Before(until); turn++ {
		i, keys := t.batch()
		start := time.Now()
		if w.Op != Push {
			p, err := t.session.PullRows(0, step, keys, t.dst[0][:w.Batch*t.dim])
			if err == nil {
				err = p.Wait()
			}
			if err != nil {
				return err
			}
		}
		if w.Op != Pull {
			if err := t.push(w, i, keys); err != nil {
				return err
			}
			if err := t.c.Flush(ctx); err != nil {
				return err
			}
		}
		t.us = append(t.us, 1e6*time.Since(start).Seconds())
		t.rows += int64(w.Batch)
		t.count++
	}
	return nil
}

// update lets the oracle know what was pushed, and has it watch some of the keys that were
// made last.
func (t *trainer) update(o *oracle) {
	old := t.pool.size - t.fresh
	at := make([][][2]int32, t.pool.batches()) // by batch: slots of watched keys and their places
	for i := range at {
		for place, key := range t.pool.batch(i)[:old] {
			if slot, ok := o.slots[key]; ok {
				at[i] = append(at[i], [2]int32{slot, int32(place)})
			}
		}
	}
	for _, i := range t.pushed {
		for _, hit := range at[i] {
			o.push(hit[0], t.grad(int(hit[1])))
		}
	}
	if t.count == 0 {
		return
	}
	const most = 16
	for k := range min(most, t.fresh) {
		o.watch(t.newest + uint64(k))
		if len(t.pushed) > 0 {
			o.push(int32(len(o.keys)-1), t.grad(old+k))
		}
	}
}

// fill pushes to each key of ranks from next on below an end, once.
func (t *trainer) fill(next interface{ Add(uint64) uint64 }, end uint64) error {
	keys := make([]uint64, fillBatch)
	for {
		lo := next.Add(fillBatch) - fillBatch
		if lo >= end {
			return nil
		}
		n := int(min(fillBatch, end-lo))
		for i := range n {
			keys[i] = Key(lo + uint64(i))
		}
		if err := t.session.PushRows(0, step, keys[:n], t.grads[:n*t.width]); err != nil {
			return err
		}
		t.rows += int64(n)
		t.count++
	}
}

// settle returns when all that was sent is counted: messages are written one after the
// other, and one more has been.
func (t *trainer) settle() error {
	p, err := t.session.PeekRows(0, step, []uint64{Key(0)}, make([]float32, t.dim))
	if err == nil {
		err = p.Wait()
	}
	return err
}
