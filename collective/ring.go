package collective

// Ring allreduce. Every rank sends to its right neighbour and receives from
// its left one; x is cut into N chunks, which N-1 steps of reduce-scatter sum
// up and N-1 steps of allgather hand round. Sources: Patarasuk and Yuan,
// "Bandwidth optimal all-reduce algorithms for clusters of workstations"
// (2009); Gibiansky, "Bringing HPC Techniques to Deep Learning" (2017).
//
// Cost with K bytes, bandwidth B, latency a per message and the adding at G
// bytes a second: 2(N-1)a + 2(N-1)/N K/B + (N-1)/N K/G; segments overlap the
// last two terms.

// RingStep is what one rank does in one step: the chunks it sends and receives.
type RingStep struct {
	Send, Receive int
	Reduce        bool // add what is received (reduce-scatter) or overwrite (allgather)
}

// RingSchedule returns the 2(size-1) steps of rank in a ring allreduce.
//
// In step s of the reduce-scatter rank n sends chunk n-s and receives n-s-1,
// modulo size; it then owns the finished chunk n+1. In step s of the allgather
// it sends n+1-s and receives n-s. So every step sends on the chunk that the
// step before received, which is what lets segments flow without a barrier
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

// RingChunk returns the bounds [lo, hi) of chunk i of size chunks of n values.
// The first n mod size chunks have one value more than the others.
func RingChunk(n, size, i int) (lo, hi int) {
	short, longer := n/size, n%size
	lo = i*short + min(i, longer)
	hi = lo + short
	if i < longer {
		hi++
	}
	return lo, hi
}

// RingValues is how many values rank sends in an allreduce of n values:
// 2n - size(chunk rank+1) - size(chunk rank+2).
func RingValues(n, size, rank int) int {
	sent := 0
	for _, step := range RingSchedule(rank, size) {
		lo, hi := RingChunk(n, size, step.Send)
		sent += hi - lo
	}
	return sent
}

func mod(a, n int) int { return (a%n + n) % n }

func (w *Work) ringAllReduce() error {
	return w.ring(w.g.steps)
}

// allGather is the ring's first half without the adding: rank n begins with
// chunk n.
func (w *Work) allGather() error {
	if len(w.x) == 0 {
		return nil
	}
	lo, _ := w.part(w.g.rank)
	copy(w.x[lo:], w.src)
	return w.ring(w.g.steps[:w.g.size-1])
}

// part returns the bytes of x that are rank's in an allgather of any kind.
func (w *Work) part(rank int) (lo, hi int) {
	if w.kind != kindAllGatherV {
		return rank * len(w.src), (rank + 1) * len(w.src)
	}
	if rank > 0 {
		lo = w.ends[rank-1]
	}
	return lo, w.ends[rank]
}

// ring carries out steps. Because each step sends on what the one before
// received, the messages sent are the segments of this rank's own first chunk,
// then every message received but those of the last step, in order; and the
// right neighbour receives them in the same order. Message i to the right is
// therefore tagged i.
//
// Sends run at most `posted` messages ahead of the receives, so that no rank
// floods its neighbour. A receive that overwrites is posted only after the send
// that carries the old values: message i of the allgather overwrites what
// message i to the right has carried.
//
// Where parts differ in length, a rank that has received everything may still
// have much to send. Its left neighbour has then sent all, so that ranks whose
// sends wait for each other form no circle.
func (w *Work) ring(steps []RingStep) error {
	left, right := mod(w.g.rank-1, w.g.size), (w.g.rank+1)%w.g.size
	out, in, ask := w.cursor(steps, sending), w.cursor(steps, receiving), w.cursor(steps, receiving)
	own, free := out.messages(0), in.total()
	if w.kind == kindAllReduce {
		w.room(in.largest())
		free = in.added()
	}
	for received := 0; ; received++ {
		w.ask(&ask, min(received+posted, free+out.at), left)
		for out.at < min(received+own, received+posted) && out.next() {
			if err := w.send(out.at-1, right, w.x[out.lo:out.hi]); err != nil {
				return err
			}
		}
		w.ask(&ask, min(received+posted, free+out.at), left)
		if !in.next() {
			break
		}
		if err := w.wait(received, left); err != nil {
			return err
		}
		w.absorb(&in)
	}
	for out.next() {
		if err := w.send(out.at-1, right, w.x[out.lo:out.hi]); err != nil {
			return err
		}
	}
	return nil
}

