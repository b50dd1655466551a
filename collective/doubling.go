package collective

import "math/bits"

// Recursive doubling: in step k a rank exchanges all its data with the rank at distance 2^k.
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH" (2005).
//
// Allreduce: a rank sends all of x, K bytes, in each of log2 N steps. Time: log2 N (a + K/B + K/G),
// with latency a, bandwidth B and addition at G bytes per second: few messages, many bytes, for
// short slices. If N is not a power of two, N - 2^floor(log2 N) ranks first send their x to a
// neighbour and receive the result at the end, in two more steps. Every rank combines the sum of
// lower ranks with the sum of higher ones, so that all ranks compute the same bits.

func (w *Work) doublingAllReduce() error {
	rank, size := w.scope.rank, w.scope.size
	full := 1 << (bits.Len(uint(size)) - 1)
	extra := size - full
	last := w.lastStep()
	if rank < 2*extra && rank%2 == 0 {
		if err := w.exchange(step{to: rank + 1, out: w.x}); err != nil {
			return err
		}
		return w.exchange(step{number: last, from: rank + 1, in: w.x})
	}
	if rank < 2*extra {
		if err := w.exchange(step{from: rank - 1, in: w.x, operand: w.x}); err != nil {
			return err
		}
	}
	own := rank - extra // among the 2^k that are left
	if rank < 2*extra {
		own = rank / 2
	}
	for k, far := 1, 1; far < full; k, far = k+1, far*2 {
		peer := unfolded(own^far, extra)
		if err := w.exchange(step{number: k, to: peer, out: w.x, from: peer, in: w.x, operand: w.x}); err != nil {
			return err
		}
	}
	w.average(w.x)
	if rank < 2*extra {
		return w.exchange(step{number: last, to: rank - 1, out: w.x})
	}
	return nil
}

// unfolded returns the rank that has number own among the 2^k ranks that remain after extra of 2^k
// + extra ranks have sent their x to a neighbour.
func unfolded(own, extra int) int {
	if own < extra {
		return 2*own + 1
	}
	return own + extra
}

// lastStep returns a message number above all step numbers of doubling.
func (w *Work) lastStep() int { return rounds(w.scope.size) + 1 }

// doublingAllGather is Bruck's algorithm for any N, in place: in step k rank r, with the parts of
// ranks r to r+2^k-1, receives the parts of the next 2^k ranks, or all missing parts. ceil(log2 N)
// steps, (N-1)/N K bytes. Parts that wrap past the last rank to rank 0 are two messages. Source:
// Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all communications in
// multiport message-passing systems" (1997).
func (w *Work) doublingAllGather() error {
	w.settle()
	return w.doublingGather()
}

func (w *Work) doublingGather() error {
	rank, size := w.scope.rank, w.scope.size
	for k, far := 0, 1; far < size; k, far = k+1, far*2 {
		n := min(far, size-far)
		err := w.exchangeChunks(k, chunkRange{mod(rank-far, size), rank, n}, chunkRange{(rank + far) % size, (rank + far) % size, n}, false)
		if err != nil {
			return err
		}
	}
	return nil
}

// chunkRange is a range of n chunks, from chunk first on, that peer sends or receives. After the
// last chunk it continues with chunk 0.
type chunkRange struct{ peer, first, n int }

// exchangeChunks sends the chunks out of x, and receives the chunks in, which are added to x or
// overwrite x. If chunks wrap past the last chunk, both pieces are one exchange, so that no rank
// sends its second piece only after receiving.
func (w *Work) exchangeChunks(number int, out, in chunkRange, add bool) error {
	outs, ins := w.split(out), w.split(in)
	s := step{number: 2 * number, to: out.peer, from: in.peer}
	s.out, s.moreOut = w.x[outs[0].lo:outs[0].hi], w.x[outs[1].lo:outs[1].hi]
	s.in, s.moreIn = w.x[ins[0].lo:ins[0].hi], w.x[ins[1].lo:ins[1].hi]
	if add {
		s.operand = s.in
	}
	return w.exchange(s)
}

type span struct{ lo, hi int }

// split returns the bytes of a range of chunks, in two pieces if it wraps past the last chunk.
func (w *Work) split(r chunkRange) (out [2]span) {
	n := min(r.n, w.scope.size-r.first)
	out[0].lo, out[0].hi = w.chunks(r.first, r.first+n)
	if n < r.n {
		out[1].lo, out[1].hi = w.chunks(0, r.n-n)
	}
	return out
}

// disseminate is the barrier: in round k every rank sends an empty message to the rank at distance
// 2^k to the right, after receiving the messages of earlier rounds. ceil(log2 N) rounds (Hensgen,
// Finkel and Manber 1988).
func (w *Work) disseminate() error {
	rank, size := w.scope.rank, w.scope.size
	for k, far := 0, 1; far < size; k, far = k+1, far*2 {
		from := mod(rank-far, size)
		w.post(k, from, nil)
		if err := w.send(k, (rank+far)%size, nil); err != nil {
			return err
		}
		if err := w.wait(k, from); err != nil {
			return err
		}
	}
	return nil
}

// Recursive halving and doubling, after Rabenseifner: a reduce-scatter that halves the data sent in
// every step, then an allgather that doubles them. The paper first reduces N to a power of two; in
// ringo partners are at distances on a circle, so that any N takes ceil(log2 N) steps in each phase
// and 2(N-1)/N K bytes, the optimum. Sources: Rabenseifner, "Optimization of collective reduction
// operations" (2004); Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms"
// (2024).
//
// Cost: 2 ceil(log2 N) a + 2(N-1)/N K/B + (N-1)/N K/G. Chunks that wrap past the last are two
// messages.

func (w *Work) halvingAllReduce() error {
	if err := w.halve(); err != nil {
		return err
	}
	w.nextPhase()
	return w.doublingGather()
}

// halvingReduceScatter reduces a copy of x, which it only reads. It suits short slices.
func (w *Work) halvingReduceScatter() error {
	w.byRank = true
	x := w.x
	w.x = w.hold(len(x))
	copy(w.x, x)
	err := w.halve()
	copy(w.dst, w.region(w.scope.rank))
	w.x = x
	return err
}

// halve is doublingGather in reverse: before a step at distance d a rank has partial sums of its
// chunk and up to 2d-1 following chunks. The rank sends the later sums, and adds a peer's sums to
// the first. In the end rank r has the complete chunk r.
func (w *Work) halve() error {
	rank, size := w.scope.rank, w.scope.size
	for k := rounds(size) - 1; k >= 0; k-- {
		far := 1 << k
		n := min(far, size-far)
		err := w.exchangeChunks(k, chunkRange{(rank + far) % size, (rank + far) % size, n}, chunkRange{mod(rank-far, size), rank, n}, true)
		if err != nil {
			return err
		}
	}
	w.average(w.region(rank))
	return nil
}
