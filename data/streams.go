package data

// Streams is the sampler of sequences in order, for a model with state across steps (truncated
// back-propagation through time). The set is cut into Size*Batch contiguous streams; rank r has the
// streams r*Batch to (r+1)*Batch-1, one per position of the batch. Step s is the s-th sequence of
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
