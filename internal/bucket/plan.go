// Package bucket decides when gradients are sent, and in which buckets.
//
// A model's gradients are in one arena, in backward's order. A Plan cuts the arena into buckets,
// each a contiguous range, so merging layers needs no copy. A plan is the value of a pure function
// of the layers; rank 0 broadcasts its plan to all ranks. A Queue turns final gradients of layers,
// in any order, into buckets to send, in plan order on every rank.
//
// The best plan depends on the job: a Step has the times of backward and the costs of selecting and
// sending, Predict computes a plan's timeline, and a Planner searches for a short step.
package bucket

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// Param is a parameter's place in the gradient arena.
type Param struct {
	Name string
	// Offset and Len are in values. Len includes the padding after the parameter: layer i+1 starts
	// at the end of layer i.
	Offset, Len int
	// Shape is the parameter's shape, by default one dimension. Ranks compare names and shapes
	// before the first step.
	Shape []int
	// Pad is the number of padding values at the end of Len: zero, and unused.
	Pad int
}

// Bucket is a run of layers First..Last (both included), with the values Lo <= i < Hi of the arena
// in one message.
type Bucket struct {
	First, Last int
	Lo, Hi      int
}

// Len is the bucket's size in values.
func (b Bucket) Len() int { return b.Hi - b.Lo }

// Plan is a cut of the arena into buckets, in sending order.
type Plan []Bucket

const valueBytes = 4

// One is a single bucket of all layers: one message after backward, without overlap, as the
// baseline of all plans.
func One(layers []Param) Plan {
	if len(layers) == 0 {
		return nil
	}
	return Plan{span(layers, 0, len(layers)-1)}
}

// PerLayer is a bucket per layer: the earliest possible start of each, at one message latency per
// layer.
func PerLayer(layers []Param) Plan {
	p := make(Plan, len(layers))
	for i := range layers {
		p[i] = span(layers, i, i)
	}
	return p
}

// Fixed collects layers, in backward's order, until a bucket has at least bytes. A single layer of
// at least bytes gets a separate bucket after the collected layers, so that buckets stay
// contiguous. bytes <= 0 means DefaultBytes.
func Fixed(layers []Param, bytes int) Plan {
	if bytes <= 0 {
		bytes = DefaultBytes(layers)
	}
	var p Plan
	first, held := 0, 0
	for i, l := range layers {
		size := l.Len * valueBytes
		if size >= bytes && held > 0 {
			p = append(p, span(layers, first, i-1))
			first, held = i, 0
		}
		held += size
		if held >= bytes {
			p = append(p, span(layers, first, i))
			first, held = i+1, 0
		}
	}
	if first < len(layers) {
		p = append(p, span(layers, first, len(layers)-1))
	}
	return p
}

// DefaultBytes is the size Fixed uses when none is given: 8 MiB, halved until the plan has at least
// 4 buckets, or little would overlap. A model of fewer layers has a bucket for each.
func DefaultBytes(layers []Param) int {
	const most, parts = 8 << 20, 4
	bytes := most
	for bytes > valueBytes && len(Fixed(layers, bytes)) < min(parts, len(layers)) {
		bytes /= 2
	}
	return bytes
}

func span(layers []Param, first, last int) Bucket {
	return Bucket{First: first, Last: last, Lo: layers[first].Offset, Hi: layers[last].Offset + layers[last].Len}
}

// Cut is the plan of buckets with the given last layers, the inverse of Ends. The plan is valid, or
// there is an error.
func Cut(layers []Param, ends []int) (Plan, error) {
	var p Plan
	first := 0
	for i, last := range ends {
		if last < first || last >= len(layers) {
			return nil, fmt.Errorf("bucket %d ends at layer %d, want one from %d to %d: was the plan made for another model?", i, last, first, len(layers)-1)
		}
		p = append(p, span(layers, first, last))
		first = last + 1
	}
	if err := p.Validate(layers); err != nil {
		return nil, err
	}
	return p, nil
}

// Ends are the indices of the buckets' last layers.
func (p Plan) Ends() []int {
	ends := make([]int, len(p))
	for i, b := range p {
		ends[i] = b.Last
	}
	return ends
}

