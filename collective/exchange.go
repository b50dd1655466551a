package collective

// Exchange, for two ranks: both send all of x simultaneously, and add segment by segment while
// later segments are in transit: a + K/B + K/G, the bytes of a ring of two in half its steps. Both
// add in the order of the ranks, so the bits are equal.

func (w *Work) exchangeAllReduce() error {
	peer := 1 - w.scope.rank
	if err := w.exchange(step{to: peer, out: w.x, from: peer, in: w.x, operand: w.x}); err != nil {
		return err
	}
	w.average(w.x)
	return nil
}
