package bucket

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Planner cuts the layers of a valid step into buckets, as a pure function.
type Planner func(Step) Plan

// Named is a planner with the name for command lines and summaries.
type Named struct {
	Name  string
	About string // one line
	Plan  Planner
}

// Planners are the known planners, the simplest first.
func Planners() []Named {
	return []Named{
		{"one", "all layers in one group, after backward", func(s Step) Plan { return One(s.Layers) }},
		{"per-layer", "a group for each layer", func(s Step) Plan { return PerLayer(s.Layers) }},
		{"fixed", "groups of a fixed number of bytes", FixedOf(0)},
		{"mgwfbp", "greedy: merge where waiting costs less than a message", MGWFBP},
		{"dlgs-scan", "one pass that keeps each merge that makes the step shorter", Scan},
		{"exact", "the shortest step of all plans", Exact},
	}
}

// LookupPlanner returns the named planner.
func LookupPlanner(name string) (Named, error) {
	var known []string
	for _, p := range Planners() {
		if p.Name == name {
			return p, nil
		}
		known = append(known, p.Name)
	}
	return Named{}, fmt.Errorf("plan %q is not known: use one of %s", name, strings.Join(known, ", "))
}

// Worthwhile plans with additional buckets only if each shortens the predicted step by at least
// price seconds, 0 or more: measured message costs are neither exact nor complete, and plans with
// very different numbers of buckets often have nearly equal predictions.
//
// The price is added to each message but the last, both on the compute path and on the channel. A
// critical path computes up to one bucket and then sends, so all buckets but one count.
func Worthwhile(plan Planner, s Step, price float64) Plan {
	s.Costs.Contention.Cut += price
	s.Costs.Contention.Late += price
	return plan(s)
}

// FixedOf is Fixed with buckets of the given bytes as a planner; 0 means DefaultBytes.
func FixedOf(bytes int) Planner {
	return func(s Step) Plan { return Fixed(s.Layers, bytes) }
}

// MGWFBP is the greedy algorithm of MG-WFBP (Shi et al. 2019, algorithm 1) for dense gradients. In
// backward's order, MGWFBP merges a bucket with the next layer if this delays the bucket's sending
// by less than one message instead of two saves on the channel. A delay counts from the time at
// which the bucket is ready and the channel free. The delay of the compute path by the selection of
// larger buckets is ignored. O(L).
func MGWFBP(s Step) Plan {
	if len(s.Layers) == 0 {
		return nil
	}
	var p Plan
	state := finish{compute: s.Forward} // after the buckets of p
	first, backward := 0, s.Backward[0]
	for i := range s.Layers {
		b := span(s.Layers, first, i)
		sel, send := s.Costs.group(b.Len())
		if i+1 < len(s.Layers) {
			starts := max(state.compute+backward+sel, state.channel)
			next := s.Layers[i+1].Len
			ready := state.compute + backward + s.Backward[i+1] + s.Costs.Select.At(b.Len()+next)
			saved := s.Costs.Contention.Late + s.Costs.Contention.stretch()*(send+s.Costs.send(next)-s.Costs.send(b.Len()+next))
			if ready-starts < saved {
				backward += s.Backward[i+1]
				continue
			}
		}
		p = append(p, b)
		state = state.then(s.Costs.Contention, s.Costs.Contention.afterMessages(len(p)-1, backward+sel), send, i+1 == len(s.Layers))
		if first = i + 1; first < len(s.Layers) {
			backward = s.Backward[first]
		}
	}
	return p
}

// Scan is the search of DLGS (Ju et al. 2024). From a bucket per layer, in backward's order, Scan
// keeps each merge of a layer into the next that shortens the predicted step. A merged layer has no
// costs to select and send, and the next layer gets the summed sizes and costs; backward times
// count once (the paper's pseudo-code, read literally, counts twice). O(L²).
func Scan(s Step) Plan {
	p := PerLayer(s.Layers)
	best := s.total(p)
	trial := make(Plan, 0, len(p))
	for at := 0; at+1 < len(p); {
		trial = append(append(trial[:0], p[:at]...), span(s.Layers, p[at].First, p[at+1].Last))
		trial = append(trial, p[at+2:]...)
		if t := s.total(trial); t < best {
			best = t
			p = append(p[:0], trial...)
		} else {
			at++
		}
	}
	return p
}

// Exact is the plan with the shortest predicted step of all 2^(L-1), for all cost functions of a
// bucket's size. A fixed rule decides between equally short plans.
//
// Without selection the channel's finish describes a prefix of the layers, and the earliest finish
// is best for all continuations:
//
//	F[j] = min over i < j of max(F[i], R[j]) + t_c(i..j)
//
// with R[j] the time of layers 1..j being final: O(L²). F[i] is the time at which the channel would
// end with layers 1..i if the computation never ended, see Contention. With selection, or exchanges
// that slow the computation, buckets also delay the compute path, and two times describe a prefix,
// see exactFront.
func Exact(s Step) Plan {
	if len(s.Layers) == 0 {
		return nil
	}
	if s.Costs.free() {
		return exactDense(s)
	}
	p, _ := exactFront(s)
	return p
}

