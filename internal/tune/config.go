package tune

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/spelling"
)

// Auto is the strategy that chooses one of AutoStrategies.
const Auto distopt.Strategy = "auto"

// AutoStrategies are what Auto chooses from; the first where no other pays.
func AutoStrategies() []distopt.Strategy {
	return []distopt.Strategy{distopt.FP32, distopt.FP16, distopt.BF16, distopt.DLGS, distopt.TopK}
}

// SavedPlan is the name of the plan that a profile holds.
const SavedPlan = "saved"

// Plans are the names of plans that are made of measurements.
func Plans() []string { return []string{"mgwfbp", "dlgs-scan", "exact", SavedPlan} }

// Config says what a Tuner chooses and by what.
type Config struct {
	// Exchange is the configuration of the optimizer, except that its strategy may also be
	// Auto, and its plan one of Plans; under Auto the empty plan is "exact". Base returns
	// what the Optimizer itself is made with.
	Exchange distopt.Config
	// Among are the strategies that Auto chooses from, of AutoStrategies; nil: all of them.
	Among []distopt.Strategy
	// Measure takes the times of the job's own first steps, which Auto does anyhow
	// unless there is a Profile. Choices, and with them results, then differ from run
	// to run.
	Measure bool
	// Profile is what to choose by instead of measuring, the same on every rank. nil: none.
	Profile *bucket.Profile
	// Choices, if there are any, are what an earlier run's Tuner did (State): the same is done after the same steps, nothing
	// is measured, and the bits are the same. They take the place of Measure and Profile.
	Choices Choices
	// MayKeep says that Resumed will be called, which may bring a choice to keep: then
	// a plan needs neither Measure nor Profile, and one by Profile is made there.
	MayKeep bool
	// Model is the name of the model, for the profile.
	Model string
	// Batch is how many samples a rank takes in a step, for the profile.
	Batch int
	// Report is called on every rank, within New and Step, with what was chosen, and once
	// steps were measured with how long they took. nil: nothing is reported.
	Report func(Report)
	// Measuring is called before codecs and links are measured, which takes seconds. nil:
	// nothing is called.
	Measuring func()
	// Save is called with what was measured when a choice was made by it. nil: it is not kept.
	// Its error ends the step.
	Save func(bucket.Profile) error
}

// Chooses tells whether there is anything to choose: whether strategy or plan are of
// those that distopt does not know.
func (c Config) Chooses() bool {
	return c.Exchange.Strategy == Auto || slices.Contains(Plans(), c.Exchange.Plan)
}

// Base is the configuration of the Optimizer: Exchange, where it is what distopt knows.
func (c Config) Base() distopt.Config {
	out := c.Exchange
	if out.Strategy == Auto {
		out.Strategy, out.Spars, out.Every, out.Rule = distopt.FP32, 0, 0, "" // of later ones
	}
	if slices.Contains(Plans(), out.Plan) {
		out.Plan = ""
	}
	return out
}

// Validate reports every fault of c at once.
func (c Config) Validate() error {
	var errs []error
	add := func(wrong bool, p setting.Path, format string, args ...any) {
		if wrong {
			errs = append(errs, setting.Errorf(p, format, args...))
		}
	}
	x, auto, measured := c.Exchange, c.Exchange.Strategy == Auto, slices.Contains(Plans(), c.Exchange.Plan)
	known := append(distopt.Plans(), Plans()...)
	base := c.Base()
	if base.Plan != "" && !slices.Contains(known, base.Plan) {
		add(true, "exchange.plan", "%q is not known%s: use one of %s", base.Plan, spelling.Hint(base.Plan, known...), strings.Join(known, ", "))
		base.Plan = ""
	}
	if auto { // the settings of what it may choose
		errs = append(errs, distopt.Config{Strategy: distopt.DLGS, Spars: x.Spars, Every: x.Every, Rule: x.Rule}.Validate())
	}
	errs = append(errs, base.Validate())
	add(c.Measure && c.Profile != nil, "tuning.tune", "and %v are two sources for one choice: leave one of them out", setting.Path("tuning.profile"))
	add(x.NonFinite == "skip" && c.Chooses(), "training.non-finite", "skip has updates after the exchange, which %v %s and %v %s do not predict: name the strategy and its plan, or use end", setting.Path("exchange.strategy"), cmp.Or(x.Strategy, distopt.FP32), setting.Path("exchange.plan"), cmp.Or(x.Plan, "exact"))
	i, err := distopt.Lookup(base.Strategy)
	add(err == nil && measured && !auto && (i.Plan != "" || i.Name == distopt.PartialUpdate), "exchange.plan", "%s has no effect on %v %s: leave it out", x.Plan, setting.Path("exchange.strategy"), i.Name)
	wrong := func(s distopt.Strategy) bool { return !slices.Contains(AutoStrategies(), s) }
	add(c.Among != nil && (len(c.Among) < 2 || c.Among[0] != distopt.FP32 || slices.ContainsFunc(c.Among, wrong)), "exchange.strategy",
		"%s is to choose from %v: want several of %v, and the first of them first", Auto, c.Among, AutoStrategies())
	errs = append(errs, c.validateChoices(auto, measured)...)
	switch {
	case len(c.Choices) > 0: // which are a source
	case c.lacksPlan() && (c.Measure || !c.MayKeep):
		errs = append(errs, noSource(SavedPlan))
	case measured && !auto && !c.Measure && c.Profile == nil && !c.MayKeep:
		errs = append(errs, noSource(x.Plan))
	}
	add(x.BucketBytes != 0 && (measured || auto && x.Plan == ""), "exchange.bucket-bytes", "%d has no effect on %v %s: use %s or leave it out", x.BucketBytes, setting.Path("exchange.plan"), cmp.Or(x.Plan, "exact"), distopt.PlanFixed)
	if c.Profile != nil {
		errs = append(errs, c.Profile.Validate())
	}
	return errors.Join(errs...)
}

