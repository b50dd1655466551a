package bucket

import (
	"errors"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Step is a planner's view of a training step: the computation times between gradients, and a
// bucket's costs to select and to send by size. Times are in seconds.
//
// The model is from MG-WFBP (Shi et al. 2019) and DLGS (Ju et al. 2024): a rank computes on one
// path, forward, then backward layer by layer, with a bucket's selection right after the backward
// of its last layer; one channel carries the buckets in plan order. If the ranks' cores also carry
// out the exchanges, overlapping exchange and computation slow each other (Contention).
type Step struct {
	// Layers are the layers in backward's order.
	Layers []Param
	// Forward is the time from the step's start to the start of backward.
	Forward float64
	// Backward is each layer's time since the previous gradient.
	Backward []float64
	// Update is the time of the update of all buckets, after the last exchange. Planners count the
	// whole update there, and no Costs.After: the position of the update changes plans less than
	// measuring errors do.
	Update float64
	// Overlap reports whether each bucket is updated after backward and its exchange, during later
	// exchanges: Predict then counts only the rest of Update at the end.
	Overlap bool
	// Rows is the time of the exchange of row-sparse tables, after all buckets.
	Rows float64
	// Costs are a bucket's costs by size.
	Costs Costs
}

// Costs are a bucket's costs as a function of its size in values.
type Costs struct {
	// Select is the codec's time on the compute path; zero for uncompressed dense gradients.
	Select Curve
	// After is a bucket's cost between exchange and update, such as a cast.
	After Curve
	// Sends are the ways to carry a bucket, at least one; the cheapest for the size is used, the
	// first of equals.
	Sends []Send
	// Contention is the mutual slowdown of exchanges and the computation.
	Contention Contention
}

// Contention is the mutual slowdown of an overlapping exchange and computation on shared cores,
// caches or memory. The zero value means no slowdown, as if they shared none of these.
type Contention struct {
	// Share is the computation's loss of speed during exchanges, 0 to 1.
	Share float64 `json:"share"`
	// Late is a message's delay in seconds while woken threads wait for a core: of every message
	// but the last, even after waits for earlier messages.
	Late float64 `json:"late_s"`
	// Stretch is the factor by which a message's bytes take longer, at least 1; 0 counts as 1.
	Stretch float64 `json:"stretch,omitempty"`
	// Cut is the computation's loss in seconds by each message, however short: calls, wake-ups and
	// switches. The last message has no computation to cut.
	Cut float64 `json:"cut_s,omitempty"`
}

// stretch is at least 1.
func (c Contention) stretch() float64 { return max(1, c.Stretch) }

// send is an exchange's time during the computation.
func (c Contention) send(alone float64) float64 { return c.Late + c.stretch()*alone }

// work is the end of a computation that starts at now, during exchanges that would end at channel
// if the computation never ended.
func (c Contention) work(now, channel, work float64) float64 {
	if c.Share == 0 || work == 0 {
		return now + work
	}
	slowed := max(0, channel-now)
	if done := slowed * (1 - c.Share); work > done {
		return now + slowed + (work - done)
	}
	return now + work/(1-c.Share)
}

// afterMessages is work on the compute path after a number of messages: the last message's Cut
// counts with the next bucket.
func (c Contention) afterMessages(messages int, work float64) float64 {
	if messages == 0 {
		return work
	}
	return c.Cut + work
}

// settle returns the time of an event on the channel if the computation ends at compute; t is its
// time if the computation never ends.
func (c Contention) settle(t, compute float64) float64 {
	if t <= compute {
		return t
	}
	return compute + (t-compute)/c.stretch()
}

// Send is a way to carry a bucket, in Fixed + PerByte x bytes seconds.
type Send struct {
	Name    string
	Payload Payload
	Fixed   float64 // seconds of an empty message: alpha
	PerByte float64 // seconds per byte of payload: beta
	// Above and UpTo bound the bytes of payload for this Send, both included; UpTo 0: without
	// bound. If a library chooses algorithms by size, a bucket is carried by the algorithm of its
	// size.
	Above, UpTo float64
}

// Payload is the size of a rank's contribution to a bucket.
type Payload struct {
	// Density is the share of sent values, above 0 and at most 1; 0 means all, without indices.
	Density float64
	// Unit is the bytes of a value, or of an entry with index.
	Unit float64
}

// Entries is the number of sent values: all, or max(1, ceil(density x values)).
func (p Payload) Entries(values int) int {
	if p.Density == 0 || values == 0 {
		return values
	}
	return min(values, max(1, int(math.Ceil(p.Density*float64(values)))))
}

// Times is the payload with entries multiplied by factor.
func (p Payload) Times(factor float64) Payload {
	if p.Density > 0 {
		p.Density = min(1, p.Density*factor)
	}
	return p
}

// share is the least share of sent values.
func (p Payload) share() float64 {
	if p.Density == 0 {
		return 1
	}
	return p.Density
}

// Bytes is the payload's size for a bucket.
func (p Payload) Bytes(values int) float64 { return p.Unit * float64(p.Entries(values)) }

// Seconds is a bucket's time on the channel.
func (s Send) Seconds(values int) float64 { return s.Fixed + s.PerByte*s.Payload.Bytes(values) }

// holds reports whether s applies to buckets of values.
func (s Send) holds(values int) bool {
	b := s.Payload.Bytes(values)
	return b >= s.Above && (s.UpTo == 0 || b <= s.UpTo)
}

// Send returns the cheapest way to carry a bucket and the time, among the ways for its size or,
// without any, among all.
func (c Costs) Send(values int) (way Send, seconds float64) {
	found := false
	for i, s := range c.Sends {
		holds := s.holds(values)
		if found && !holds {
			continue
		}
		if t := s.Seconds(values); i == 0 || holds && !found || t < seconds {
			way, seconds = s, t
		}
		found = found || holds
	}
	return way, seconds
}

func (c Costs) send(values int) float64 {
	_, t := c.Send(values)
	return t
}

// group is a bucket's costs: to select, and alone on the channel.
func (c Costs) group(values int) (sel, send float64) {
	return c.Select.At(values), c.send(values)
}

// free reports whether buckets cost no time on the compute path.
func (c Costs) free() bool {
	return c.Contention.Share == 0 && c.Contention.Cut == 0 && c.Select.Zero()
}

// Curve is a fitted cost in seconds as a function of a number of values x: Fixed + PerValue x +
// PerLog x log2(x). The last term is the cost of a sort.
type Curve struct {
	Fixed    float64 `json:"fixed_s"`
	PerValue float64 `json:"per_value_s"`
	PerLog   float64 `json:"per_value_log2_s,omitempty"`
}

// At is the cost of values, 0 for no values.
func (c Curve) At(values int) float64 {
	if values == 0 {
		return 0
	}
	x := float64(values)
	return c.Fixed + c.PerValue*x + c.PerLog*x*math.Log2(x)
}

// Plus is the sum of two costs.
func (c Curve) Plus(o Curve) Curve {
	return Curve{Fixed: c.Fixed + o.Fixed, PerValue: c.PerValue + o.PerValue, PerLog: c.PerLog + o.PerLog}
}

// Zero reports whether the curve is zero everywhere.
func (c Curve) Zero() bool { return c == Curve{} }

// Mean is the average cost of a codec with one exact step per every steps and reuse otherwise:
// (exact + (every-1) reuse) / every.
func Mean(exact, reuse Curve, every int) Curve {
	w := 1 / float64(max(1, every))
	return Curve{
		Fixed:    w*exact.Fixed + (1-w)*reuse.Fixed,
		PerValue: w*exact.PerValue + (1-w)*reuse.PerValue,
		PerLog:   w*exact.PerLog + (1-w)*reuse.PerLog,
	}
}

// Validate reports all errors of s.
func (s Step) Validate() error {
	var f faults
	f.seconds("forward", s.Forward)
	f.seconds("update", s.Update)
	f.seconds("rows", s.Rows)
	if len(s.Backward) != len(s.Layers) {
		f.add("%d backward times for %d layers", len(s.Backward), len(s.Layers))
	}
	for i, t := range s.Backward {
		f.seconds(fmt.Sprintf("backward of layer %d", i), t)
	}
	f.curve("select", s.Costs.Select)
	f.curve("after", s.Costs.After)
	if len(s.Costs.Sends) == 0 {
		f.add("no cost of sending: want at least one Send")
	}
	for _, w := range s.Costs.Sends {
		what := fmt.Sprintf("send %q", w.Name)
		f.seconds(what+": fixed", w.Fixed)
		f.seconds(what+": per byte", w.PerByte)
		f.density(what, w.Payload.Density)
		f.bounds(what, w.Above, w.UpTo)
		if !(w.Payload.Unit > 0) || math.IsInf(w.Payload.Unit, 0) {
			f.add("%s: %s bytes a value: want a positive number", what, quantity.Exact(w.Payload.Unit))
		}
	}
	f.contention("contention", s.Costs.Contention)
	return f.err("bucket: bad step")
}

type faults []error

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Errorf(format, args...)) }

