package data

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/panics"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/usage"
)

// LoaderConfig configures a Loader.
type LoaderConfig struct {
	Source   Source
	Sampler  Sampler // owned by the Loader after NewLoader
	Seed     uint64  // seed of the augmentation
	Augment  bool
	Workers  int // goroutines that fill batches ahead; 0: Next fills each batch
	Prefetch int // batches filled or in progress ahead of use; 0: Workers+1
}

// Validate returns all errors joined.
func (c LoaderConfig) Validate() error {
	var errs []error
	if c.Source == nil {
		errs = append(errs, errors.New("loader: no source"))
	}
	if c.Sampler == nil {
		errs = append(errs, errors.New("loader: no sampler"))
	}
	if c.Workers < 0 {
		errs = append(errs, fmt.Errorf("loader: %d workers", c.Workers))
	}
	if c.Prefetch < 0 {
		errs = append(errs, fmt.Errorf("loader: %d batches ahead", c.Prefetch))
	}
	return errors.Join(errs...)
}

// Loader fills the batches of an epoch in advance, on several goroutines, and returns them in the
// sampler's order. A batch depends only on indices, seed and epoch: its bytes are equal for any
// number of goroutines. The memory of the 1+Prefetch batches is reused: after the first batches a
// step allocates no memory.
type Loader struct {
	cfg     LoaderConfig
	draw    Draw
	slots   []slot     // a ring: step n of an epoch uses slot n mod len
	queue   chan *slot // never blocks: capacity for all slots
	workers sync.WaitGroup
	stale   atomic.Bool // queued slots are obsolete
	head    int         // oldest slot handed out
	pending int         // slots handed out, from head on
	ended   bool        // sampler at the end
	err     error       // error that ended the epoch
}

// slot is a batch with the arguments of Fill.
type slot struct {
	batch Batch
	idx   []int32
	draw  Draw
	err   error
	done  chan struct{} // one token if the slot is filled
}

// NewLoader starts the workers; Close stops the workers. Call Start before the first epoch.
func NewLoader(cfg LoaderConfig) (*Loader, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ahead := cfg.Prefetch
	switch {
	case cfg.Workers == 0:
		ahead = 0
	case ahead == 0:
		ahead = cfg.Workers + 1
	}
	l := &Loader{cfg: cfg, ended: true, slots: make([]slot, 1+ahead), queue: make(chan *slot, 1+ahead)}
	for i := range l.slots {
		l.slots[i].done = make(chan struct{}, 1)
	}
	for range cfg.Workers {
		l.workers.Go(l.work)
	}
	return l, nil
}

func (l *Loader) work() {
	usage.Phase("data")
	for s := range l.queue {
		if !l.stale.Load() {
			s.err = l.fill(s)
		}
		s.done <- struct{}{}
	}
}

// fill calls the source to fill a batch. It returns an error for a panic of the source or a batch
// of the wrong size.
func (l *Loader) fill(s *slot) error {
	return panics.Do(func() error {
		if err := l.cfg.Source.Fill(&s.batch, s.idx, s.draw); err != nil {
			return err
		}
		return s.batch.fits(l.cfg.Source.Shape(), len(s.idx))
	})
}

// fits returns an error unless the batch has n samples of the shape.
func (b *Batch) fits(shape Shape, n int) error {
	for _, v := range []struct {
		part      string
		got, want int
	}{
		{"samples", b.N, n}, {"values", len(b.Values), n * shape.Size()}, {"ids", len(b.IDs), n * shape.IDs}, {"keys", len(b.Keys), n * shape.Keys},
		{"labels", len(b.Labels), n * shape.Labels}, {"targets", len(b.Targets), n * shape.Targets},
	} {
		if v.got != v.want {
			return fmt.Errorf("data source: a batch of %s for %s: want %d", quantity.Count(v.got, v.part[:len(v.part)-1]), quantity.Count(n, "sample"), v.want)
		}
	}
	return nil
}

// Steps returns the number of batches per epoch.
func (l *Loader) Steps() int { return l.cfg.Sampler.Steps() }

// Start abandons the current epoch, begins an epoch and starts filling batches.
func (l *Loader) Start(epoch int) {
	l.drain()
	l.draw = Draw{Seed: l.cfg.Seed, Epoch: epoch, Augment: l.cfg.Augment}
	l.cfg.Sampler.Start(epoch)
	l.ended, l.err = false, nil
	l.refill()
}

// Seek makes step the epoch's next one, to resume a run. A step outside [0, Steps()] panics.
func (l *Loader) Seek(step int) {
	l.drain()
	l.cfg.Sampler.Seek(step)
	l.ended, l.err = false, nil
	l.refill()
}

// Next returns the next batch, valid until the next call of any method, or false at the end of the
// epoch. If a batch cannot be filled, Next returns the error instead, again until Start or Seek.
func (l *Loader) Next() (*Batch, bool, error) {
	if l.err != nil {
		return nil, false, l.err
	}
	l.refill()
	if l.pending == 0 {
		return nil, false, nil
	}
	s := &l.slots[l.head]
	if l.cfg.Workers == 0 {
		s.err = l.fill(s)
	} else {
		<-s.done
	}
	s.batch.Index = s.idx
	l.head = (l.head + 1) % len(l.slots)
	l.pending--
	if s.err != nil {
		l.err = s.err
		return nil, false, l.err
	}
	return &s.batch, true, nil
}

// Ready returns the number of batches available without waiting; 0 without workers. Call Ready only
// between calls of Next.
func (l *Loader) Ready() (n int) {
	for i := range l.pending {
		n += len(l.slots[(l.head+i)%len(l.slots)].done)
	}
	return n
}

// refill queues every unused slot for the workers, with the indices of a batch.
func (l *Loader) refill() {
	for l.pending < len(l.slots) && !l.ended {
		idx, ok := l.cfg.Sampler.Next()
		if !ok {
			l.ended = true
			return
		}
		s := &l.slots[(l.head+l.pending)%len(l.slots)]
		s.idx = append(s.idx[:0], idx...)
		s.draw, s.err = l.draw, nil
		l.pending++
		if l.cfg.Workers > 0 {
			l.queue <- s
		}
	}
}

// drain takes back all slots: it waits for slots in progress and skips queued slots.
func (l *Loader) drain() {
	l.stale.Store(true)
	for ; l.pending > 0; l.pending-- {
		if l.cfg.Workers > 0 {
			<-l.slots[l.head].done
		}
		l.head = (l.head + 1) % len(l.slots)
	}
	l.stale.Store(false)
	l.ended = true
}

// Close stops the workers and waits for their end. The Loader must not be used again.
func (l *Loader) Close() {
	l.drain()
	close(l.queue)
	l.workers.Wait()
}
