package tune

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// Prediction is what a step under a candidate with its plan is predicted to take, in
// seconds.
type Prediction struct {
	Strategy string
	Rule     compress.Rule // of DLGS; empty of others
	Plan     bucket.Plan
	PlanName string
	// Step is the mean step, Exact and Reuse a step that selects exactly and one that
	// reuses a threshold; all equal where there is no difference.
	Step, Exact, Reuse float64
	// Parts of the mean step besides forward, backward and the update.
	Compress, Exposed float64
	// Timeline is that of a step, one that reuses a threshold where there is a difference: most are.
	Timeline bucket.Timeline
}

// Predict plans for a candidate by what a profile, which must be valid, holds of a
// group of that many ranks and hosts that sums through so many servers, 0 for none,
// and predicts its step. The error says what the profile lacks.
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

// unmeasured is what a group more costs besides what was measured, as a share of
// Contention.Late: 0.6 to 1.2 ms in steps of 120 ms to 1.9 s of ranks without a core to spare,
// whose messages were 2 to 5 ms late. Eight groups in place of two, predicted to be as
// fast, took 6 % longer.
const unmeasured = 0.25

// Plan is the planner's plan of a step whose costs were measured: without groups that gain
// less than groups cost beyond that.
func Plan(planner bucket.Named, s bucket.Step) bucket.Plan {
	return bucket.Worthwhile(planner.Plan, s, unmeasured*s.Costs.Contention.Late)
}

// stepOf is the profile's step with what the candidate's exchanges cost; Kinds adds its
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

// errCosts is what a profile without some cost gives, which says what it lacks.
var errCosts = errors.New("the profile lacks costs")

type costsError struct{ error }

func (e *costsError) Is(target error) bool { return target == errCosts }

// codecOf is the cost of the candidate's chain; none where gradients travel as they are.
func codecOf(f bucket.Profile, c Candidate) bucket.CodecProfile {
	if c.Chain == nil {
		return bucket.CodecProfile{}
	}
	codec, _ := f.Codec(c.codec(), densityIn(f, c))
	return codec
}

// densityIn is the candidate's density, in the profile where it does not say it itself.
func densityIn(f bucket.Profile, c Candidate) float64 {
	for _, codec := range f.Codecs {
		if c.sparse() && c.Density == 0 && codec.Name == c.codec() {
			return codec.Density
		}
	}
	return c.Density
}

// otherKind tells whether a profile is of a job with servers while this one has none, or
// the reverse.
func otherKind(f bucket.Profile, servers int) bool {
	return len(f.Links) > 0 && !slices.ContainsFunc(f.Links, func(l bucket.LinkProfile) bool { return (l.Servers > 0) == (servers > 0) })
}

// serversText says through what an exchange goes, and that a profile is of the other
// way.
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

// margin is by how much a candidate must be predicted to be faster than the first, as
// a share of its step: what makes gradients smaller also changes what is learned.
// Candidates share most of what predictions err in: gains that were predicted to be 2.9 %
// were 3 to 5 % (ResNet-20, 1 Gbit/s).
const margin = 0.02

// Choose returns which prediction to go with: the fastest, unless the first, gradients
// as they are, is slower by less than measurements can tell.
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
