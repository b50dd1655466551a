package exchange

import (
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// The algorithms of sparse exchanges.
const (
	// AllGather: every rank gets the payloads of all. It sends (N-1)/N of them all,
	// which grows with N; the fewest messages.
	AllGather = "allgather"
	// Tree: in log2 N steps, each rank exchanges the sum that it has with one that is
	// twice as far away as in the step before, and merges (SSAR recursive doubling of
	// SparCML; Renggli et al., SC 2019). For few entries: few messages, and what
	// ranks have in common travels once.
	Tree = "tree"
	// Split: each rank sums its part of the vector, sent to it by all others, and
	// hands it to all (Ok-Topk; Li and Hoefler, PPoPP 2022). It sends (N-1)/N of a
	// payload and of the sum's, and borders between the parts are moved so that all
	// receive about the same.
	Split = "split"
	// Dense: an allreduce of all values, as float32.
	Dense = "dense"
)

// Algorithms are the names of the algorithms of sparse exchanges.
func Algorithms() []string { return []string{AllGather, Tree, Split, Dense} }

// Situation is all that a choice depends on. It is the same on every rank.
type Situation struct {
	Ranks   int
	Len     int  // of the vector
	Entries int  // of all ranks' contributions together
	Payload int  // bytes of all ranks' payloads together
	Most    int  // Request.MaxEntries
	Blocks  bool // the code's blocks cannot be cut: parts and sums travel as float32
}

// Density is the mean share of entries that a rank contributes.
func (s Situation) Density() float64 {
	return float64(s.Entries) / float64(max(1, s.Ranks)) / float64(max(1, s.Len))
}

// Cost is what an exchange takes of the busiest rank when all contribute the same
// number of entries, at independent places.
type Cost struct {
	Steps    int // that follow each other
	Messages int // that it sends
	Bytes    int // likewise, of payload
	Entries  int // that it encodes, decodes, merges or adds
}

// What a step, a message and an entry count for in Choose, in bytes: 33 µs, 8 µs and
// 8 ns at 1 Gbit/s.
const (
	stepBytes    = 4096
	messageBytes = 1024
	entryBytes   = 1
)

func (c Cost) weight() int {
	return c.Bytes + stepBytes*c.Steps + messageBytes*c.Messages + entryBytes*c.Entries
}

// Cost estimates an algorithm; of an unknown one it is zero.
//
// With N ranks that contribute k of n entries each, K = N k, in payloads of p bytes,
// a sum of U = n (1 - (1-k/n)^N) entries or at most MaxEntries, and L = ceil(log2 N), a
// rank sends, beside the frames' L messages of 24 (N-1) bytes:
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
// Messages that do not depend on each other are one step.
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
	if n >= 8 { // by doubling
		steps, messages, lengths = log2(n), log2(n), 0
		for i := range n {
			lengths += 8 * bits.OnesCount(uint(i))
		}
	}
	return Cost{1 + steps + gather, n - 1 + messages + gather, share(parts+sums, n) + lengths + (8+2*headerBytes)*(n-1), 3*own + 2*sum}
}

// treeCost counts a rank of those that others hand their vectors to, where there are
// such.
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

// union is how many entries the sum is expected to have. Products are rounded as
// such: the same on every rank, whether or not its processor fuses.
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

// share is what an allgather of so many bytes makes a rank send.
func share(bytes, n int) int { return int(int64(bytes) * int64(n-1) / int64(n)) }

// gatherSteps is how many an allgather takes, see collective, each with a message.
func gatherSteps(n, bytes int) int {
	if bytes <= 256<<10 {
		return log2(n)
	}
	return n - 1
}

// log2 is rounded up.
func log2(n int) int { return bits.Len(uint(n - 1)) }

// Choose is the fixed rule: the algorithm of the least cost, where a step counts as
// 4 KiB, a message as 1 KiB and an entry as 1 byte; of equal ones the first of
// Algorithms. Where the
// ranks contribute more entries together than the vector is long, a density beyond
// 1/N, it is never AllGather.
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

// Use makes the group choose by another function from the next exchange on, as
// Config.Choose; nil: by the fixed rule. Every rank calls it between the same two
// exchanges, when none is under way. It is an error where an algorithm was
// configured.
func (e *GroupReducer) Use(choose func(Situation) string) error {
	if e.cfg.Algorithm != "" {
		return fmt.Errorf("exchange: algorithm %q is configured: no other choice has an effect", e.cfg.Algorithm)
	}
	e.cfg.Choose = choose
	return nil
}

// choose is as configured.
func (e *GroupReducer) choose(s Situation) string {
	switch {
	case e.cfg.Algorithm != "":
		return e.cfg.Algorithm
	case e.cfg.Choose != nil:
		return e.cfg.Choose(s)
	}
	return Choose(s)
}

// even is the situation where each of the ranks contributes k of n entries, as
// float32.
func even(ranks, n, k int) Situation {
	return Situation{Ranks: ranks, Len: n, Entries: ranks * k, Payload: ranks * PayloadBytes(n, k)}
}

// Explain says in one line by which algorithms entries of op would be exchanged, as
// their density grows, and why. Of op it looks at X's length, Code, and whether the sum
// has at most as many entries as a rank contributes (MaxEntries above 0).
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

// lastLike is the largest number of entries, k to n, up to which the choice stays that of
// k, looked for in steps of a sixteenth, and then halves.
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
