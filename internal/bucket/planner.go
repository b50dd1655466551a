package bucket

import (
	"fmt"
	"strings"
)

// Planner cuts the layers of a valid step into groups, as a pure function.
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

// Worthwhile plans with additional groups only if each shortens the predicted step by at least
// price seconds, 0 or more: measured message costs are neither exact nor complete, and plans with
// very different numbers of groups often have nearly equal predictions.
//
// Each message, except the last, then takes price longer on both paths: for every critical group,
// with computing up to the group and sending from the group on, all but one group pay the price.
func Worthwhile(plan Planner, s Step, price float64) Plan {
	s.Costs.Contention.Cut += price
	s.Costs.Contention.Late += price
	return plan(s)
}

// FixedOf is Fixed with groups of the given bytes as a planner; 0 means DefaultBytes.
func FixedOf(bytes int) Planner {
	return func(s Step) Plan { return Fixed(s.Layers, bytes) }
}

// MGWFBP is the greedy algorithm of MG-WFBP (Shi et al. 2019, algorithm 1) for dense gradients. In
// backward's order, MGWFBP merges a group into the next layer if the group's wait for the layer,
// from the channel's next free time, is shorter than the saving of one message instead of two
// during the computation. The delay of the compute path by the selection of larger groups is
// ignored. O(L).
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

// Scan is the search of DLGS (Ju et al. 2024). From a group per layer, in backward's order, Scan
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
