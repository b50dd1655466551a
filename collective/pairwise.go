package collective

// Pairwise: every rank sends each other rank one part, in N-1 independent steps. In step k a rank
// sends to the rank k places ahead, and receives from the rank k places behind, so that no rank
// receives from two simultaneously.
//
// Cost of all-to-all, gather and scatter with K bytes: (N-1)/N K bytes in N-1 messages. An
// allgather sends the same part N-1 times, and a reduce-scatter receives N-1 operands for one part.
// An allreduce is a reduce-scatter and then an allgather, or both row by row (rows.go): the ring's
// 2(N-1)/N K bytes in 2(N-1) messages, but in two rounds instead of 2(N-1). Pairwise suits few
// ranks on one host: its parts travel between hosts many times.

// walk is a position in the sequence of messages of all steps; a rank has one for sent messages and
// one for received ones.
type walk struct {
	step    int // number from 1 to size-1
	segment int // next segment of the step
	at      int // messages until now
}

// pairwise executes steps 1 to N-1; move returns the data of a step.
func (w *Work) pairwise(move func(*Work, int) step) error {
	depth := w.depth()
	out, asked, in := walk{step: 1}, walk{step: 1}, walk{step: 1}
	for {
		for asked.at < in.at+depth {
			s, i, ok := w.nextOf(&asked, move, false)
			if !ok {
				break
			}
			slot := (asked.at - 1) % depth
			w.postTo(slot, i, s.from, w.landing(s, i, slot, depth))
		}
		s, i, ok := w.nextOf(&in, move, false)
		if err := w.sendUntil(&out, in, !ok, depth, move); err != nil || !ok {
			return err
		}
		slot := (in.at - 1) % depth
		if err := w.waitFor(slot, s.from); err != nil {
			return err
		}
		if s.operand != nil {
			dst := w.cut(s.in, i)
			w.combine(dst, w.cut(s.operand, i), w.landing(s, i, slot, depth))
		}
	}
}

// sendUntil sends the messages that may be sent before message in is received, or all. These are
// all messages of earlier steps, messages of the same step up to `posted` segments after in's, and
// messages of the next depth-1 steps up to depth messages after in. The limits are by step, because
// parts can differ in length: with a limit on messages alone ranks could wait in a circle.
func (w *Work) sendUntil(out *walk, in walk, all bool, depth int, move func(*Work, int) step) error {
	for {
		next := *out
		s, i, ok := w.nextOf(&next, move, true)
		ahead := next.step > in.step && (next.at > in.at+depth || next.step >= in.step+depth)
		ahead = ahead || next.step == in.step && next.segment > in.segment+posted
		if !ok || ahead && !all {
			return nil
		}
		if err := w.send(i, s.to, w.cut(s.out, i)); err != nil {
			return err
		}
		*out = next
	}
}

// nextOf advances a walk to the next message and returns it: segment i of step s.
func (w *Work) nextOf(l *walk, move func(*Work, int) step, sending bool) (s step, i int, ok bool) {
	for ; l.step < w.scope.size; l.step, l.segment = l.step+1, 0 {
		s = move(w, l.step)
		n := w.segmentsOf(s.in)
		if sending {
			n = w.segmentsOf(s.out)
		}
		if l.segment < n {
			l.segment++
			l.at++
			return s, l.segment - 1, true
		}
	}
	return step{}, 0, false
}

// landing returns the memory where segment i of s arrives: its place in s.in, or, if it will be
// added to an operand, buffer slot of count.
func (w *Work) landing(s step, i, slot, count int) []byte {
	dst := w.cut(s.in, i)
	if s.operand != nil {
		return w.spaceOf(slot, count, len(dst))
	}
	return dst
}

// depth returns the number of receives started in advance: more for short parts, because latency
// dominates their duration.
func (w *Work) depth() int {
	const short = 4096
	if w.bytes()/w.scope.size <= short {
		return slots / 2
	}
	return posted
}

// places returns the receiver and the sender of step k.
func (w *Work) places(k int) (to, from int) {
	return (w.scope.rank + k) % w.scope.size, mod(w.scope.rank-k, w.scope.size)
}

func (w *Work) region(place int) []byte {
	lo, hi := w.chunk(place)
	return w.x[lo:hi]
}

// pairScatter reduces this rank's chunk over the ranks of the scope, into result().
func (w *Work) pairScatter() error {
	w.arrivalBuffers(w.depth(), min(w.largest(), w.segmentBytes()))
	if w.dst != nil && w.scope.size > 1 {
		copy(w.dst, w.region(w.scope.rank))
	}
	if err := w.pairwise(pairReduce); err != nil {
		return err
	}
	w.average(w.result())
	return nil
}

