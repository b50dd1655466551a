package train

import (
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/tune"
)

// Tuning says by what a strategy "auto" and plans that are made of measurements are
// chosen. The zero value measures for "auto" alone.
type Tuning struct {
	// Measure times the run's first steps, its codecs and its links, and chooses by
	// that: results then depend on what was measured.
	Measure bool
	// Profile is what to choose by instead, the same on every rank.
	Profile *bucket.Profile
	// Choices is what an earlier run did after what it measured (Summary.Choices), to be done again in its place, the
	// same on every rank.
	Choices tune.Choices
	// Report is told of choices, Measuring when codecs and links are about to be
	// measured, and Save given what was measured, on rank 0; nil: nobody is.
	Report    func(tune.Report)          `json:"-"`
	Measuring func()                     `json:"-"`
	Save      func(bucket.Profile) error `json:"-"`
}

func (t *Tuning) settings() []setting.Row {
	return []setting.Row{
		{Path: "tuning.choices", Commands: setting.Bench | setting.BenchStep, Needs: setting.Any(setting.Equals("exchange.strategy", string(tune.Auto)), setting.Equals("exchange.plan", tune.Plans()...)), Value: setting.Textual(&t.Choices),
			About: "what an earlier run chose by its measurements, and after how many steps, to be done again with the same bits, such as 0:one=16; 12:dlgs/exact=3,4,9; 15:reselect"},
	}
}

// tuning is the configuration of what chooses.
func (c Config) tuning() tune.Config {
	return tune.Config{
		Exchange: c.Exchange, Measure: c.Tuning.Measure, Profile: c.Tuning.Profile, Choices: c.Tuning.Choices, Model: c.Model.Name, Batch: c.Batch,
		MayKeep: c.Checkpoint.Resume,
	}
}

// newTuner makes the tuner of an optimizer.
func (r *Replica) newTuner(cfg Config, g *collective.Group) (*tune.Tuner, error) {
	c := cfg.tuning()
	if r.job.Rank() == 0 {
		c.Report, c.Measuring, c.Save = cfg.Tuning.Report, cfg.Tuning.Measuring, cfg.Tuning.Save
	}
	return tune.New(g, r.Opt, planParams(r.Params), r.Params.Grads(), c)
}
