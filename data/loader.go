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

// LoaderConfig says what a Loader reads, and with how many hands.
type LoaderConfig struct {
	Source   Source
	Sampler  Sampler // the Loader's own from now on
	Seed     uint64  // of the augmentation
	Augment  bool
	Workers  int // goroutines that fill batches ahead; 0: Next fills each when asked
	Prefetch int // batches filled or being filled while one is used; 0: Workers+1
}

// Validate reports all faults together.
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

// Loader fills the batches of an epoch ahead of the step that uses them, by
// several goroutines, and hands them out in the sampler's order. A batch
// depends on its indices, the seed and the epoch alone, so that the bytes are
// the same whatever the number of workers. Its 1+Prefetch batches are recycled:
// in the steady state a step allocates nothing.
//
// A Loader belongs to one goroutine, which also runs the sampler: workers get
// a copy of the indices.
type Loader struct {
	cfg     LoaderConfig
	draw    Draw
	slots   []slot     // a ring: step n of an epoch uses slot n mod len
	queue   chan *slot // never blocks: it holds every slot
	workers sync.WaitGroup
	stale   atomic.Bool // what is queued is not wanted any more
	head    int         // the oldest slot given out
	pending int         // slots given out, from head on
	ended   bool        // the sampler has no more
	err     error       // ended the epoch
}

// slot is a batch with what a worker must know to fill it.
type slot struct {
	batch Batch
	idx   []int32
	draw  Draw
	err   error
	done  chan struct{} // holds one token when the slot is filled
}

// NewLoader starts the workers; Close ends them. Call Start before the first
// epoch.
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

// fill has the source fill a batch. A panic of a user's source is an error, and so are batches that
// are not what was asked for.
func (l *Loader) fill(s *slot) error {
	return panics.Do(func() error {
		if err := l.cfg.Source.Fill(&s.batch, s.idx, s.draw); err != nil {
			return err
		}
		return s.batch.fits(l.cfg.Source.Shape(), len(s.idx))
	})
}

// fits reports a batch that is not of n samples of a shape.
func (b *Batch) fits(shape Shape, n int) error {
	for _, v := range []struct {
		what      string
		got, want int
	}{
		{"samples", b.N, n}, {"values", len(b.Values), n * shape.Size()}, {"ids", len(b.IDs), n * shape.IDs}, {"keys", len(b.Keys), n * shape.Keys},
		{"labels", len(b.Labels), n * shape.Labels}, {"targets", len(b.Targets), n * shape.Targets},
	} {
		if v.got != v.want {
			return fmt.Errorf("data source: a batch of %s for %s: want %d", quantity.Count(v.got, v.what[:len(v.what)-1]), quantity.Count(n, "sample"), v.want)
		}
	}
	return nil
}

// Steps is the number of batches per epoch.
func (l *Loader) Steps() int { return l.cfg.Sampler.Steps() }

// Start begins an epoch, giving up what is left of another, and has the first
// batches filled.
func (l *Loader) Start(epoch int) {
	l.drain()
	l.draw = Draw{Seed: l.cfg.Seed, Epoch: epoch, Augment: l.cfg.Augment}
	l.cfg.Sampler.Start(epoch)
	l.ended, l.err = false, nil
	l.refill()
}

// Seek makes step the next one of the epoch that was started, for a run
// resumed in the middle of it. A step outside [0, Steps()] panics.
func (l *Loader) Seek(step int) {
	l.drain()
	l.cfg.Sampler.Seek(step)
	l.ended, l.err = false, nil
	l.refill()
}

// Next returns the next batch, which is good until the next call of any
// method, or false when the epoch is over. An error comes in the place of the
// batch that it spoilt, and then again until Start or Seek.
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

// Ready is how many batches Next has without waiting; 0 where there are no workers. It may be called between calls of Next.
func (l *Loader) Ready() (n int) {
	for i := range l.pending {
		n += len(l.slots[(l.head+i)%len(l.slots)].done)
	}
	return n
}

// refill gives out every free slot.
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

// drain takes back every slot: what is being filled is waited for, what is
// queued is not filled.
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

// Close ends the workers and waits for them. The Loader is not used again.
func (l *Loader) Close() {
	l.drain()
	close(l.queue)
	l.workers.Wait()
}
