package bucket

import (
	"errors"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Step is what planners see of a training step: how long the computation
// before each gradient takes, and what a group of a given size costs to select
// and to send. Times are in seconds.
//
// The model is that of MG-WFBP (Shi et al. 2019) and DLGS (Ju et al. 2024): a
// rank computes on one path, forward, then backward layer by layer, with a
// group's selection right after the backward of its last layer; one channel
// carries the groups one after the other, in plan order. Where ranks carry their exchanges
// themselves, the two slow each other down while they overlap (Contention).
type Step struct {
	// Layers are the layers in the order in which backward finishes them.
	Layers []Param
	// Forward is the time from the step's start to the start of backward.
	Forward float64
	// Backward is the time of each layer: from the previous gradient to this one.
	Backward []float64
	// Update is the time of the update of all groups, which follows when all gradients are
	// agreed. Planners count all of it, and no Costs.After: where the update happens changes
	// plans by less than times can be measured.
	Update float64
	// Overlap says that a group is updated as soon as it is agreed and backward has ended,
	// while later ones travel: Predict then counts what of Update is left in the end.
	Overlap bool
	// Rows is the time of the exchange of row-sparse tables, after all groups.
	Rows float64
	// Costs are what a group costs by its size.
	Costs Costs
}

// Costs are what a group costs as a function of its size in values.
type Costs struct {
	// Select is the codec's time on the compute path; zero for dense gradients
	// that travel as they are.
	Select Curve
	// After is what a group costs when it has been agreed, before its update, such as
	// a cast.
	After Curve
	// Sends are the ways to carry a group; the cheapest for its size is taken,
	// the first of equals. There is at least one.
	Sends []Send
	// Contention is what exchanges and the computation lose to each other.
	Contention Contention
}

// Contention is what an exchange and the computation of its ranks lose to each other while
// they overlap, because they share cores, caches or memory. The zero value is nothing: a
// network and a process of their own.
type Contention struct {
	// Share of the computation's speed is lost while anything is exchanged, 0 to 1.
	Share float64 `json:"share"`
	// Late is how many seconds a message ends later because those whom it wakes must wait
	// for a core: every one but the last, also one that waited for those before.
	Late float64 `json:"late_s"`
	// Stretch is how many times as long the bytes of a message take, at least 1; 0 counts as 1.
	Stretch float64 `json:"stretch,omitempty"`
	// Cut is how many seconds of computation each message takes however short it is: the calls,
	// wake-ups and switches of its steps. During the last one nothing is computed.
	Cut float64 `json:"cut_s,omitempty"`
}

// stretch is at least 1.
func (c Contention) stretch() float64 { return max(1, c.Stretch) }

// send is how long an exchange takes beside the computation.
func (c Contention) send(alone float64) float64 { return c.Late + c.stretch()*alone }

// work is when so much computation ends that starts at now beside exchanges which
// would end at channel if it went on for ever.
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

// afterMessages is work on the compute path after so many messages have been handed to the channel:
// it is with the next group that the last one's Cut is counted.
func (c Contention) afterMessages(messages int, work float64) float64 {
	if messages == 0 {
		return work
	}
	return c.Cut + work
}

// settle is when something happens on the channel that would happen at t if the
// computation went on for ever, where it ends at compute.
func (c Contention) settle(t, compute float64) float64 {
	if t <= compute {
		return t
	}
	return compute + (t-compute)/c.stretch()
}

// Send is one way to carry a group: Fixed + PerByte x bytes seconds.
type Send struct {
	Name    string
	Payload Payload
	Fixed   float64 // seconds of a message of no bytes: alpha
	PerByte float64 // seconds a byte of payload: beta
	// Above and UpTo bound the bytes of payload for which this holds, both
	// included; UpTo 0: without bound. Where a library chooses its algorithm by
	// size, a group is carried by what is chosen for it.
	Above, UpTo float64
}

// Payload is the size of what a rank contributes for a group.
type Payload struct {
	// Density is the share of values that are sent, above 0 and at most 1; 0
	// means all of them, without indices.
	Density float64
	// Unit is the bytes of a value, or of an entry with its index.
	Unit float64
}

// Entries is how many of values are sent: all, or max(1, ceil(density x values)).
func (p Payload) Entries(values int) int {
	if p.Density == 0 || values == 0 {
		return values
	}
	return min(values, max(1, int(math.Ceil(p.Density*float64(values)))))
}

// Times is the payload of so many times as many entries.
func (p Payload) Times(factor float64) Payload {
	if p.Density > 0 {
		p.Density = min(1, p.Density*factor)
	}
	return p
}

// share of the values is sent at least.
func (p Payload) share() float64 {
	if p.Density == 0 {
		return 1
	}
	return p.Density
}

// Bytes is the size of the payload of a group.
func (p Payload) Bytes(values int) float64 { return p.Unit * float64(p.Entries(values)) }

// Seconds is how long a group of that many values is on the channel.
func (s Send) Seconds(values int) float64 { return s.Fixed + s.PerByte*s.Payload.Bytes(values) }

// holds reports whether s is for groups of that many values.
func (s Send) holds(values int) bool {
	b := s.Payload.Bytes(values)
	return b >= s.Above && (s.UpTo == 0 || b <= s.UpTo)
}

// Send returns the cheapest way to carry a group, of those that are for its size, and
// how long it takes; of all where none is.
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

// send is how long a group is on the channel.
func (c Costs) send(values int) float64 {
	_, t := c.Send(values)
	return t
}

// group is what one costs: to select, and alone on the channel.
func (c Costs) group(values int) (sel, send float64) {
	return c.Select.At(values), c.send(values)
}

// free reports whether groups cost the compute path nothing.
func (c Costs) free() bool {
	return c.Contention.Share == 0 && c.Contention.Cut == 0 && c.Select.Zero()
}

// Curve is a fitted cost in seconds as a function of a number of values x:
// Fixed + PerValue x + PerLog x log2(x). The last term is that of a sort.
type Curve struct {
	Fixed    float64 `json:"fixed_s"`
	PerValue float64 `json:"per_value_s"`
	PerLog   float64 `json:"per_value_log2_s,omitempty"`
}

// At is the cost of so many values; none cost nothing.
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

// Mean is the average cost of a codec whose every-th step is exact and whose
// other steps reuse a threshold: (exact + (every-1) reuse) / every.
func Mean(exact, reuse Curve, every int) Curve {
	w := 1 / float64(max(1, every))
	return Curve{
		Fixed:    w*exact.Fixed + (1-w)*reuse.Fixed,
		PerValue: w*exact.PerValue + (1-w)*reuse.PerValue,
		PerLog:   w*exact.PerLog + (1-w)*reuse.PerLog,
	}
}

// Validate reports every fault of s at once.
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

// faults collects all that is wrong with a value.
type faults []error

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Errorf(format, args...)) }

// seconds wants a finite time that is not negative.
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

// bounds wants sizes between which something is, the upper one 0 where there is none.
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