// result returns the memory for this rank's reduced chunk: dst, or its place in x if dst is empty.
func (w *Work) result() []byte {
	if w.dst != nil {
		return w.dst
	}
	return w.region(w.scope.rank)
}

// largest is the length of the longest chunk.
func (w *Work) largest() int {
	n := 0
	for i := range w.scope.size {
		lo, hi := w.chunk(i)
		n = max(n, hi-lo)
	}
	return n
}

func pairReduce(w *Work, k int) step {
	to, from := w.places(k)
	own := w.result()
	return step{to: to, out: w.region(to), from: from, in: own, operand: own}
}

// pairGather sends every rank's chunk of x to all ranks.
func (w *Work) pairGather() error { return w.pairwise(pairSpread) }

func pairSpread(w *Work, k int) step {
	to, from := w.places(k)
	return step{to: to, out: w.region(w.scope.rank), from: from, in: w.region(from)}
}

func (w *Work) pairAllReduce() error {
	w.chooseZeroCopy()
	if err := w.pairReduceAll(); err != nil || !w.zeroCopy {
		return err
	}
	w.zeroCopy = false
	w.nextPhase()
	return w.disseminate()
}

func (w *Work) pairReduceAll() error {
	if r, ok := w.newRows(); ok {
		return r.allReduce()
	}
	if err := w.pairScatter(); err != nil {
		return err
	}
	w.nextPhase()
	return w.pairGather()
}

// nextPhase restarts the message numbers for the next phase.
func (w *Work) nextPhase() { w.base += 1 << phaseBits }

func (w *Work) pairReduceScatter() error {
	w.byRank = true
	return w.pairScatter()
}

func (w *Work) pairAllGather() error {
	w.settle()
	return w.pairGather()
}

// settle divides x into one chunk per rank, and copies src to this rank's chunk.
func (w *Work) settle() {
	w.byRank = true
	lo, _ := w.chunk(w.scope.rank)
	copy(w.x[lo:], w.src)
}

func (w *Work) pairAllToAll() error {
	to, from := w.parcels(w.scope.rank, w.scope.rank)
	copy(from, to)
	return w.pairwise(pairSwap)
}

func pairSwap(w *Work, k int) step {
	to, from := w.places(k)
	out, in := w.parcels(to, from)
	return step{to: to, out: out, from: from, in: in}
}

// parcels returns the data for the rank at place to, and the buffer for data from place from.
func (w *Work) parcels(to, from int) (out, in []byte) {
	if w.kind == kindAllToAllV {
		return stretch(w.x, w.outs, to), stretch(w.dst, w.ends, from)
	}
	n := len(w.x) / w.scope.size
	return w.x[to*n : (to+1)*n], w.dst[from*n : (from+1)*n]
}

// stretch returns part i of p; ends are the ends of the parts.
func stretch(p []byte, ends []int, i int) []byte {
	lo := 0
	if i > 0 {
		lo = ends[i-1]
	}
	return p[lo:ends[i]]
}

// pairRoot gathers to the root, or scatters from it.
func (w *Work) pairRoot() error {
	if w.g.rank == w.root {
		lo, hi := w.root*w.share(), (w.root+1)*w.share()
		copy(w.x[lo:hi], w.src)
		copy(w.dst, w.x[lo:hi])
	}
	return w.pairwise(pairRooted)
}

// share returns the length in bytes of a rank's part in a gather or scatter.
func (w *Work) share() int { return max(len(w.src), len(w.dst)) }

func pairRooted(w *Work, k int) step {
	to, from := w.places(k)
	s, n := step{to: to, from: from}, w.share()
	gather, root := w.kind == kindGather, w.scope.rank == w.root
	switch {
	case gather && root:
		s.in = w.x[from*n : (from+1)*n]
	case gather && to == w.root:
		s.out = w.src
	case !gather && root:
		s.out = w.x[to*n : (to+1)*n]
	case !gather && from == w.root:
		s.in = w.dst
	}
	return s
}

// All-to-all in ceil(log2 N) messages per rank, by forwarding: block j of a rank, for the rank j
// places ahead, travels 2^b places for each bit b set in j, in one message with all other blocks
// that have bit b set. Source: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for
// all-to-all communications in multiport message-passing systems" (1997).
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
