package tune

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// Prediction holds the predicted step times, in seconds, of a candidate with a plan.
type Prediction struct {
	Strategy string
	Rule     compress.Rule // DLGS's rule, else empty
	Plan     bucket.Plan
	PlanName string
	// Step is the mean step, Exact a step with newly selected thresholds, Reuse a step with reused
	// thresholds; all are equal without reuse.
	Step, Exact, Reuse float64
	// Parts of the mean step except forward, backward and the update.
	Compress, Exposed float64
	// Timeline is the step's timeline, with reused thresholds if the strategy reuses any.
	Timeline bucket.Timeline
}

// Predict plans for a candidate by a valid profile and predicts the step, for sums of a group with
// these numbers of ranks, hosts and servers (0: no servers). The error names the costs missing from
// the profile.
func Predict(f bucket.Profile, c Candidate, ranks, hosts, servers int) (Prediction, error) {
	step, err := stepOf(f, c, ranks, hosts, servers)
	if err != nil {
		return Prediction{}, err
	}
	exact, reuse, mean := step.Kinds(codecOf(f, c), c.Every)
	p := Plan(c.Planner, mean)
	if err := p.Validate(step.Layers); err != nil {
		return Prediction{}, fmt.Errorf("tune: plan %s for %s: %w", c.Planner.Name, c.Name, err)
	}
	out := Prediction{Strategy: c.Name, Rule: c.rule(), Plan: p, PlanName: c.Planner.Name}
	if !c.reuses() {
		t := bucket.Predict(mean, p)
		out.Step, out.Exact, out.Reuse, out.Compress, out.Exposed, out.Timeline = t.Total, t.Total, t.Total, t.Selecting, t.Exposed, t
		return out, nil
	}
	a, b := bucket.Predict(exact, p), bucket.Predict(reuse, p)
	of := func(a, b float64) float64 { return b + (a-b)/float64(c.Every) }
	out.Step, out.Exact, out.Reuse, out.Timeline = of(a.Total, b.Total), a.Total, b.Total, b
	out.Compress, out.Exposed = of(a.Selecting, b.Selecting), of(a.Exposed, b.Exposed)
	return out, nil
}

// unmeasured is an extra bucket's unmeasured cost as a share of Contention.Late: 0.6 to 1.2 ms in
// steps of 120 ms to 1.9 s, on ranks without a spare core and with messages 2 to 5 ms late. Eight
// buckets instead of two, with an equal prediction, took 6 % longer.
const unmeasured = 0.25

// Plan is the planner's plan of a measured step, without buckets that gain less than the unmeasured
// cost.
func Plan(planner bucket.Named, s bucket.Step) bucket.Plan {
	return bucket.Worthwhile(planner.Plan, s, unmeasured*s.Costs.Contention.Late)
}

// stepOf is the profile's step with the costs of the candidate's exchanges; Kinds adds the
// selections.
func stepOf(f bucket.Profile, c Candidate, ranks, hosts, servers int) (bucket.Step, error) {
	step := f.Step()
	step.Overlap = !c.Clipped
	if c.Shared {
		step.Update /= float64(max(1, ranks))
	}
	c.Density = densityIn(f, c)
	var errs []error
	if c.Chain != nil {
		codec, ok := f.Codec(c.codec(), c.Density)
		if !ok {
			errs = append(errs, fmt.Errorf("the profile has no cost of codec %s%s", c.codec(), densityText(c.Density)))
		}
		step.Costs.After = codec.After
	}
	payload := c.payload(0)
	if ranks == 1 && servers == 0 {
		payload.Unit = 4
		step.Costs.Sends = []bucket.Send{{Name: "none", Payload: payload}}
	} else if step.Costs.Sends = f.Sends(c.code(), payload, ranks, hosts, servers); len(step.Costs.Sends) == 0 {
		errs = append(errs, fmt.Errorf("the profile has no cost of exchanging %s%s among %d ranks on %d hosts%s", c.code(), densityText(c.Density), ranks, hosts, serversText(f, servers)))
	}
	step.Costs.Contention = f.Contention(c.code(), payload, ranks, hosts, servers)
	err := errors.Join(errs...)
	switch {
	case err != nil:
		err = &costsError{err}
	default:
		err = step.Validate()
	}
	if err != nil {
		return bucket.Step{}, fmt.Errorf("tune: strategy %s: %w; %w", c.Name, err, measureThis())
	}
	return step, nil
}

// errCosts reports a profile without some cost.
var errCosts = errors.New("the profile lacks costs")

type costsError struct{ error }

func (e *costsError) Is(target error) bool { return target == errCosts }

func codecOf(f bucket.Profile, c Candidate) bucket.CodecProfile {
	if c.Chain == nil {
		return bucket.CodecProfile{}
	}
	codec, _ := f.Codec(c.codec(), densityIn(f, c))
	return codec
}

// densityIn is the candidate's density, or the profile's if the candidate has none.
func densityIn(f bucket.Profile, c Candidate) float64 {
	for _, codec := range f.Codecs {
		if c.sparse() && c.Density == 0 && codec.Name == c.codec() {
			return codec.Density
		}
	}
	return c.Density
}

// otherKind reports whether a profile is of a job with servers and servers is 0, or the reverse.
func otherKind(f bucket.Profile, servers int) bool {
	return len(f.Links) > 0 && !slices.ContainsFunc(f.Links, func(l bucket.LinkProfile) bool { return (l.Servers > 0) == (servers > 0) })
}

func serversText(f bucket.Profile, servers int) string {
	other := otherKind(f, servers)
	switch {
	case servers > 0 && other:
		return fmt.Sprintf(" through %s: it is of ranks without servers", quantity.Count(servers, "server"))
	case servers > 0:
		return fmt.Sprintf(" through %s", quantity.Count(servers, "server"))
	case other:
		return " without servers: it is of a job that has some"
	}
	return ""
}

func densityText(d float64) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf(" at density %s", quantity.Exact(d))
}

// margin is the least predicted gain over the first candidate, as a share of the first's step:
// compressed gradients change the training, too. Candidates share most prediction errors: gains
// predicted as 2.9 % were 3 to 5 % (ResNet-20, 1 Gbit/s).
const margin = 0.02

// Choose returns the index of the fastest prediction, or 0 (uncompressed gradients) if the gain is
// below margin.
func Choose(all []Prediction) int {
	best := 0
	for i, p := range all {
		if p.Step < all[best].Step {
			best = i
		}
	}
	if all[best].Step > all[0].Step*(1-margin) {
		return 0
	}
	return best
}
