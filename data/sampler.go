package data

import (
	"errors"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/data/prng"
)

// SamplerConfig selects the samples of a rank and the batch size.
type SamplerConfig struct {
	N        int    // samples in the set
	Batch    int    // samples per step and rank
	Rank     int    // 0 <= Rank < Size
	Size     int    // ranks that share the set
	Seed     uint64 // seed of the shuffle; equal on every rank
	Evaluate bool   // set order and each sample once, for evaluation
	Streams  bool   // sequences in order: Streams instead of Shards
	Fixed    bool   // training: each rank keeps one part in all epochs, shuffled separately
	Most     int    // training: maximum steps of an epoch, if other ranks have no more; 0: no limit
}

// steps returns the number of training batches per epoch, equal on every rank. The last batch can
// be short but never empty, because batch normalisation and servers need a sample; with batches of
// 1, the last N mod Size samples of an epoch's order are therefore dropped.
func (c SamplerConfig) steps() int {
	if c.Streams {
		return c.bounded(c.N / (c.Size * c.Batch))
	}
	return c.bounded(c.all())
}

// all returns the number of training batches of Shards, without the limit Most.
func (c SamplerConfig) all() int {
	lo, hi := c.part(0)
	return (hi - lo + c.Batch - 1) / c.Batch
}

// part returns a rank's positions [lo, hi) in the shuffled order of training.
func (c SamplerConfig) part(rank int) (lo, hi int) {
	return partition(c.N, rank, c.Size, c.Batch == 1)
}

// span returns the range of a training batch in the rank's part. If the part is one sample shorter
// than rank 0's, so that the last batch would be empty, the last sample moves from the batch before
// to the last batch.
func (c SamplerConfig) span(step int) (lo, hi int) {
	first, end := c.part(c.Rank)
	n, all := end-first, c.all()
	lo, hi = step*c.Batch, min((step+1)*c.Batch, n)
	switch {
	case n > (all-1)*c.Batch:
	case step == all-2:
		hi--
	case step == all-1:
		lo--
	}
	return lo, hi
}

// Samples returns the number of samples of training batch step, from 0, on the rank; 0 after the
// last batch.
func (c SamplerConfig) Samples(step int) int {
	if step >= c.steps() {
		return 0
	}
	if c.Streams {
		return c.Batch
	}
	lo, hi := c.span(step)
	return hi - lo
}

// Validate returns all errors joined.
func (c SamplerConfig) Validate() error {
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("sampler: "+format, args...))
		}
	}
	fault(c.N < 1 || c.N > math.MaxInt32, "%d samples: need 1 to %d", c.N, math.MaxInt32)
	fault(c.Batch < 1, "batch %d: need at least 1", c.Batch)
	fault(c.Most < 0, "%d steps at most: want none below 0", c.Most)
	fault(c.Size < 1, "world size %d: need at least 1", c.Size)
	fault(c.Rank < 0 || c.Rank >= c.Size, "rank %d of %d: need 0 <= rank < world size", c.Rank, c.Size)
	if len(errs) == 0 && !c.Evaluate {
		fault(c.N/c.Size < c.Batch, "%d samples over %d ranks give each %d, fewer than one batch of %d: use fewer ranks, a smaller batch or more samples",
			c.N, c.Size, c.N/c.Size, c.Batch)
	}
	return errors.Join(errs...)
}

// Sampler returns one rank's batches of an epoch as indices into a set. All ranks make the same
// number of steps. The methods allocate no memory.
type Sampler interface {
	// Steps returns the number of batches per epoch.
	Steps() int
	// Start begins any epoch, in any order. It invalidates the slices returned by Next.
	Start(epoch int)
	// Seek makes a step of the current epoch the next one: a resumed run gets the batches of an
	// uninterrupted run. A step outside [0, Steps()] panics.
	Seek(step int)
	// Next returns the indices of the next batch, valid until the next call of any method, or false
	// at the end of the epoch.
	Next() (idx []int32, ok bool)
}

// NewSampler checks cfg and returns Shards or Streams. Call Start before the first epoch.
func NewSampler(cfg SamplerConfig) (Sampler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Streams {
		return newStreams(cfg), nil
	}
	return newShards(cfg), nil
}

// bounded returns a number of training steps, or Most if that is less.
func (c SamplerConfig) bounded(steps int) int {
	if c.Most > 0 {
		return min(steps, c.Most)
	}
	return steps
}

// position is a sampler's position in an epoch.
type position struct{ step, steps int }

func (p *position) seek(step, steps int) {
	if step < 0 || step > steps {
		panic(fmt.Sprintf("data: step %d of an epoch of %d", step, steps))
	}
	p.step, p.steps = step, steps
}

// advance returns the next step, or false at the end of the epoch or before Start.
func (p *position) advance() (step int, ok bool) {
	if p.step == p.steps {
		return 0, false
	}
	p.step++
	return p.step - 1, true
}

// Shards is the sampler of independent samples.
//
// Training: all ranks shuffle the whole set identically. Each rank takes a contiguous part of the
// shuffled positions, cut into batches; the last batch has the rest of the part. Parts differ by at
// most one sample, and every rank has at least one sample in every batch: see
// SamplerConfig.Samples.
//
// Fixed training: the set is divided before shuffling. Each rank has the same part in every epoch,
// shuffled separately.
//
// Evaluation: no shuffle, and one rank evaluates each sample once; the last batch can be short.
// Parts differ by at most one sample; if that sample needs an additional step, ranks without the
// sample have an empty batch in that step.
type Shards struct {
	cfg    SamplerConfig
	order  []int32
	lo, hi int   // this rank's range of field order
	first  int32 // start of a fixed part; order then has this part only
	at     position
}

