package collective

// Recursive halving and doubling, after Rabenseifner: a reduce-scatter that halves the data sent in
// every step, then an allgather that doubles them. ringo does not fold N to a power of two first:
// partners are at distances on a circle, so that any N takes ceil(log2 N) steps in each phase and
// 2(N-1)/N K bytes, the optimum. Sources: Rabenseifner, "Optimization of collective reduction
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

// halvingReduceScatter works in a copy of x, for short slices.
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