// ask posts the receives up to number end.
func (w *Work) ask(c *cursor, end, left int) {
	for c.at < end && c.next() {
		w.post(c.at-1, left, w.arrival(c))
	}
}

// arrival is where the message under c is to be written.
func (w *Work) arrival(c *cursor) []byte {
	if w.reduces(c) {
		return w.space(c.at-1, c.hi-c.lo)
	}
	return w.x[c.lo:c.hi]
}

// absorb deals with the message under c, which has arrived. The last addition
// to a chunk is followed by the mean's scaling, here and nowhere else, so that
// all ranks get the same bits.
func (w *Work) absorb(c *cursor) {
	if !w.reduces(c) {
		return
	}
	part := w.x[c.lo:c.hi]
	w.combine(part, part, w.space(c.at-1, len(part)))
	if c.step == w.g.size-2 {
		w.average(part)
	}
}

func (w *Work) reduces(c *cursor) bool {
	return w.kind == kindAllReduce && c.steps[c.step].Reduce
}

type direction bool

const (
	sending   direction = true
	receiving direction = false
)

// cursor walks over the messages of one direction of a ring, segment by
// segment, step by step. Empty chunks have no messages.
type cursor struct {
	steps   []RingStep
	dir     direction
	size    int   // ranks
	n       int   // values
	elem    int   // bytes of a value
	segment int   // values of the longest message
	ends    []int // of the chunks, in bytes, where they are not RingChunk's

	at     int // how many messages next has produced
	step   int // of the last one
	lo, hi int // its bytes in x
	end    int // where its chunk ends
}

func (w *Work) cursor(steps []RingStep, dir direction) cursor {
	elem := w.elem.size()
	return cursor{
		steps: steps, dir: dir, size: w.g.size, n: len(w.x) / elem, elem: elem,
		segment: w.g.cfg.SegmentBytes / elem, ends: w.ends, step: -1,
	}
}

// next moves on to the next message and reports whether there is one.
func (c *cursor) next() bool {
	for c.hi == c.end {
		if c.step+1 == len(c.steps) {
			return false
		}
		c.step++
		c.hi, c.end = c.chunk(c.step)
	}
	c.lo = c.hi
	c.hi = min(c.end, c.lo+c.segment*c.elem)
	c.at++
	return true
}

// chunk returns the bytes of the chunk of a step.
func (c *cursor) chunk(step int) (lo, hi int) {
	i := c.steps[step].Receive
	if c.dir == sending {
		i = c.steps[step].Send
	}
	if len(c.ends) > 0 {
		if i > 0 {
			lo = c.ends[i-1]
		}
		return lo, c.ends[i]
	}
	lo, hi = RingChunk(c.n, c.size, i)
	return lo * c.elem, hi * c.elem
}

// messages is how many messages the chunk of a step makes.
func (c *cursor) messages(step int) int {
	lo, hi := c.chunk(step)
	segment := c.segment * c.elem
	return (hi - lo + segment - 1) / segment
}

// added is how many of all messages are added.
func (c *cursor) added() int {
	n := 0
	for i, step := range c.steps {
		if step.Reduce {
			n += c.messages(i)
		}
	}
	return n
}

// total is how many messages there are.
func (c *cursor) total() int {
	n := 0
	for i := range c.steps {
		n += c.messages(i)
	}
	return n
}

// largest is the length in bytes of the longest message.
func (c *cursor) largest() int {
	_, hi := RingChunk(c.n, c.size, 0)
	return min(hi, c.segment) * c.elem
}
