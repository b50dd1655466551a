// Package tune measures the parts of a running job's steps, and chooses how gradients are
// exchanged: the buckets, and the compression.
//
// Backward is timed layer by layer in place (bucket.Profiler). Codecs are timed on the job's
// threads, on all ranks together as in a step, and exchanges on the job's links by the Reducer of
// the steps; curves and lines are fitted to both. Every number is the slowest rank's, as the other
// ranks wait, and is equal on all ranks.
//
// A Profile keeps the measurements in a file, for later runs with the same choices and no
// measuring: choices from measurements, and with the choices the order of sums, differ from run to
// run; choices from a file do not.
package tune

import (
	"fmt"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/exchange"
)

// Candidate is a possible way to exchange gradients.
type Candidate struct {
	// Name is the strategy's name, such as "dlgs".
	Name string
	// Chain compresses gradients; nil: no compression.
	Chain *compress.Chain
	// Density is the share of values sent by a chain with a selection.
	Density float64
	// Every is the number of selections per exact selection, if the strategy reuses thresholds. For
	// other strategies it is 1 or 0.
	Every int
	// Clipped reports whether the whole gradient's norm is bounded, so that no bucket is updated
	// before the last bucket's exchange.
	Clipped bool
	// Shared reports whether ranks share the update (distopt.UpdateSharded), each rank computing a
	// part and writing the part to all within the exchange. The writes cost as much as an exchange
	// of sums alone, so the extra time is about one rank's part.
	Shared bool
	// Bounded reports whether the sum may keep only as many entries as a rank sends
	// (exchange.Request.MaxEntries).
	Bounded bool
	// Planner cuts the layers: the strategy's only planner, or the best.
	Planner bucket.Named
}

func (c Candidate) code() string {
	if c.Chain == nil {
		return compress.FP32{}.Name()
	}
	return c.Chain.Quantiser().Name()
}

// rule is the rule of a chain with reused thresholds, else empty.
func (c Candidate) rule() compress.Rule {
	if c.Chain == nil {
		return ""
	}
	return c.Chain.Rule()
}

// codec is the name of the chain's cost in a profile.
func (c Candidate) codec() string { return CodecName(c.Name, c.rule()) }

// CodecName is the name of a codec's cost in a profile: the strategy, and the thresholds' rule if
// not the default, such as "dlgs-paper".
func CodecName(strategy string, rule compress.Rule) string {
	if rule == "" || rule == compress.RuleCorrected {
		return strategy
	}
	return strategy + "-" + string(rule)
}

func (c Candidate) sparse() bool { return c.Chain != nil && c.Chain.Sparse() }

// local is the part of the chain on the compute path, or nil. The exchange casts values to 16 bits.
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

// casts reports whether the reducer's caller may cast values to 16 bits and back.
func (c Candidate) casts() bool {
	if c.Chain == nil || c.sparse() {
		return false
	}
	q := c.Chain.Quantiser().Code()
	return q == compress.CodeFP16 || q == compress.CodeBF16
}

// payload is a bucket's payload, with entries of unit bytes.
func (c Candidate) payload(unit float64) bucket.Payload {
	const entry = 8 // an index and a value, without a measurement
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

// reuses reports whether most steps reuse thresholds.
func (c Candidate) reuses() bool { return c.Every > 1 }

// serversOf is a reducer's number of servers, 0 for sums among ranks.
func serversOf(r exchange.Reducer) int {
	if s, ok := r.(interface{ Servers() int }); ok {
		return s.Servers()
	}
	return 0
}

// slowest sets each number to its maximum over all ranks of the group.
func slowest(g *collective.Group, figures []float64) error {
	if g.Size() == 1 {
		return nil
	}
	if err := collective.AllReduce(g, figures, collective.Max); err != nil {
		return fmt.Errorf("tune: agreeing on what was measured: %w", err)
	}
	return nil
}

// computation merges this rank's step times to the slowest rank's: an exchange waits for the last
// rank's gradients. A collective call.
func computation(g *collective.Group, forward, update float64, backward []float64) (float64, float64, []float64, error) {
	all := append([]float64{update, forward}, backward...)
	for i := 2; i < len(all); i++ {
		all[i] += all[i-1] // the time of each final gradient
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
