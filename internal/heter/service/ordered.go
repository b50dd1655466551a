package service

import (
	"cmp"
	"slices"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/simd"
)

// position is the place of a micro-batch in the order of a step's sum. lane is the number of the
// heter-trainer that computes it, unless another one would finish much earlier.
type position struct{ lane, index, trainer int }

func (p position) compare(q position) int {
	return cmp.Or(cmp.Compare(p.lane, q.lane), cmp.Compare(p.index, q.index), cmp.Compare(p.trainer, q.trainer))
}

// part is a gradient at a position, or a sum of all gradients of a lane up to the position.
type part struct {
	position
	values []float32
}

// orderedSum adds gradients of a step's micro-batches as they come.
//
// invariant[heter-order]: a step's sum always has the same bits, because it is the sum over lanes,
// in their order, of sums over the lane's micro-batches, in the order of their positions. A
// gradient that arrives early is retained as a separate part until its turn or the step's end.
//
// Memory: a gradient per lane with micro-batches, and per early micro-batch.
type orderedSum struct {
	lanes, trainers int
	next            []position // first position after the sum from the lane's start, by lane
	parts           []part     // ascending
	free            [][]float32
	sent, received  []float32 // memory of exchanges
}

// reset starts the sum of a step.
func (o *orderedSum) reset() {
	for _, p := range o.parts {
		o.free = append(o.free, p.values)
	}
	o.parts, o.next = o.parts[:0], o.next[:0]
	for lane := range o.lanes {
		o.next = append(o.next, o.after(position{lane, 0, -1}))
	}
}

func (o *orderedSum) position(index, trainer int) position {
	return position{(index + trainer) % o.lanes, index, trainer}
}

// after returns the position after p in its lane.
func (o *orderedSum) after(p position) position {
	for {
		if p.trainer++; p.trainer == o.trainers {
			p.index, p.trainer = p.index+1, 0
		}
		if (p.index+p.trainer)%o.lanes == p.lane {
			return p
		}
	}
}

// add adds a micro-batch's gradient, once.
func (o *orderedSum) add(index, trainer int, g []float32) error {
	p := o.position(index, trainer)
	next := &o.next[p.lane]
	i, twice := slices.BinarySearchFunc(o.parts, p, func(x part, p position) int { return x.compare(p) })
	switch {
	case twice || p.compare(*next) < 0:
		return message.Malformed("micro-batch %d of trainer %d comes twice in a step", index, trainer)
	case p == *next && i > 0 && o.parts[i-1].lane == p.lane:
		i--
		simd.Host().Add(o.parts[i].values, g)
		o.parts[i].position = p
	default:
		var own []float32
		if n := len(o.free); n > 0 {
			own, o.free = o.free[n-1], o.free[:n-1]
		}
		own = bytesview.Sized(own, len(g))
		copy(own, g)
		o.parts = slices.Insert(o.parts, i, part{p, own})
	}
	for o.parts[i].position == *next {
		if *next = o.after(*next); i+1 < len(o.parts) && o.parts[i+1].position == *next {
			simd.Host().Add(o.parts[i].values, o.parts[i+1].values)
			o.parts[i].position = *next
			o.free = append(o.free, o.parts[i+1].values)
			o.parts = slices.Delete(o.parts, i+1, i+2)
		}
	}
	return nil
}

// fold writes the sum of all parts of a step, which are ascending, to dst.
func fold(dst []float32, parts []part) {
	const block = 4 << 10 // within the processor's first cache
	if len(parts) == 0 {
		clear(dst)
	}
	var lane [block]float32
	for lo := 0; lo < len(dst); lo += block {
		hi := min(lo+block, len(dst))
		for i, j := 0, 0; i < len(parts); i = j {
			x := parts[i].values[lo:hi]
			for j = i + 1; j < len(parts) && parts[j].lane == parts[i].lane; j++ {
				if j == i+1 {
					x = lane[:copy(lane[:], x)]
				}
				simd.Host().Add(x, parts[j].values[lo:hi])
			}
			if i == 0 {
				copy(dst[lo:hi], x)
			} else {
				simd.Host().Add(dst[lo:hi], x)
			}
		}
	}
}

// exchange writes the sum over all members of a group to dst, on each member: a member folds a
// range of the values. The parts remain for a retry.
func (o *orderedSum) exchange(g StepGroup, members, rank int, dst []float32) error {
	positions, err := o.exchangePositions(g, members)
	if err != nil {
		return err
	}
	bound := func(i int) int { return len(dst) * i / members }
	own := bound(rank+1) - bound(rank)
	sends, receives, ranges := make([]int, members), make([]int, members), make([]int, members)
	sent, all := o.sent[:0], 0
	for i := range members {
		ranges[i] = bound(i+1) - bound(i)
		sends[i], receives[i] = len(o.parts)*ranges[i], len(positions[i])*own
		if all += receives[i]; len(o.parts) > 1 {
			for _, p := range o.parts {
				sent = append(sent, p.values[bound(i):bound(i+1)]...)
			}
		}
	}
	if o.sent = sent; len(o.parts) == 1 {
		sent = o.parts[0].values
	}
	o.received = bytesview.Sized(o.received, all)
	if err := g.Trade(o.received, sent, sends, receives); err != nil {
		return err
	}
	var parts []part
	for at, p := range slices.Concat(positions...) {
		parts = append(parts, part{p, o.received[at*own:][:own]})
	}
	slices.SortFunc(parts, func(a, b part) int { return a.compare(b.position) })
	o.sent = bytesview.Sized(o.sent, own)
	fold(o.sent, parts)
	return g.Gather(dst, o.sent, ranges)
}

// exchangePositions returns the positions of all members' parts, by member.
func (o *orderedSum) exchangePositions(g StepGroup, members int) ([][]position, error) {
	mine := []float32{float32(len(o.parts))}
	for _, p := range o.parts {
		mine = append(mine, float32(p.index), float32(p.trainer)) // exact: below 1<<24
	}
	const one = 3 // in most steps each member has one part
	texts, lengths := make([]float32, one*members), slices.Repeat([]int{one}, members)
	if len(o.parts) == 0 {
		mine = append(mine, 0, 0)
	}
	if err := g.Gather(texts, mine[:one], lengths); err != nil {
		return nil, err
	}
	all, most := 0, 0
	for i := range members {
		n := int(texts[one*i])
		lengths[i], all, most = max(one, 1+2*n), all+max(one, 1+2*n), max(most, n)
	}
	if most > 1 {
		texts = make([]float32, all)
		if err := g.Gather(texts, mine, lengths); err != nil {
			return nil, err
		}
	}
	positions := make([][]position, members)
	for i, n := range lengths {
		for at := range int(texts[0]) {
			positions[i] = append(positions[i], o.position(int(texts[1+2*at]), int(texts[2+2*at])))
		}
		texts = texts[n:]
	}
	return positions, nil
}