// Validate reports an invalid cut: every layer must be in exactly one bucket, and buckets
// contiguous and in arena order.
func (p Plan) Validate(layers []Param) error {
	var errs []error
	next := 0
	for i, b := range p {
		if b.First != next || b.Last < b.First || b.Last >= len(layers) {
			errs = append(errs, fmt.Errorf("bucket %d holds layers %d to %d, want it to start at layer %d of %d", i, b.First, b.Last, next, len(layers)))
			break
		}
		if want := span(layers, b.First, b.Last); b != want {
			errs = append(errs, fmt.Errorf("bucket %d covers values %d to %d, its layers cover %d to %d", i, b.Lo, b.Hi, want.Lo, want.Hi))
		}
		next = b.Last + 1
	}
	if len(errs) == 0 && next != len(layers) {
		errs = append(errs, fmt.Errorf("the plan ends at layer %d of %d", next, len(layers)))
	}
	if len(errs) > 0 {
		return fmt.Errorf("bucket: bad plan: %w", errors.Join(errs...))
	}
	return nil
}

// Encode returns the indices of the buckets' last layers, little endian, four bytes each, for rank
// 0's broadcast.
func (p Plan) Encode() []byte {
	out := make([]byte, 0, 4*len(p))
	for _, b := range p {
		out = binary.LittleEndian.AppendUint32(out, uint32(b.Last))
	}
	return out
}

// SHA256 is the plan's name in summaries and checkpoints: the hash of Encode in hexadecimal. Plans
// over different layers may share a name.
func (p Plan) SHA256() string {
	sum := sha256.Sum256(p.Encode())
	return hex.EncodeToString(sum[:])
}

// Decode is the inverse of Encode for the same layers. The plan is valid, or there is an error.
func Decode(data []byte, layers []Param) (Plan, error) {
	if len(data)%4 != 0 || len(data)/4 > len(layers) {
		return nil, fmt.Errorf("bucket: an encoded plan of %d bytes for %d layers: want 4 bytes a bucket and at most one bucket a layer", len(data), len(layers))
	}
	ends := make([]int, len(data)/4)
	for i := range ends {
		ends[i] = int(binary.LittleEndian.Uint32(data[4*i:]))
	}
	p, err := Cut(layers, ends)
	if err != nil {
		return nil, fmt.Errorf("bucket: encoded plan: %w", err)
	}
	return p, nil
}

// Queue is a step's ready queue. Layers are marked in any order.
// invariant[plan-order]: buckets come out in plan order, each as soon as it and all
// before it are complete. That order is the same on every rank, which is what lets
// ranks match their operations by sequence number alone.
//
// A Queue is for one goroutine and allocates nothing after NewQueue.
type Queue struct {
	plan    Plan
	bucket  []int  // bucket by layer
	marked  []bool // final in this step, by layer
	missing []int  // bucket -> layers not yet final
	next    int    // next bucket to return
}

// NewQueue returns an empty queue for a valid plan.
func NewQueue(plan Plan) *Queue {
	q := &Queue{missing: make([]int, len(plan)), plan: plan}
	for b := range plan {
		for range plan[b].Last - plan[b].First + 1 {
			q.bucket = append(q.bucket, b)
		}
	}
	q.marked = make([]bool, len(q.bucket))
	q.Reset()
	return q
}

// Reset begins a new step: no layer is final.
func (q *Queue) Reset() {
	clear(q.marked)
	for b, k := range q.plan {
		q.missing[b] = k.Last - k.First + 1
	}
	q.next = 0
}

// Mark marks a layer's gradient as final. A repeated or unknown layer is an error: a gradient would
// be sent ahead of its last contribution.
func (q *Queue) Mark(layer int) error {
	if layer < 0 || layer >= len(q.marked) {
		return fmt.Errorf("bucket: layer %d is ready, but the plan has layers 0 to %d", layer, len(q.marked)-1)
	}
	if q.marked[layer] {
		return fmt.Errorf("bucket: layer %d is ready twice in one step", layer)
	}
	q.marked[layer] = true
	q.missing[q.bucket[layer]]--
	return nil
}

// Next returns the index of the next bucket to send, or false if a gradient of the bucket is
// missing.
func (q *Queue) Next() (int, bool) {
	if q.next == len(q.plan) || q.missing[q.next] > 0 {
		return 0, false
	}
	q.next++
	return q.next - 1, true
}

// Begun reports whether a layer has been marked since Reset.
func (q *Queue) Begun() bool {
	for _, m := range q.marked {
		if m {
			return true
		}
	}
	return false
}

// Waiting returns the first unmarked layer, and false if all layers are marked.
func (q *Queue) Waiting() (layer int, ok bool) {
	for i, m := range q.marked {
		if !m {
			return i, true
		}
	}
	return 0, false
}
