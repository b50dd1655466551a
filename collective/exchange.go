package collective

// Exchange, for two ranks: both send all of x at once, and each adds segment by
// segment what comes while the rest is on its way: a + K/B + K/G. That is the
// bytes of a ring of two in half its steps. Both add in the order of the ranks and
// get the same bits.

func (w *Work) exchangeAllReduce() error {
	peer := 1 - w.scope.rank
	if err := w.exchange(step{to: peer, out: w.x, from: peer, in: w.x, operand: w.x}); err != nil {
		return err
	}
	w.average(w.x)
	return nil
}
