// Package tune measures what the steps of a running job are made of, and chooses from
// that how its gradients travel: how they are cut into groups, and whether making
// them smaller pays.
//
// Backward is timed layer by layer where it runs (bucket.Profiler). Here codecs are
// timed on the job's own threads, all ranks at once as in a step, and exchanges on
// its own links by the very Reducer that carries its steps; curves and lines are
// fitted to both. Every figure is that of the slowest rank, because the others wait
// for it, and is the same on all.
//
// A Profile keeps what was measured in a file, so that a later run chooses the same
// without measuring: choices that rest on measurements differ from run to run, and
// with them the order of sums; those that rest on a file do not.
package tune

import (
	"fmt"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/exchange"
)

// Candidate is a way to carry gradients that a job could choose.
type Candidate struct {
	// Name is that of the strategy, such as "dlgs".
	Name string
	// Chain is what makes gradients smaller; nil: nothing, they travel as they are.
	Chain *compress.Chain
	// Density is the share of values that a chain with a selection sends.
	Density float64
	// Every is how many selections there are for each exact one, of a chain that
	// reuses thresholds; otherwise 1 or 0.
	Every int
	// Clipped says that the norm of the whole gradient is bounded, so that no group is
	// updated before the last is agreed.
	Clipped bool
	// Shared says that the ranks share the work of the update (distopt.UpdateSharded), each
	// making its part and writing it to all within the exchange. Writing costs what the
	// exchange of sums alone writes, so that what it takes longer is about one rank's part.
	Shared bool
	// Bounded says that the sum may keep to as many entries as a rank sends
	// (exchange.Request.MaxEntries).
	Bounded bool
	// Planner cuts the layers: the only one that the strategy has, or the best.
	Planner bucket.Named
}

// code is the name of the code of its values.
func (c Candidate) code() string {
	if c.Chain == nil {
		return compress.FP32{}.Name()
	}
	return c.Chain.Quantiser().Name()
}

// rule is that of a chain which reuses thresholds; empty of others.
func (c Candidate) rule() compress.Rule {
	if c.Chain == nil {
		return ""
	}
	return c.Chain.Rule()
}

// codec is the name of its chain's cost in a profile.
func (c Candidate) codec() string { return CodecName(c.Name, c.rule()) }

// CodecName is what the cost of a strategy's codec is called in a profile: the strategy's name,
// and the rule of its thresholds where that is not the default, such as "dlgs-paper".
func CodecName(strategy string, rule compress.Rule) string {
	if rule == "" || rule == compress.RuleCorrected {
		return strategy
	}
	return strategy + "-" + string(rule)
}

func (c Candidate) sparse() bool { return c.Chain != nil && c.Chain.Sparse() }

// local is what of the chain happens on the compute path; nil: nothing. Values in 16
// bits are made by the exchange.
func (c Candidate) local() *compress.Chain {
	if c.Chain == nil {
		return nil
	}
	if c.casts() {
		if plain := c.Chain.Uncoded(); !plain.Identity() {
			return plain
		}
		return nil
	}
	return c.Chain
}

// casts tells whether the reducer's caller may make 16 bits of the values, and values
// of these.
func (c Candidate) casts() bool {
	if c.Chain == nil || c.sparse() {
		return false
	}
	q := c.Chain.Quantiser().Code()
	return q == compress.CodeFP16 || q == compress.CodeBF16
}

// payload is what a group sends, if entries are of unit bytes.
func (c Candidate) payload(unit float64) bucket.Payload {
	const entry = 8 // an index and a value, where nothing was measured
	if c.sparse() && unit == 0 {
		unit = entry
	}
	if c.sparse() {
		return bucket.Payload{Density: c.Density, Unit: unit}
	}
	const many = 1 << 16
	if c.Chain != nil {
		unit = float64(c.Chain.Quantiser().Size(many)) / many
	} else {
		unit = 4
	}
	return bucket.Payload{Unit: unit}
}

// reuses tells whether most of its steps are unlike its exact ones.
func (c Candidate) reuses() bool { return c.Every > 1 }

// serversOf is how many servers a reducer has, 0 where the ranks sum among themselves.
func serversOf(r exchange.Reducer) int {
	if s, ok := r.(interface{ Servers() int }); ok {
		return s.Servers()
	}
	return 0
}

// slowest makes each figure that of the rank on which it is largest, on every rank of
// the group.
func slowest(g *collective.Group, figures []float64) error {
	if g.Size() == 1 {
		return nil
	}
	if err := collective.AllReduce(g, figures, collective.Max); err != nil {
		return fmt.Errorf("tune: agreeing on what was measured: %w", err)
	}
	return nil
}

// computation makes a step's times, of this rank, those of the slowest one: a group is
// exchanged when the last rank has its gradients. It is a collective call.
func computation(g *collective.Group, forward, update float64, backward []float64) (float64, float64, []float64, error) {
	all := append([]float64{update, forward}, backward...)
	for i := 2; i < len(all); i++ {
		all[i] += all[i-1] // when each is final
	}
	if err := slowest(g, all); err != nil {
		return 0, 0, nil, err
	}
	out := make([]float64, len(backward))
	for i := range out {
		out[i] = max(0, all[i+2]-all[i+1])
	}
	return all[1], all[0], out, nil
}
