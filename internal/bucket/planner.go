package bucket

import (
	"fmt"
	"strings"
)

// Planner cuts a step's layers into groups. It is a pure function of the step,
// which must be valid.
type Planner func(Step) Plan

// Named is a planner with its name on the command line and in summaries.
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

// LookupPlanner returns the planner of that name.
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

// Worthwhile plans so that each group more than one makes the predicted step shorter by at
// least price seconds, 0 or more: what is measured of a message is neither exact nor all
// that it costs, and plans of very different numbers of groups are often predicted to be
// equally fast.
//
// Each message that others follow then takes that much longer on both paths: whichever
// groups the step waits for, computing up to one of them and sending from there on, all but
// one have that price.
func Worthwhile(plan Planner, s Step, price float64) Plan {
	s.Costs.Contention.Cut += price
	s.Costs.Contention.Late += price
	return plan(s)
}

// FixedOf is Fixed with groups of so many bytes as a planner; 0 means
// DefaultBytes.
func FixedOf(bytes int) Planner {
	return func(s Step) Plan { return Fixed(s.Layers, bytes) }
}

// MGWFBP is the greedy of MG-WFBP (Shi et al. 2019, algorithm 1), made for dense
// gradients. It goes through the layers in the order of backward and merges a
// group into the next layer when the time the group would have to wait for
// that layer, from when the channel could take it, is less than what one
// message instead of two saves, as long as both are beside the computation. It does not
// see that selecting a larger group delays the compute path. It costs O(L).
func MGWFBP(s Step) Plan {
	if len(s.Layers) == 0 {
		return nil
	}
	var p Plan
	state := finish{compute: s.Forward} // after the groups of p
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

// Scan is the search of DLGS (Ju et al. 2024). It starts from a group for each
// layer, goes through them in the order of backward, and keeps a merge of a
// layer into the next when the predicted step gets shorter. A merged layer
// costs nothing to select and to send, and the next one's sizes and costs are
// those of the sum; its backward time counts once (the paper's pseudo-code,
// read literally, counts it twice). It costs O(L²).
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