func exactDense(s Step) Plan {
	n := len(s.Layers)
	done := make([]float64, n+1) // F: by number of layers
	from := make([]int, n+1)     // the last bucket's first layer
	ready := s.Forward
	for j := 1; j <= n; j++ {
		ready += s.Backward[j-1]
		done[j] = math.Inf(1)
		for i := range j {
			before := finish{ready, done[i]}
			if t := before.then(s.Costs.Contention, 0, s.Costs.send(span(s.Layers, i, j-1).Len()), j == n); t.channel < done[j] {
				done[j], from[j] = t.channel, i
			}
		}
	}
	var p Plan
	for j := n; j > 0; j = from[j] {
		p = append(p, span(s.Layers, from[j], j-1))
	}
	slices.Reverse(p)
	return p
}

// prefix is a cut of the first layers: its state, and the shorter prefix that it extends.
type prefix struct {
	finish
	layers, before int // number of layers of the extended prefix, and the prefix's place in the front
}

// exactFront is the dynamic programme over pairs (compute path, channel). Both times only delay the
// rest of a step, so of the prefixes of a length only the Pareto front matters, without prefixes
// that must end later than a quick plan. The cost is O(L² x size of the fronts), and the second
// result the largest size: the number of buckets bounds the sizes if selection costs Fixed +
// PerValue x and exchanges take no Contention.Share, as the compute time then depends only on the
// number of buckets.
func exactFront(s Step) (p Plan, largest int) {
	n := len(s.Layers)
	fronts := make([][]prefix, n+1)
	fronts[0] = []prefix{{finish: finish{compute: s.Forward}}}
	bound := boundOf(s)
	for j := 1; j <= n; j++ {
		var all []prefix
		backward := 0.0
		for i := j - 1; i >= 0; i-- {
			backward += s.Backward[i]
			values := span(s.Layers, i, j-1).Len()
			sel, send := s.Costs.group(values)
			work := s.Costs.Contention.afterMessages(i, backward+sel)
			for k, f := range fronts[i] {
				if f := f.then(s.Costs.Contention, work, send, j == n); !bound.cuts(f, j) {
					all = append(all, prefix{f, i, k})
				}
			}
		}
		fronts[j] = pareto(all)
		largest = max(largest, len(fronts[j]))
	}
	at := 0 // the channel finishes last: sorted by compute, the last is the shortest
	for k, f := range fronts[n] {
		if f.channel < fronts[n][at].channel {
			at = k
		}
	}
	for j := n; j > 0; {
		f := fronts[j][at]
		p = append(p, span(s.Layers, f.layers, j-1))
		j, at = f.layers, f.before
	}
	slices.Reverse(p)
	return p, largest
}

// bound excludes prefixes without a chance against a quick plan.
type bound struct {
	contention Contention
	end        float64 // end of all buckets, under the better of two quick plans
	// remaining is, by number of layers, the least remaining time: backward, and exchanges without
	// costs per message.
	remaining []finish
}

func boundOf(s Step) bound {
	n := len(s.Layers)
	s.Update, s.Rows = 0, 0
	b := bound{s.Costs.Contention, min(s.total(Scan(s)), s.total(One(s.Layers))), make([]finish, n+1)}
	b.end += 1e-9 * b.end // slack for different orders of sums
	perValue := math.Inf(1)
	for _, w := range s.Costs.Sends {
		perValue = min(perValue, w.PerByte*w.Payload.Unit*w.Payload.share())
	}
	for j := n - 1; j >= 0; j-- {
		b.remaining[j] = finish{b.remaining[j+1].compute + s.Backward[j], b.remaining[j+1].channel + perValue*float64(s.Layers[j].Len)}
	}
	return b
}

// cuts reports whether a prefix of j layers is useless.
func (b bound) cuts(f finish, j int) bool {
	compute := f.compute + b.remaining[j].compute
	channel := f.channel + b.contention.stretch()*b.remaining[j].channel
	return compute > b.end || b.contention.settle(channel, compute) > b.end
}

// pareto keeps the Pareto front of both times, by rising compute time and falling channel time, and
// reorders all.
func pareto(all []prefix) []prefix {
	slices.SortStableFunc(all, func(a, b prefix) int {
		switch {
		case a.compute != b.compute:
			return sign(a.compute - b.compute)
		default:
			return sign(a.channel - b.channel)
		}
	})
	front := all[:0]
	for _, f := range all {
		if len(front) == 0 || f.channel < front[len(front)-1].channel {
			front = append(front, f)
		}
	}
	return slices.Clone(front)
}

func sign(x float64) int {
	switch {
	case x < 0:
		return -1
	case x > 0:
		return 1
	}
	return 0
}
