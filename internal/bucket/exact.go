package bucket

import (
	"math"
	"slices"
)

// Exact is the plan with the shortest predicted step of all 2^(L-1), whatever
// the costs are as functions of a group's size. Of equally short ones it takes
// one by a fixed rule.
//
// Without selection a prefix of the layers is described by when the channel has
// finished it, and the earliest is best for whatever follows:
//
//	F[j] = min over i < j of max(F[i], R[j]) + t_c(i..j)
//
// with R[j] the time at which layers 1..j are final: O(L²). F counts the channel as if the
// computation never ended, see Contention. With selection, or exchanges that slow the
// computation down, groups also delay the compute path, and a prefix is described by two
// times, see exactFront.
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

// prefix is a way to cut the first layers: the state it leads to, and the
// prefix it extends.
type prefix struct {
	finish
	layers, before int // number of layers of the prefix extended, and its place in that front
}

// exactFront is the dynamic programme over pairs (compute path, channel): both
// only ever delay what follows, so that of the prefixes of a length only those
// matter that no other one beats in both times, the Pareto front, and that can still end
// as early as a quick plan. It costs O(L² x size of the fronts), and returns the largest
// of these sizes: they are bounded by the number of groups when selection costs Fixed + PerValue x and nothing is
// lost to exchanges (Contention.Share), for then the compute time depends on nothing else.
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

// bound tells which prefixes cannot lead to a step as short as that of a quick plan.
type bound struct {
	contention Contention
	end        float64 // of all groups, under the better of two quick plans
	// remaining is by number of layers what is still to come at least: backward, and
	// exchanges without what each message costs.
	remaining []finish
}

func boundOf(s Step) bound {
	n := len(s.Layers)
	s.Update, s.Rows = 0, 0
	b := bound{s.Costs.Contention, min(s.total(Scan(s)), s.total(One(s.Layers))), make([]finish, n+1)}
	b.end += 1e-9 * b.end // sums are rounded in other orders
	perValue := math.Inf(1)
	for _, w := range s.Costs.Sends {
		perValue = min(perValue, w.PerByte*w.Payload.Unit*w.Payload.share())
	}
	for j := n - 1; j >= 0; j-- {
		b.remaining[j] = finish{b.remaining[j+1].compute + s.Backward[j], b.remaining[j+1].channel + perValue*float64(s.Layers[j].Len)}
	}
	return b
}

// cuts reports whether a prefix of j layers is of no use.
func (b bound) cuts(f finish, j int) bool {
	compute := f.compute + b.remaining[j].compute
	channel := f.channel + b.contention.stretch()*b.remaining[j].channel
	return compute > b.end || b.contention.settle(channel, compute) > b.end
}

// pareto keeps what nothing else beats in both times, by rising compute time
// and falling channel time. It reorders all.
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
