package tune

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/spelling"
)

// Auto is the strategy that chooses from AutoStrategies.
const Auto distopt.Strategy = "auto"

// AutoStrategies are Auto's options; the first is the default if none pays.
func AutoStrategies() []distopt.Strategy {
	return []distopt.Strategy{distopt.FP32, distopt.FP16, distopt.BF16, distopt.DLGS, distopt.TopK}
}

// SavedPlan is the name of a profile's plan.
const SavedPlan = "saved"

// Plans are the names of plans made from measurements.
func Plans() []string { return []string{"mgwfbp", "dlgs-scan", "exact", SavedPlan} }

// Config is a Tuner's configuration.
type Config struct {
	// Exchange is the optimizer's configuration, with Auto as an additional strategy and Plans as
	// additional plans; under Auto the empty plan is "exact". Base is the Optimizer's
	// configuration.
	Exchange distopt.Config
	// Among are Auto's options, a subset of AutoStrategies; nil: all.
	Among []distopt.Strategy
	// Measure times the job's first steps; Auto without a Profile measures in any case. Choices,
	// and therefore results, then differ from run to run.
	Measure bool
	// Profile replaces measuring, and is equal on every rank. nil: no profile.
	Profile *bucket.Profile
	// Choices are an earlier run's choices (State), repeated after the same steps, without
	// measuring and with the same bits. Choices replace Measure and Profile.
	Choices Choices
	// MayKeep reports whether Resumed will be called, which may pass a checkpoint's choice: a plan
	// then needs neither Measure nor Profile, and a plan by Profile is made in Resumed.
	MayKeep bool
	// Model is the model's name, for the profile.
	Model string
	// Batch is a rank's number of samples per step, for the profile.
	Batch int
	// Report is called on every rank, within New and Step, with each choice and later with the
	// measured steps. nil: no reports.
	Report func(Report)
	// Measuring is called ahead of the measurement of codecs and links, which takes seconds. nil:
	// no call.
	Measuring func()
	// Save is called with the profile behind a choice. nil: the profile is not kept. An error ends
	// the step.
	Save func(bucket.Profile) error
}

// Chooses reports whether there is a choice: a strategy or plan unknown to distopt.
func (c Config) Chooses() bool {
	return c.Exchange.Strategy == Auto || slices.Contains(Plans(), c.Exchange.Plan)
}

// Base is the Optimizer's configuration: Exchange, reduced to distopt's strategies and plans.
func (c Config) Base() distopt.Config {
	out := c.Exchange
	if out.Strategy == Auto {
		out.Strategy, out.Spars, out.Every, out.Rule = distopt.FP32, 0, 0, "" // later strategies' settings
	}
	if slices.Contains(Plans(), out.Plan) {
		out.Plan = ""
	}
	return out
}

