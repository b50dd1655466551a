package loadgen

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/ringo-ml/ringo/ps/client"
)

// step is the step of all messages: without a Clock it does not end.
const step = 1

type trainer struct {
	l       *Load
	c       *client.Client
	session *client.Session
	dim     int
	width   int // values of a pushed row: gradient and counts
	random  *rand.Rand
	grads   []float32 // gradients of a batch

	// pool and the next fields are the state of a measurement.
	pool   pool
	unique set
	dst    [][]float32    // destinations of the pulls in flight
	way    []*client.Pull // pulls in flight
	fresh  int            // new keys per batch
	pushed []int32        // indices of pushed batches, in order
	newest uint64         // first new rank of the last batch
	us     []float64      // time of each batch in µs
	rows   int64
	count  int64 // number of batches
}

// grad returns the gradient at an index of a batch, with its counts.
func (t *trainer) grad(place int) []float32 { return t.grads[place*t.width:][:t.width] }

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

// batch returns the next batch's index and keys, with new keys at its end.
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

// stream runs work until a time, with several batches in flight.
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

// push pushes and records a batch, unless the work only pulls.
func (t *trainer) push(w Work, i int, keys []uint64) error {
	if w.Op == Pull {
		return nil
	}
	t.pushed = append(t.pushed, int32(i))
	return t.session.PushRows(0, step, keys, t.grads[:w.Batch*t.width])
}

// single runs work until a time, one batch at a time.
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

// update applies all pushes to the oracle, and adds some of the newest keys to it.
func (t *trainer) update(o *oracle) {
	old := t.pool.size - t.fresh
	at := make([][][2]int32, t.pool.batches()) // watched slots and their indices, by batch
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

// fill pushes once to each key of ranks from next to end.
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

// settle returns when all sent bytes are counted: it sends one more request and waits for the
// answer, because messages are written sequentially.
func (t *trainer) settle() error {
	p, err := t.session.PeekRows(0, step, []uint64{Key(0)}, make([]float32, t.dim))
	if err == nil {
		err = p.Wait()
	}
	return err
}
