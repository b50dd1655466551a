package collective

// All-to-all in ceil(log2 N) messages from each rank, by passing on: block j of a
// rank, which is for the one j places on, travels the distances that the bits of j
// say, together with all other blocks that have the bit. Source: Bruck, Ho, Kipnis,
// Upfal and Weathersby, "Efficient algorithms for all-to-all communications in
// multiport message-passing systems" (1997).
//
// Cost: ceil(log2 N) a + B/N K/B with B the bits that are set in 0 to N-1, about
// (log2 N)/2 K, where a pairwise exchange has (N-1) a + (N-1)/N K/B: for short parts
// and many ranks. The blocks are kept and packed in 2 K bytes.

func (w *Work) bruckAllToAll() error {
	rank, size := w.scope.rank, w.scope.size
	n := len(w.x) / size
	half := (size + 1) / 2 * n
	held := w.hold(len(w.x) + 2*half)
	blocks, out, in := held[:len(w.x)], held[len(w.x):][:half], held[len(w.x)+half:]
	at := rank * n
	copy(blocks, w.x[at:])
	copy(blocks[len(w.x)-at:], w.x[:at])
	for k, far := 0, 1; far < size; k, far = k+1, far*2 {
		packed := 0
		for j := far; j < size; j++ {
			if j&far != 0 {
				packed += copy(out[packed:], blocks[j*n:][:n])
			}
		}
		err := w.exchange(step{number: k, to: (rank + far) % size, out: out[:packed], from: mod(rank-far, size), in: in[:packed]})
		if err != nil {
			return err
		}
		packed = 0
		for j := far; j < size; j++ {
			if j&far != 0 {
				packed += copy(blocks[j*n:][:n], in[packed:])
			}
		}
	}
	for j := range size {
		copy(w.dst[mod(rank-j, size)*n:][:n], blocks[j*n:])
	}
	return nil
}