// Validate reports all errors of c.
func (c Config) Validate() error {
	var f setting.Faults
	x, auto, measured := c.Exchange, c.Exchange.Strategy == Auto, slices.Contains(Plans(), c.Exchange.Plan)
	known := append(distopt.Plans(), Plans()...)
	base := c.Base()
	if base.Plan != "" && !slices.Contains(known, base.Plan) {
		f.Add(true, "exchange.plan", "%q is not known%s: use one of %s", base.Plan, spelling.Hint(base.Plan, known...), strings.Join(known, ", "))
		base.Plan = ""
	}
	if auto { // the settings of Auto's options
		f.Join(distopt.Config{Strategy: distopt.DLGS, Spars: x.Spars, Every: x.Every, Rule: x.Rule}.Validate())
	}
	f.Join(base.Validate())
	f.Add(c.Measure && c.Profile != nil, "tuning.tune", "and %v both set the exchange: remove one of the two", setting.Path("tuning.profile"))
	f.Add(x.NonFinite == "skip" && c.Chooses(), "training.non-finite", "skip has updates after the exchange, which %v %s and %v %s do not predict: name the strategy and its plan, or use end", setting.Path("exchange.strategy"), cmp.Or(x.Strategy, distopt.FP32), setting.Path("exchange.plan"), cmp.Or(x.Plan, "exact"))
	i, err := distopt.Lookup(base.Strategy)
	f.Add(err == nil && measured && !auto && (i.Plan != "" || i.Name == distopt.PartialUpdate), "exchange.plan", "%s has no effect on %v %s: leave it out", x.Plan, setting.Path("exchange.strategy"), i.Name)
	wrong := func(s distopt.Strategy) bool { return !slices.Contains(AutoStrategies(), s) }
	f.Add(c.Among != nil && (len(c.Among) < 2 || c.Among[0] != distopt.FP32 || slices.ContainsFunc(c.Among, wrong)), "exchange.strategy",
		"%s is to choose from %v: want several of %v, and the first of them first", Auto, c.Among, AutoStrategies())
	f.Join(c.validateChoices(auto, measured)...)
	switch {
	case len(c.Choices) > 0: // a source
	case c.lacksPlan() && (c.Measure || !c.MayKeep):
		f.Join(noSource(SavedPlan))
	case measured && !auto && !c.Measure && c.Profile == nil && !c.MayKeep:
		f.Join(noSource(x.Plan))
	}
	f.Add(x.BucketBytes != 0 && (measured || auto && x.Plan == ""), "exchange.bucket-bytes", "%d has no effect on %v %s: use %s or leave it out", x.BucketBytes, setting.Path("exchange.plan"), cmp.Or(x.Plan, "exact"), distopt.PlanFixed)
	if c.Profile != nil {
		f.Join(c.Profile.Validate())
	}
	return f.Err()
}

// lacksPlan reports whether the plan is a missing profile's.
func (c Config) lacksPlan() bool {
	return c.Exchange.Plan == SavedPlan && (c.Profile == nil || c.Profile.Plan == nil)
}

// canMeasure reports whether a choice from measurements is possible.
func (c Config) canMeasure() bool {
	return (c.Measure || c.Exchange.Strategy == Auto) && !c.lacksPlan()
}

// noSource lists the sources of a plan.
func noSource(plan string) error {
	if plan == SavedPlan {
		return setting.Errorf("exchange.plan", "%s is the one that a profile holds: name a file that has one with %v", plan, setting.Path("tuning.profile"))
	}
	return setting.Errorf("exchange.plan", "%s is made of measurements: name a file with those of an earlier run (%v), for results that can be repeated, or measure now (%v), which may change them from run to run",
		plan, setting.Path("tuning.profile"), setting.Path("tuning.tune"))
}

func measureThis() error {
	return setting.Errorf("", "measure this job (%v) and save that", setting.Path("tuning.tune"))
}

func (c Config) among() []distopt.Strategy {
	if c.Among == nil {
		return AutoStrategies()
	}
	return c.Among
}

// candidates are the possible strategies, each with a planner.
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

// planner is the named planner, the strategy's only planner, or the configured planner.
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

func (t *Tuner) candidate(name string) Candidate {
	for _, c := range t.candidates {
		if c.Name == name {
			return c
		}
	}
	return Candidate{Name: name}
}

// Settings are the rows of Config.Exchange: distopt's, plus the strategy Auto and the plans of
// Plans.
func Settings(x *distopt.Config) []setting.Row {
	rows := x.Settings()
	for i := range rows {
		switch r := &rows[i]; r.Path {
		case "exchange.strategy":
			r.Value = setting.Choice(&x.Strategy, append(distopt.Strategies(), Auto, "")...)
			r.About += "; auto: the fastest of several, by measurements"
		case "exchange.plan":
			r.Value = setting.Choice(&x.Plan, append(append(distopt.Plans(), Plans()...), "")...)
			r.About += ", exact for auto; mgwfbp, dlgs-scan and exact are computed from measurements, saved is a profile's plan"
		case "exchange.spars", "exchange.dlgs-every", "exchange.dlgs-rule": // DLGS's, a choice of Auto
			r.Needs = setting.Any(setting.Equals("exchange.strategy", string(Auto)), r.Needs)
		}
	}
	return rows
}
