package collective

// All-to-all in ceil(log2 N) messages per rank, by forwarding: block j of a rank, for the rank j
// places ahead, travels the distances of the bits set in j, together with all other blocks with the
// same bit. Source: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all
// communications in multiport message-passing systems" (1997).
//
// Cost: ceil(log2 N) a + S/N K/B. S is the number of bits set in the numbers 0 to N-1 together, so
// that S/N is about (log2 N)/2; a pairwise exchange has (N-1) a + (N-1)/N K/B. Bruck's algorithm
// suits short parts and many ranks. The blocks are packed into buffers of 2 K bytes.

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
