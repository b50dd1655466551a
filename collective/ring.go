package collective

// Ring allreduce. Every rank sends to its right neighbour and receives from its left one. x is cut
// into N chunks: N-1 steps of reduce-scatter sum the chunks, and N-1 steps of allgather distribute
// the sums. Sources: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations" (2009); Gibiansky, "Bringing HPC Techniques to Deep Learning" (2017).
//
// Cost with K bytes, bandwidth B, latency a per message and addition at G bytes per second: 2(N-1)a
// + 2(N-1)/N K/B + (N-1)/N K/G; segments overlap the last two terms.

// RingStep is a step of a rank: the chunk sent and the chunk received.
type RingStep struct {
	Send, Receive int
	Reduce        bool // received values are added (reduce-scatter); false: they overwrite (allgather)
}

// RingSchedule returns the 2(size-1) steps of rank in a ring allreduce.
//
// In step s of the reduce-scatter rank n sends chunk n-s and receives n-s-1, modulo size; then rank
// n owns the complete chunk n+1. In step s of the allgather rank n sends n+1-s and receives n-s.
// Every step sends the chunk received in the previous step, so segments flow without a barrier
// between steps.
func RingSchedule(rank, size int) []RingStep {
	steps := make([]RingStep, 0, 2*(size-1))
	for s := range size - 1 {
		steps = append(steps, RingStep{mod(rank-s, size), mod(rank-s-1, size), true})
	}
	for s := range size - 1 {
		steps = append(steps, RingStep{mod(rank+1-s, size), mod(rank-s, size), false})
	}
	return steps
}

// RingChunk returns the bounds [lo, hi) of chunk i of size chunks of n values. The first n mod size
// chunks have one value more.
func RingChunk(n, size, i int) (lo, hi int) {
	short, longer := n/size, n%size
	lo = i*short + min(i, longer)
	hi = lo + short
	if i < longer {
		hi++
	}
	return lo, hi
}

func mod(a, n int) int { return (a%n + n) % n }

func (w *Work) ringAllReduce() error {
	w.alongHosts()
	return w.ring(w.scope.steps, true)
}

// alongHosts orders the ring of the whole group by host: one rank per host sends to another.
func (w *Work) alongHosts() {
	if w.scope == &w.g.all {
		w.scope = &w.g.ring
	}
}

// ringAllGather makes the first N-1 steps of the ring without addition: the rank at place n begins
// with chunk n.
func (w *Work) ringAllGather() error {
	w.alongHosts()
	w.settle()
	return w.ringGather()
}

func (w *Work) ringGather() error {
	if len(w.x) == 0 {
		return nil
	}
	return w.ring(w.scope.steps[:w.scope.size-1], false)
}

// ringReduceScatter is the ring's first half, with chunks shifted by one, so that the rank at place
// n ends with chunk n. x is only read: partial sums are in a separate buffer, and the last step
// writes to dst.
func (w *Work) ringReduceScatter() error {
	w.alongHosts()
	w.byRank = true
	n := w.scope.size
	out := w.region(mod(w.scope.rank-1, n))
	held := w.hold(2 * len(w.dst))
	for k := range n - 1 {
		in := held[k%2*len(w.dst):][:len(w.dst)]
		if k == n-2 {
			in = w.dst
		}
		err := w.exchange(step{
			number: k, to: (w.scope.rank + 1) % n, out: out,
			from: mod(w.scope.rank-1, n), in: in, operand: w.region(mod(w.scope.rank-2-k, n)),
		})
		if err != nil {
			return err
		}
		out = in
	}
	w.average(w.dst)
	return nil
}

// hold returns a buffer of n bytes that no other operation uses until this one ends.
func (w *Work) hold(n int) []byte {
	if len(w.partial) < n {
		w.partial = make([]byte, n)
	}
	return w.partial[:n]
}

