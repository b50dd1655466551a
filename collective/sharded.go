package collective

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/panics"
	"github.com/ringo-ml/ringo/transport"
)

// Sharded is an update that the ranks of a host divide: each value belongs to one rank. That rank
// alone sums the gradients, updates the parameters, and writes them to all ranks (weight-update
// sharding; Xu et al. 2020, stage 1 of ZeRO; Rajbhandari et al. 2020). A sharded update reads (1 +
// 1/N)K per rank and writes K, with 1/N of the optimizer's computation and state per rank.
type Sharded struct {
	// Grads are this rank's gradients. nil means that Apply receives no sum.
	Grads []float32
	// Params are the parameters that Apply updates; all ranks then get the results. nil means that
	// the sums remain in the Grads of the rank that a value belongs to.
	Params []float32
	// Counts is the number of values of each rank's part, in the order of ranks, as in AllGatherV.
	// If a part ends inside a cache line, two ranks write to the line alternately.
	Counts []int
	// Apply updates this rank's Params[lo:hi]. The calls are sequential, one per block of this
	// rank's part, at most 4096 values each, on a goroutine of the group; the calls of several
	// operations are concurrent. sum is the sum of the block's gradients, in the order of ranks.
	// Apply may change sum, and must not use it after returning.
	Apply func(lo, hi int, sum []float32)
}

// shardBlock is the maximum number of values per call of Sharded.Apply: at this size the operands
// of two ranks, their sum and the parameters fit the nearest caches.
const shardBlock = 4096

// The slices that a sharded update has, as stored in the root field of its signature.
const (
	shardsGrads = 1 << iota
	shardsParams
)

// CanShard returns the reason why an update of these values cannot be sharded, or nil. All ranks
// must share memory, the values must be in that memory, and an allreduce of this many values must
// use it: otherwise sharded and other updates can differ in bits. Ranks can get different results.
func CanShard(g *Group, values []float32) error {
	if err := canShard(g, values); err != nil {
		return err
	}
	if by := g.method(kindAllReduce, 4*len(values)); by != byDirect {
		return fmt.Errorf("an allreduce of %d values is carried out by %v, which does not share the sums", len(values), by)
	}
	return nil
}

// canShard is CanShard without the condition on the allreduce: a group may sum by any algorithm.
func canShard(g *Group, values []float32) error {
	switch {
	case g.size == 1:
		return fmt.Errorf("the group has one rank")
	case !g.share.whole(g.size):
		return fmt.Errorf("the ranks share no memory")
	case SharedOffset(g, values) < 0:
		return fmt.Errorf("the values are not in memory that the ranks share")
	}
	return nil
}

// StartSharded starts a sharded update in the background, in which ranks wait for each other twice:
// Grads and Params must not be used until Wait has returned. CanShard checks the requirements on
// the values. Counts, and the presence of Grads and Params, must be equal on all ranks.
func StartSharded(g *Group, s Sharded) *Work {
	w := g.newWork(kindSharded, float32s)
	n := max(len(s.Grads), len(s.Params))
	if s.Grads != nil {
		w.x, w.root = bytesview.Bytes(s.Grads), w.root|shardsGrads
	}
	if s.Params != nil {
		w.dst, w.root = bytesview.Bytes(s.Params), w.root|shardsParams
	}
	if s.Grads == nil {
		w.x = w.dst
	}
	switch {
	case w.root == 0 || s.Apply == nil:
		return w.misuse("a shared update needs Apply, and Grads or Params")
	case s.Grads != nil && s.Params != nil && len(s.Grads) != len(s.Params):
		return w.misuse("%d gradients for %d parameters", len(s.Grads), len(s.Params))
	}
	switch sum, err := w.partition(&w.ends, s.Counts, n); {
	case err != nil:
		return w.misuse("a shared update: %w", err)
	case sum != n:
		return w.misuse("a shared update of %d values, but Counts add up to %d", n, sum)
	}
	if err := canShard(g, bytesview.As[float32](w.x)); err != nil {
		return w.misuse("a shared update of %d values: %w", n, err)
	}
	if err := canShard(g, s.Params); err != nil {
		return w.misuse("a shared update of %d parameters: %w", n, err)
	}
	w.apply, w.second = s.Apply, w.place(w.dst)
	w.root |= summaryOfEnds(w.ends)
	return g.start(w, false)
}

// shardsText describes the slices of a sharded update and, by its hash, the partition, for errors.
func shardsText(root int) string {
	what := [...]string{"", " gradients", " parameters", " gradients and parameters"}[root&(shardsGrads|shardsParams)]
	return fmt.Sprintf("%s cut as %02x", what, root>>2)
}

// summaryOfEnds returns a hash of the partition for the signature, so that almost all ranks with
// another partition get an error: they would update some values twice and some never.
func summaryOfEnds(ends []int) (sum int) {
	hash := uint64(0)
	for _, end := range ends {
		hash = (hash ^ uint64(end)) * 0x9e3779b97f4a7c15 // 2^64 over the golden ratio
		hash ^= hash >> 32
	}
	return int(hash>>56) << 2
}

// directSharded executes a sharded update.
func (w *Work) directSharded() error {
	if err := w.arrive(w.place(w.x), len(w.x)); err != nil {
		return err
	}
	if err := w.allPlaced(); err != nil {
		return err
	}
	lo, hi := w.partAt(w.g.rank)
	if len(w.block) < 4*shardBlock {
		w.block = make([]byte, 4*shardBlock)
	}
	for at := lo; at < hi; at += 4 * shardBlock {
		if err := w.shard(at, min(at+4*shardBlock, hi)); err != nil {
			return err
		}
	}
	return w.step(1)
}

// shard updates bytes [lo, hi). A panic of the caller's Apply is an error of the operation.
func (w *Work) shard(lo, hi int) error {
	s, sum := w.g.share, []byte(nil)
	if w.root&shardsGrads != 0 {
		w.srcs, sum = w.srcs[:0], w.x[lo:hi]
		for i := range s.ranks {
			off := w.arrivals[i].off
			w.srcs = append(w.srcs, s.arenas[i][off+lo:off+hi])
		}
		if w.root&shardsParams != 0 { // the sum is temporary, and needs no memory traffic
			sum = w.block[:hi-lo]
		}
		w.dsts = append(w.dsts[:0], sum)
		w.fold(w.dsts, w.srcs)
	}
	err := panics.Do(func() error {
		w.apply(lo/4, hi/4, bytesview.As[float32](sum))
		return nil
	})
	if err != nil || w.root&shardsParams == 0 {
		return err
	}
	for k := 1; k < len(s.ranks); k++ {
		i := (s.me + k) % len(s.ranks) // ranks begin at different destinations
		copy(s.arenas[i][w.arrivals[i].second+lo:], w.dst[lo:hi])
	}
	return nil
}

// allPlaced returns an error if a rank's operands are not in its arena.
func (w *Work) allPlaced() error {
	for i, show := range w.arrivals {
		if !show.placed || w.root&shardsParams != 0 && show.second < 0 {
			return w.waitFault(i, fmt.Errorf("%w: its values are not in memory that the ranks share", transport.ErrLength))
		}
	}
	return nil
}
