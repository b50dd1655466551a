package bucket

import (
	"math"
	"slices"
)

// Exact is the plan with the shortest predicted step of all 2^(L-1), for all cost functions of a
// group's size. A fixed rule decides between equally short plans.
//
// Without selection the channel's finish describes a prefix of the layers, and the earliest finish
// is best for all continuations:
//
//	F[j] = min over i < j of max(F[i], R[j]) + t_c(i..j)
//
// with R[j] the time of layers 1..j being final: O(L²). F is the channel's time for an endless
// computation, see Contention. With selection, or exchanges that slow the computation, groups also
// delay the compute path, and two times describe a prefix, see exactFront.
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
	from := make([]int, n+1)     // the last group's first layer
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

// prefix is a cut of the first layers: the resulting state, and the extended prefix.
type prefix struct {
	finish
	layers, before int // number of layers of the extended prefix, and the prefix's place in the front
}

// exactFront is the dynamic programme over pairs (compute path, channel). Both times only delay the
// rest of a step, so of the prefixes of a length only the Pareto front matters, without prefixes
// that must end later than a quick plan. The cost is O(L² x size of the fronts), and the second
// result the largest size: the number of groups bounds the sizes if selection costs Fixed +
// PerValue x and exchanges take no Contention.Share, as the compute time then depends only on the
// number of groups.
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
	end        float64 // end of all groups, under the better of two quick plans
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