// ring performs steps. Each step forwards the chunk that the previous step received: the messages
// sent are the segments of this rank's first chunk, then all received messages except those of the
// last step, in order. The right neighbour receives them in the same order. Message i to the right
// neighbour therefore has number i in its tag.
//
// Sends run at most `posted` messages ahead of the receives, so that no rank floods its neighbour.
// In the allgather received values overwrite sent ones: the receive of message i starts only after
// message i to the right was sent.
//
// Large messages are zero-copy. A zero-copy send needs its values until the right neighbour has
// them. They are overwritten only by a sum that contains them, which has passed that neighbour;
// awaitConsumed waits for the messages of the last round.
//
// If parts differ in length, a rank that has received all messages may still have many to send. Its
// left neighbour has then sent all, so that ranks with waiting sends never form a cycle.
func (w *Work) ring(steps []RingStep, reduce bool) error {
	left, right := mod(w.scope.rank-1, w.scope.size), (w.scope.rank+1)%w.scope.size
	out, in := w.cursor(steps, sending, reduce), w.cursor(steps, receiving, reduce)
	ask := in
	own, free := out.messages(0), in.total()
	w.chooseZeroCopy()
	if reduce {
		w.room(min(w.largest(), w.segmentBytes()))
		free = in.added()
	}
	for n := 0; ; n++ {
		w.ask(&ask, min(n+posted, free+out.at), left)
		for out.at < n+min(own, posted) && out.next() {
			if err := w.send(out.at-1, right, w.x[out.lo:out.hi]); err != nil {
				return err
			}
		}
		w.ask(&ask, min(n+posted, free+out.at), left)
		if !in.next() {
			break
		}
		if err := w.wait(n, left); err != nil {
			return err
		}
		w.absorb(&in)
	}
	for out.next() {
		if err := w.send(out.at-1, right, w.x[out.lo:out.hi]); err != nil {
			return err
		}
	}
	return w.awaitConsumed(left, right)
}

// awaitConsumed ends zero-copy sending: it reports to the left neighbour that this rank has
// received all messages, and waits for the same report of the right one.
func (w *Work) awaitConsumed(left, right int) error {
	if !w.zeroCopy {
		return nil
	}
	w.zeroCopy = false
	w.post(received, right, nil)
	if err := w.send(received, left, nil); err != nil {
		return err
	}
	return w.wait(received, right)
}

// received is the message number of awaitConsumed's report; segments have lower numbers.
const received = 1 << numberBits

// ask starts the receives of the messages from c on, below number end.
func (w *Work) ask(c *cursor, end, left int) {
	for c.at < end && c.next() {
		w.post(c.at-1, left, w.arrival(c))
	}
}

// arrival returns the memory for the message at c.
func (w *Work) arrival(c *cursor) []byte {
	if c.adds() {
		return w.space(c.at-1, c.hi-c.lo)
	}
	return w.x[c.lo:c.hi]
}

// absorb adds the received message at c to its chunk, or does nothing if the message is a sum that
// overwrites the chunk. The rank that makes the last addition to a chunk also scales it for a mean,
// before the chunk is sent on, so that all ranks have the same bits.
func (w *Work) absorb(c *cursor) {
	if !c.adds() {
		return
	}
	part := w.x[c.lo:c.hi]
	w.combine(part, part, w.space(c.at-1, len(part)))
	if c.step == w.scope.size-2 {
		w.average(part)
	}
}

type direction bool

const (
	sending   direction = true
	receiving direction = false
)

// cursor is a position in the messages of one direction of a ring, segment by segment, step by
// step. Empty chunks have no messages.
type cursor struct {
	w      *Work
	steps  []RingStep
	dir    direction
	reduce bool // steps add as marked; false: no step adds

	at     int // messages until now
	step   int // step of the last message
	lo, hi int // bytes of the last message in x
	end    int // end of its chunk in x
}

func (w *Work) cursor(steps []RingStep, dir direction, reduce bool) cursor {
	return cursor{w: w, steps: steps, dir: dir, reduce: reduce, step: -1}
}

// adds reports whether the last message is added to its chunk, not written over it.
func (c *cursor) adds() bool { return c.reduce && c.steps[c.step].Reduce }

// next advances to the next message and reports whether a message exists.
func (c *cursor) next() bool {
	for c.hi == c.end {
		if c.step+1 == len(c.steps) {
			return false
		}
		c.step++
		c.hi, c.end = c.chunk(c.step)
	}
	c.lo = c.hi
	c.hi = min(c.end, c.lo+c.w.segmentBytes())
	c.at++
	return true
}

// chunk returns the bytes of the chunk of a step.
func (c *cursor) chunk(step int) (lo, hi int) {
	if c.dir == sending {
		return c.w.chunk(c.steps[step].Send)
	}
	return c.w.chunk(c.steps[step].Receive)
}

// messages returns the number of messages of a step's chunk.
func (c *cursor) messages(step int) int {
	lo, hi := c.chunk(step)
	return (hi - lo + c.w.segmentBytes() - 1) / c.w.segmentBytes()
}

// added returns the number of messages that are added.
func (c *cursor) added() int {
	n := 0
	for i, step := range c.steps {
		if step.Reduce {
			n += c.messages(i)
		}
	}
	return n
}

// total returns the number of messages.
func (c *cursor) total() int {
	n := 0
	for i := range c.steps {
		n += c.messages(i)
	}
	return n
}