// seconds checks a finite, nonnegative time.
func (f *faults) seconds(what string, t float64) {
	if !(t >= 0) || math.IsInf(t, 0) {
		f.add("%s %s s: want 0 or more", what, quantity.Exact(t))
	}
}

func (f *faults) density(what string, d float64) {
	if !(d >= 0 && d <= 1) {
		f.add("%s: density %s: want 0 (dense) to 1", what, quantity.Exact(d))
	}
}

// bounds checks a range of sizes; upTo 0: no upper bound.
func (f *faults) bounds(what string, above, upTo float64) {
	if !(above >= 0 && upTo >= 0) || math.IsInf(above, 0) || math.IsInf(upTo, 0) || upTo > 0 && upTo <= above {
		f.add("%s: above %s and up to %s bytes, which is nothing: want a lower bound below the upper one", what, quantity.Exact(above), quantity.Exact(upTo))
	}
}

func (f *faults) curve(what string, c Curve) {
	f.seconds(what+": fixed", c.Fixed)
	f.seconds(what+": per value", c.PerValue)
	f.seconds(what+": per value and log2", c.PerLog)
}

func (f *faults) contention(what string, b Contention) {
	f.seconds(what+": late", b.Late)
	f.seconds(what+": cut", b.Cut)
	if !(b.Share >= 0 && b.Share <= 1) || !(b.Stretch == 0 || b.Stretch >= 1) || math.IsInf(b.Stretch, 0) {
		f.add("%s: share %s, stretch %s: want a share of 0 to 1 and a stretch of 1 or more", what, quantity.Exact(b.Share), quantity.Exact(b.Stretch))
	}
}

func (f *faults) err(what string) error {
	if len(*f) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", what, errors.Join(*f...))
}

// Drift is a measured step's distance from the planned step: the largest difference, over the
// layers, of the time of a final gradient and of the end of backward, as a share of the planned
// forward and backward. Drift is +Inf for different layers, or for planned times of 0 and positive
// measured times. Costs are not compared. A caller plans again above a bound: if load scales all
// times by less than a tenth, plans change little. O(layers).
func Drift(planned, measured Step) float64 {
	if len(planned.Backward) != len(measured.Backward) {
		return math.Inf(1)
	}
	p, m := planned.Forward, measured.Forward
	most := math.Abs(m - p)
	for i := range planned.Backward {
		p += planned.Backward[i]
		m += measured.Backward[i]
		most = max(most, math.Abs(m-p))
	}
	if most == 0 {
		return 0
	}
	return most / p
}