func newShards(cfg SamplerConfig) *Shards {
	s := &Shards{cfg: cfg}
	if s.lo, s.hi = cfg.part(cfg.Rank); cfg.Evaluate {
		s.lo, s.hi = partition(cfg.N, cfg.Rank, cfg.Size, false)
	}
	if cfg.Fixed && !cfg.Evaluate {
		s.first, s.lo, s.hi = int32(s.lo), 0, s.hi-s.lo
		s.order = make([]int32, s.hi)
		return s
	}
	s.order = make([]int32, cfg.N)
	for i := range s.order { // evaluation never reorders
		s.order[i] = int32(i)
	}
	return s
}

// Steps returns the number of batches per epoch, equal on every rank.
func (s *Shards) Steps() int {
	if s.cfg.Evaluate {
		largest := (s.cfg.N-1)/s.cfg.Size + 1
		return (largest-1)/s.cfg.Batch + 1
	}
	return s.cfg.steps()
}

// Start begins an epoch. Training shuffles, O(N).
func (s *Shards) Start(epoch int) {
	if !s.cfg.Evaluate {
		s.order = permutation(s.cfg.Seed, epoch, len(s.order), s.order)
	}
	if s.first > 0 {
		for i := range s.order {
			s.order[i] += s.first
		}
	}
	s.at.seek(0, s.Steps())
}

// Seek makes step the next one.
func (s *Shards) Seek(step int) { s.at.seek(step, s.Steps()) }

// Next returns the indices of the next batch, or false when the epoch is over.
func (s *Shards) Next() (idx []int32, ok bool) {
	step, ok := s.at.advance()
	if !ok {
		return nil, false
	}
	if !s.cfg.Evaluate {
		lo, hi := s.cfg.span(step)
		return s.order[s.lo+lo : s.lo+hi : s.lo+hi], true
	}
	lo := min(s.lo+step*s.cfg.Batch, s.hi)
	hi := min(lo+s.cfg.Batch, s.hi)
	return s.order[lo:hi:hi], true
}

// Streams is the sampler of sequences in order, for a model with state across steps (truncated
// back-propagation through time). The set is cut into Size*Batch contiguous streams; rank r has the
// streams r*Batch to (r+1)*Batch-1, one for each sample of a batch. Step s is the s-th sequence of
// each stream. The order is equal in every epoch.
//
// Training: all streams have N/(Size*Batch) sequences; the last N mod (Size*Batch) sequences are
// dropped.
//
// Evaluation: each sequence occurs once. Stream lengths differ by at most one, longer streams
// first, so the last batch can have only the first positions, or be empty.
type Streams struct {
	cfg SamplerConfig
	idx []int32
	at  position
}

func newStreams(cfg SamplerConfig) *Streams {
	return &Streams{cfg: cfg, idx: make([]int32, 0, min(cfg.Batch, cfg.N))}
}

// Steps returns the number of batches per epoch, equal on every rank.
func (s *Streams) Steps() int {
	n, streams := s.cfg.N, s.cfg.Size*s.cfg.Batch
	if s.cfg.Evaluate {
		return (n-1)/streams + 1
	}
	return s.cfg.steps()
}

// Start begins an epoch at the start of every stream.
func (s *Streams) Start(int) { s.at.seek(0, s.Steps()) }

// Seek makes step the next one.
func (s *Streams) Seek(step int) { s.at.seek(step, s.Steps()) }

// Next returns the indices of the next batch, or false when the epoch is over.
func (s *Streams) Next() (idx []int32, ok bool) {
	step, ok := s.at.advance()
	if !ok {
		return nil, false
	}
	s.idx = s.idx[:0]
	for place := range s.cfg.Batch {
		stream := s.cfg.Rank*s.cfg.Batch + place
		lo, hi := partition(s.cfg.N, stream, s.cfg.Size*s.cfg.Batch, !s.cfg.Evaluate)
		if lo+step >= hi { // all later streams are at the end, too
			break
		}
		s.idx = append(s.idx, int32(lo+step))
	}
	return s.idx, true
}

// partition returns the positions [lo, hi) of n for a rank of size, cut contiguously as in SINGA.
// With dropRemainder every rank gets n/size positions, and the last n mod size positions are
// dropped. Otherwise the first n mod size ranks get one position more. 0 <= rank < size.
func partition(n, rank, size int, dropRemainder bool) (lo, hi int) {
	each, rest := n/size, n%size
	if dropRemainder {
		rest = 0
	}
	lo = rank*each + min(rank, rest)
	hi = lo + each
	if rank < rest {
		hi++
	}
	return lo, hi
}

// permutation returns a random order of 0..n-1 that depends only on (seed, epoch, n), so all ranks
// compute the same order without communication. It reuses dst if large enough. Fisher-Yates: O(n),
// about 5 ns per element while the order fits the cache.
func permutation(seed uint64, epoch, n int, dst []int32) []int32 {
	dst = bytesview.Sized(dst, n)
	for i := range dst {
		dst[i] = int32(i)
	}
	r := prng.New(seed, uint64(epoch), uint64(n))
	for i := n - 1; i > 0; i-- {
		j := r.Below(i + 1)
		dst[i], dst[j] = dst[j], dst[i]
	}
	return dst
}
