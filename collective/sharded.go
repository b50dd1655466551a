package collective

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/panics"
	"github.com/ringo-ml/ringo/transport"
)

// Sharded is an update whose work the ranks of a host share: each place has one owner,
// which alone sums its gradients and updates its parameters, and writes them to all
// (weight-update sharding; Xu et al. 2020, stage 1 of ZeRO; Rajbhandari et al. 2020).
//
// An allreduce of K bytes of gradients on N ranks and an update of K bytes of parameters
// by every rank, without optimizer state, move 5K bytes through each rank: K read and K
// written, then 2K read and K written. Shared, these are (1 + 1/N)K read and K written,
// and what the optimizer computes, and reads and writes of its state, is 1/N.
type Sharded struct {
	// Grads are this rank's, to be summed; nil: nothing is, and Apply has no sum.
	Grads []float32
	// Params are what Apply changes and all ranks then have; nil: nothing is, and sums
	// are left in the owner's Grads.
	Params []float32
	// Counts is how many values each rank's part has, in the order of ranks, as in AllGatherV.
	// Parts that end within a cache line make two ranks write to it by turns.
	Counts []int
	// Apply updates this rank's Params[lo:hi]. It is called with one block of this rank's
	// part after the other, at most 4096 values each, on a goroutine of the group:
	// those of several operations run at the same time. sum is the sum of the block's
	// gradients, in the order of ranks, which is Apply's to change and to nobody else
	// any more when it has returned.
	Apply func(lo, hi int, sum []float32)
}

// shardBlock is how many values Sharded.Apply is given at most: those of two ranks,
// their sum and the parameters stay in the nearest caches.
const shardBlock = 4096

// What takes part, as it stands in a signature in the place of a root.
const (
	shardsGrads = 1 << iota
	shardsParams
)

// CanShard reports why an update of these values cannot be shared; nil: it can. All ranks
// must share memory, in which the values lie, and sums of so many be made there: those of
// another algorithm may have other bits. Ranks need not have the same answer.
func CanShard(g *Group, values []float32) error {
	if err := canShard(g, values); err != nil {
		return err
	}
	if by := g.method(kindAllReduce, 4*len(values)); by != byDirect {
		return fmt.Errorf("an allreduce of %d values is carried out by %v, which does not share the sums", len(values), by)
	}
	return nil
}

// canShard is CanShard whatever makes sums: a shared update has one algorithm.
func canShard(g *Group, values []float32) error {
	switch {
	case g.size == 1:
		return fmt.Errorf("the group has one rank")
	case !g.share.whole(g.size):
		return fmt.Errorf("the ranks share no memory")
	case SharedOffset(g, values) < 0:
		return fmt.Errorf("the values do not lie in the memory that the ranks share")
	}
	return nil
}

// StartSharded is a shared update in the background, in one exchange of flags before it
// and one after: Grads and Params must not be touched until Wait has returned. Values must
// lie where CanShard wants them, and Counts, and which of Grads and Params there are, be
// the same on every rank.
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

// shardsText describes what takes part and, by its hash, the cut.
func shardsText(root int) string {
	what := [...]string{"", " gradients", " parameters", " gradients and parameters"}[root&(shardsGrads|shardsParams)]
	return fmt.Sprintf("%s cut as %02x", what, root>>2)
}

// summaryOfEnds goes with the signature beside what takes part, so that nearly all ranks
// that cut otherwise are told: they would update some places twice and some never.
func summaryOfEnds(ends []int) (sum int) {
	hash := uint64(0)
	for _, end := range ends {
		hash = (hash ^ uint64(end)) * 0x9e3779b97f4a7c15 // 2^64 over the golden ratio
		hash ^= hash >> 32
	}
	return int(hash>>56) << 2
}

// directSharded carries a shared update out.
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

// shard does bytes [lo, hi). A panic of Apply, which is the caller's, is an error of the operation.
func (w *Work) shard(lo, hi int) error {
	s, sum := w.g.share, []byte(nil)
	if w.root&shardsGrads != 0 {
		w.srcs, sum = w.srcs[:0], w.x[lo:hi]
		for i := range s.ranks {
			off := w.arrivals[i].off
			w.srcs = append(w.srcs, s.arenas[i][off+lo:off+hi])
		}
		if w.root&shardsParams != 0 { // then nobody needs the sum, and memory is spared it
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
		i := (s.me + k) % len(s.ranks) // so that not all write to the same one
		copy(s.arenas[i][w.arrivals[i].second+lo:], w.dst[lo:hi])
	}
	return nil
}

// allPlaced reports a rank whose operands do not lie in its arena.
func (w *Work) allPlaced() error {
	for i, show := range w.arrivals {
		if !show.placed || w.root&shardsParams != 0 && show.second < 0 {
			return w.waitFault(i, fmt.Errorf("%w: its values do not lie in the memory that the ranks share", transport.ErrLength))
		}
	}
	return nil
}