// lacksPlan tells whether the plan is to be a profile's that is not there.
func (c Config) lacksPlan() bool {
	return c.Exchange.Plan == SavedPlan && (c.Profile == nil || c.Profile.Plan == nil)
}

// canMeasure tells whether a choice can be made of what is measured.
func (c Config) canMeasure() bool {
	return (c.Measure || c.Exchange.Strategy == Auto) && !c.lacksPlan()
}

// noSource says what a plan can be made of.
func noSource(plan string) error {
	if plan == SavedPlan {
		return setting.Errorf("exchange.plan", "%s is the one that a profile holds: name a file that has one with %v", plan, setting.Path("tuning.profile"))
	}
	return setting.Errorf("exchange.plan", "%s is made of measurements: name a file with those of an earlier run (%v), for results that can be repeated, or measure now (%v), which may change them from run to run",
		plan, setting.Path("tuning.profile"), setting.Path("tuning.tune"))
}

// measureThis is what to do without a profile of this job.
func measureThis() error {
	return setting.Errorf("", "measure this job (%v) and save that", setting.Path("tuning.tune"))
}

// among are the strategies that Auto chooses from.
func (c Config) among() []distopt.Strategy {
	if c.Among == nil {
		return AutoStrategies()
	}
	return c.Among
}

// candidates are the strategies to choose from, each with its planner.
func (c Config) candidates() ([]Candidate, error) {
	names := []distopt.Strategy{c.Base().Strategy}
	if c.Exchange.Strategy == Auto {
		names = c.among()
	}
	var out []Candidate
	for _, name := range names {
		cfg := c.Exchange
		cfg.Strategy = name
		info, err := distopt.Lookup(name)
		if err != nil {
			return nil, fmt.Errorf("tune: %w", err)
		}
		one := Candidate{Name: string(info.Name), Every: 1, Clipped: cfg.ClipNorm > 0, Bounded: cfg.LimitSum}
		if one.Chain, err = cfg.NewChain(); err != nil {
			return nil, fmt.Errorf("tune: strategy %s: %w", name, err)
		}
		if one.sparse() {
			one.Density = cfg.Density()
		}
		if info.HasEffect(distopt.SettingEvery) {
			if one.Every = cfg.Every; one.Every == 0 {
				one.Every = compress.DefaultEvery
			}
		}
		if one.Planner, err = c.planner(info.Plan); err != nil {
			return nil, fmt.Errorf("tune: %w", err)
		}
		out = append(out, one)
	}
	return out, nil
}

// planner is the one of that name, the only one of a strategy, or else the configured
// one.
func (c Config) planner(only string) (bucket.Named, error) {
	name := only
	if name == "" {
		if name = c.Exchange.Plan; name == "" {
			name = "exact"
		}
	}
	switch {
	case name == SavedPlan:
		return bucket.Named{Name: SavedPlan, Plan: func(bucket.Step) bucket.Plan { return c.Profile.SavedPlan() }}, nil
	case name == distopt.PlanFixed:
		return bucket.Named{Name: name, Plan: bucket.FixedOf(c.Exchange.BucketBytes)}, nil
	}
	return bucket.LookupPlanner(name)
}

// candidate is the one of that name.
func (t *Tuner) candidate(name string) Candidate {
	for _, c := range t.candidates {
		if c.Name == name {
			return c
		}
	}
	return Candidate{Name: name}
}
