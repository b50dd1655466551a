package collective

// Recursive halving and doubling, after Rabenseifner: a reduce-scatter that
// halves what it sends in every step, then an allgather that doubles it. Instead
// of folding N to a power of two first, partners lie at distances on a circle, so
// that any N takes ceil(log2 N) steps each way and 2(N-1)/N K bytes, which is
// optimal. Sources: Rabenseifner, "Optimization of collective reduction
// operations" (2004); Träff, "Optimal, non-pipelined reduce-scatter and allreduce
// algorithms" (2024).
//
// Cost: 2 ceil(log2 N) a + 2(N-1)/N K/B + (N-1)/N K/G. Chunks that go past the
// last to the first are two messages.

func (w *Work) halvingAllReduce() error {
	if err := w.halve(); err != nil {
		return err
	}
	w.nextPhase()
	return w.doublingGather()
}

// halvingReduceScatter leaves x alone and works in a copy of it: it is for short
// slices.
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

// halve is doublingGather backwards: before a step at distance d a rank has sums
// for d chunks from its own on and for the next d, or all others; it sends those
// away, and adds what another has of its own ones. In the end chunk r of rank r
// is whole.
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
