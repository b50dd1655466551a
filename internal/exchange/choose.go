package exchange

import (
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Algorithms of sparse exchanges.
const (
	// AllGather: every rank gets the payloads of all ranks, in the fewest messages. Each sends
	// (N-1)/N of all payloads, which grow with N.
	AllGather = "allgather"
	// Tree: in log2 N steps, each rank exchanges its sum with a rank twice as far away as in the
	// step before, and merges (SSAR recursive doubling of SparCML; Renggli et al., SC 2019). For
	// few entries: few messages, and common entries travel once.
	Tree = "tree"
	// Split: each rank sums its part of the vector, received from all ranks, and sends the sum to
	// all (Ok-Topk; Li and Hoefler, PPoPP 2022). It sends (N-1)/N of a payload and of the sum's;
	// borders between the parts move so that all ranks receive about the same.
	Split = "split"
	// Dense: an allreduce of all values, as float32.
	Dense = "dense"
)

// Algorithms returns the names of the algorithms of sparse exchanges.
func Algorithms() []string { return []string{AllGather, Tree, Split, Dense} }

// Situation has the numbers from which an algorithm is chosen, equal on every rank.
type Situation struct {
	Ranks   int
	Len     int  // vector length
	Entries int  // sum over the contributions of all ranks
	Payload int  // bytes of all ranks' payloads
	Most    int  // Request.MaxEntries
	Blocks  bool // the code's blocks cannot be cut: parts and sums travel as float32
}

// Cost is the cost of an exchange for the busiest rank if all contribute the same number of
// entries, at independent indices.
type Cost struct {
	Steps    int // sequential steps
	Messages int // messages sent
	Bytes    int // payload bytes sent
	Entries  int // entries encoded, decoded, merged or added
}

// Cost of a step, a message and an entry in Choose, in bytes: 33 µs, 8 µs and 8 ns at 1 Gbit/s.
const (
	stepBytes    = 4096
	messageBytes = 1024
	entryBytes   = 1
)

func (c Cost) weight() int {
	return c.Bytes + stepBytes*c.Steps + messageBytes*c.Messages + entryBytes*c.Entries
}

// Cost estimates an algorithm; the estimate is zero for an unknown one.
//
// With N ranks that contribute k of n entries each, K = N k, in payloads of p bytes, a sum of U = n
// (1 - (1-k/n)^N) entries or at most MaxEntries, and L = ceil(log2 N), a rank sends, in addition to
// the frames' L messages of 24 (N-1) bytes:
//
//	allgather  (N-1) p in L messages, N-1 of payloads longer than 256 KiB together
//	tree       8 k (P-1) + 4 log2 P, P = 2^floor(log2 N), in log2 P messages, the sums
//	           of P/2 ranks at most 8 n; where N > P two more of K and less
//	split      (N-1)/N (p + u), u the payload of U float32, 32 (N-1) of headers and
//	           lengths, and those of an alltoall of lengths: 8 (N-1), of 8 ranks and
//	           more 4 N L; in N-1 + L messages, as many as an allgather of u takes, and
//	           N-1 or L for the alltoall
//	dense      2 (N-1)/N 4 n, up to 128 KiB log2 N 4 n
//
// Independent messages are one step.
func (s Situation) Cost(algorithm string) Cost {
	n, own := s.Ranks, s.Entries/max(1, s.Ranks)
	switch algorithm {
	case AllGather:
		return Cost{gatherSteps(n, s.Payload), gatherSteps(n, s.Payload), share(s.Payload, n), own + s.Entries}
	case Tree:
		return s.treeCost()
	case Split:
		return s.splitCost()
	case Dense:
		bytes := 4 * s.Len
		switch {
		case bytes <= 128<<10:
			return Cost{log2(n), log2(n), log2(n) * bytes, s.Len / 16}
		case bytes <= 1<<20:
			return Cost{2 * log2(n), 2 * log2(n), 2 * share(bytes, n), s.Len / 16}
		}
		return Cost{2 * (n - 1), 2 * (n - 1), 2 * share(bytes, n), s.Len / 16}
	}
	return Cost{}
}

func (s Situation) splitCost() Cost {
	n, own, sum := s.Ranks, s.Entries/max(1, s.Ranks), s.union()
	parts := s.Payload / max(1, n)
	if s.Blocks {
		parts = PayloadBytes(s.Len, own)
	}
	sums := PayloadBytes(s.Len, sum)
	gather := log2(n) + gatherSteps(n, sums)
	steps, messages, lengths := 1, n-1, 8*(n-1)
	if n >= 8 { // recursive doubling
		steps, messages, lengths = log2(n), log2(n), 0
		for i := range n {
			lengths += 8 * bits.OnesCount(uint(i))
		}
	}
	return Cost{1 + steps + gather, n - 1 + messages + gather, share(parts+sums, n) + lengths + (8+2*headerBytes)*(n-1), 3*own + 2*sum}
}

// treeCost returns the cost for a rank that receives the vector of another rank first, if N is not
// a power of two.
func (s Situation) treeCost() Cost {
	n, own := s.Ranks, s.Entries/max(1, s.Ranks)
	full := 1 << (bits.Len(uint(n)) - 1)
	var c Cost
	step := func(entries int) {
		entries = min(entries, s.Len)
		c.Steps++
		c.Messages++
		c.Bytes += 4 + 8*entries
		c.Entries += 2 * entries
	}
	if n > full {
		step(own)
		own *= 2
	}
	for far := 1; far < full; far *= 2 {
		step(own * far)
	}
	if n > full {
		step(s.Entries)
	}
	c.Entries += s.union()
	return c
}

// union is the expected number of entries of the sum. Products are rounded explicitly: the result
// is equal on every rank, with or without fused multiply-add.
func (s Situation) union() int {
	if s.Len == 0 {
		return 0
	}
	absent := 1 - float64(s.Entries)/float64(s.Ranks)/float64(s.Len)
	u := int(math.Ceil(float64(s.Len) * (1 - power(absent, s.Ranks))))
	if s.Most > 0 {
		u = min(u, s.Most)
	}
	return u
}

// share is the number of bytes a rank sends in an allgather of bytes.
func share(bytes, n int) int { return int(int64(bytes) * int64(n-1) / int64(n)) }

// gatherSteps is the number of steps, each with a message, of an allgather; see collective.
func gatherSteps(n, bytes int) int {
	if bytes <= 256<<10 {
		return log2(n)
	}
	return n - 1
}

// log2 is rounded up.
func log2(n int) int { return bits.Len(uint(n - 1)) }

// Choose is the fixed rule: the algorithm of the least cost, with a step as 4 KiB, a message as 1
// KiB and an entry as 1 byte; the first of Algorithms among equals. If the ranks together
// contribute more entries than the vector's length, a density above 1/N, the choice is never
// AllGather.
func Choose(s Situation) string {
	best, least := Dense, math.MaxInt
	for _, name := range Algorithms() {
		if name == AllGather && s.Entries > s.Len {
			continue
		}
		if w := s.Cost(name).weight(); w < least {
			best, least = name, w
		}
	}
	return best
}

// Use sets Config.Choose from the next exchange on; nil means the fixed rule. Every rank calls it
// between the same two exchanges, with none in flight. A configured algorithm is an error.
func (e *GroupReducer) Use(choose func(Situation) string) error {
	if e.cfg.Algorithm != "" {
		return fmt.Errorf("exchange: algorithm %q is configured: no other choice has an effect", e.cfg.Algorithm)
	}
	e.cfg.Choose = choose
	return nil
}

func (e *GroupReducer) choose(s Situation) string {
	switch {
	case e.workers != nil:
		return AllGather
	case e.cfg.Algorithm != "":
		return e.cfg.Algorithm
	case e.cfg.Choose != nil:
		return e.cfg.Choose(s)
	}
	return Choose(s)
}

// even returns the Situation in which each rank contributes k of n entries, as float32.
func even(ranks, n, k int) Situation {
	return Situation{Ranks: ranks, Len: n, Entries: ranks * k, Payload: ranks * PayloadBytes(n, k)}
}

// Explain names in one line the algorithms for the entries of op by density, and the reason. It
// reads the length of X, Code, and whether MaxEntries limits the sum to the entries of a rank.
func (e *GroupReducer) Explain(op *Request) string {
	n := len(op.X)
	choose := func(k int) string {
		s := even(e.size, n, k)
		if s.Blocks = op.code().Block() > 1; op.MaxEntries > 0 {
			s.Most = k
		}
		return e.choose(s)
	}
	var b strings.Builder
	why := "by the fixed rule"
	switch {
	case e.cfg.Algorithm != "":
		why = "as configured"
	case e.cfg.Choose != nil:
		why = "by a tuned choice"
	}
	fmt.Fprintf(&b, "%d values over %d ranks, %s: ", n, e.size, why)
	name := ""
	for k := min(1, n); k <= n; {
		last := name
		name = choose(k)
		next := lastLike(choose, n, k)
		if last != "" {
			b.WriteString(", then ")
		}
		b.WriteString(name)
		if next < n {
			fmt.Fprintf(&b, " to density %s", quantity.FloatDigits(float64(next)/float64(n), 2))
		}
		k = next + 1
	}
	return b.String()
}

// lastLike returns the largest number of entries, from k to n, up to which the choice is that of k.
// It searches in steps of a sixteenth, then by halves.
func lastLike(choose func(k int) string, n, k int) int {
	name := choose(k)
	for k < n {
		next := min(n, k+1+k/16)
		if choose(next) == name {
			k = next
			continue
		}
		for next-k > 1 {
			mid := k + (next-k)/2
			if choose(mid) == name {
				k = mid
			} else {
				next = mid
			}
		}
		break
	}
	return k
}
