// Package bucket decides which gradients travel together, and when.
//
// The gradients of a model lie in one arena, in the order in which backward
// finishes them. A Plan cuts that arena into buckets, each a contiguous range,
// so merging layers costs no copy. A plan is a value made by a pure function of
// the layers; rank 0 computes it and broadcasts it, so that it is the same on
// every rank. A Queue turns "this layer's gradient is final", told in any
// order, into "send this bucket now", in plan order on every rank.
//
// Which plan is good depends on the job: a Step holds the times of backward and
// the costs of selecting and sending, Predict tells the timeline of a plan, and
// a Planner looks for a short one.
package bucket

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// Param is one parameter's place in the gradient arena.
type Param struct {
	Name string
	// Offset and Len are in values. Len includes the padding that follows the
	// parameter, so that layer i+1 starts where layer i ends.
	Offset, Len int
	// Shape is the parameter's, without which it has one dimension. Ranks compare names and shapes
	// before the first step.
	Shape []int
	// Pad is how many of the Len values, the last ones, are padding: zero, and
	// nobody's.
	Pad int
}

// Bucket is a run of layers First..Last (both included) whose values
// Lo <= i < Hi of the arena travel as one message.
type Bucket struct {
	First, Last int
	Lo, Hi      int
}

// Len is the bucket's size in values.
func (b Bucket) Len() int { return b.Hi - b.Lo }

// Plan is a cut of the arena into buckets, in the order in which they are sent.
type Plan []Bucket

const valueBytes = 4

// One puts all layers in one bucket: a single message after backward has
// ended, with no overlap. It is the baseline of every other plan.
func One(layers []Param) Plan {
	if len(layers) == 0 {
		return nil
	}
	return Plan{span(layers, 0, len(layers)-1)}
}

// PerLayer puts every layer in a bucket of its own: the earliest possible
// start of each, at one message latency per layer.
func PerLayer(layers []Param) Plan {
	p := make(Plan, len(layers))
	for i := range layers {
		p[i] = span(layers, i, i)
	}
	return p
}

// Fixed collects layers, in the order backward finishes them, until a bucket
// holds at least bytes. A layer that alone is that large travels alone: what
// was collected before it is sent first, so that buckets stay contiguous.
// bytes <= 0 means DefaultBytes.
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

// DefaultBytes is the size Fixed uses when none is given: 8 MiB, halved until
// the plan has at least 4 buckets, or little would overlap. A model of fewer
// layers has a bucket for each.
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

// Cut is the plan whose buckets end with these layers, the inverse of Ends. Whatever they are, the plan is valid, or there
// is an error.
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

// Validate reports why p is not a cut of layers: every layer in exactly one
// bucket, buckets contiguous and in arena order.
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

// Encode returns the plan as the index of each bucket's last layer, little
// endian, four bytes each: what rank 0 broadcasts.
func (p Plan) Encode() []byte {
	out := make([]byte, 0, 4*len(p))
	for _, b := range p {
		out = binary.LittleEndian.AppendUint32(out, uint32(b.Last))
	}
	return out
}

// SHA256 is the plan's name in summaries and checkpoints: the hash of Encode in
// hexadecimal. Plans over different layers may share it.
func (p Plan) SHA256() string {
	sum := sha256.Sum256(p.Encode())
	return hex.EncodeToString(sum[:])
}

// Decode is the inverse of Encode for the same layers. Whatever the bytes, the
// plan it returns is valid, or there is an error.
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
