package collective

// Exchange, for two ranks: both send all of x, K bytes, simultaneously, and add segment by segment
// while later segments are in transit. Time: a + K/B + K/G (latency a, bandwidth B, addition at G
// bytes per second): the bytes of a ring of two ranks in half the steps. Both add in the order of
// the ranks, so the bits are equal.

func (w *Work) exchangeAllReduce() error {
	peer := 1 - w.scope.rank
	if err := w.exchange(step{to: peer, out: w.x, from: peer, in: w.x, operand: w.x}); err != nil {
		return err
	}
	w.average(w.x)
	return nil
}

// naiveAllReduce sends all of x of every rank to rank 0. Rank 0 adds in rank order, scales, and
// sends the result to each rank. Rank 0 moves (N-1)K bytes in each direction, so the time grows
// linearly with N: 2(N-1)K/B. Tests and measurements compare the ring with the naive algorithm.
func (w *Work) naiveAllReduce() error {
	if w.g.rank > 0 {
		if err := w.exchange(step{to: 0, out: w.x}); err != nil {
			return err
		}
		return w.exchange(step{from: 0, in: w.x})
	}
	for from := 1; from < w.g.size; from++ {
		if err := w.exchange(step{from: from, in: w.x, operand: w.x}); err != nil {
			return err
		}
	}
	w.average(w.x)
	for to := 1; to < w.g.size; to++ {
		if err := w.exchange(step{to: to, out: w.x}); err != nil {
			return err
		}
	}
	return nil
}
