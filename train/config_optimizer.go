package train

import (
	"math"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/spelling"
	"github.com/ringo-ml/ringo/internal/tune"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
)

// Optimizers are the names that Config.Optimizer accepts. OptimizerClick is for click models
// whose parameters servers keep.
func Optimizers() []string {
	return []string{"sgd", "adagrad", "adam", "adamw", "ftrl", OptimizerClick}
}

// OptimizerClick moves rows of a table by the rule of click models (optim.ClickRows), which
// counts shows and clicks on the servers, and dense parameters by adagrad.
const OptimizerClick = "click"

// SetOptimizer chooses an optimizer. Where it is another than before, learning
// rate, momentum and weight decay become its usual ones: those of the old one
// mean something else. A model with a row-sparse table has no decay, which would
// move rows that a step did not name.
func (c *Config) SetOptimizer(name string) {
	if c.Optimizer == name {
		return
	}
	c.Optimizer, c.LR, c.Momentum, c.WeightDecay, c.Eps = name, 0.01, 0, 0, 0
	switch name {
	case "adam":
		c.LR = 0.001
	case "adamw":
		c.LR, c.WeightDecay = 0.001, 0.01
	case "ftrl":
		c.LR = 0.5
	}
	if c.Model.Rows > 0 {
		c.WeightDecay = 0
	}
}

func (c Config) validateOptimizer(f *errorList) {
	f.add(!slices.Contains(Optimizers(), c.Optimizer), "training.optimizer", "%q is not known%s: use one of %s", c.Optimizer, spelling.Hint(c.Optimizer, Optimizers()...), strings.Join(Optimizers(), ", "))
	within := func(p setting.Path, value, limit float64) {
		f.add(!(value >= 0 && value < limit), p, "%s: want a number from 0 to below %s", quantity.Exact(value), quantity.Exact(limit))
	}
	within("training.momentum", c.Momentum, 1)
	within("training.eps", c.Eps, math.Inf(1))
	within("training.weight-decay", c.WeightDecay, math.Inf(1))
	f.add(c.Optimizer == "ftrl" && c.Exchange.Strategy == distopt.PartialUpdate, "training.optimizer",
		"ftrl makes parameters anew of its own sums in each step, which undoes the mean of %v %s: use another of the two", setting.Path("exchange.strategy"), c.Exchange.Strategy)
	_, err := parseTableRules(c.TableRules)
	f.add(err != nil, tableRules, "%s: %w", c.TableRules, err)
	f.join(c.schedule().Validate())
	w := c.Warmup.Epochs
	f.add(w > float64(c.Epochs) && c.Epochs > 0, "training.warmup", "of %v epochs in a run of %d: the learning rate would never be %v; want at most %[2]d epochs", w, c.Epochs, c.LR)
}

// newOptimizer makes the optimizer for a model's arena. AdamW does not decay
// biases and normalisations, the parameters of one dimension.
func (c Config) newOptimizer(ps *nn.Params) optim.RowOptimizer {
	switch c.Optimizer {
	case "adagrad", OptimizerClick:
		o := optim.NewAdagrad(c.LR)
		o.WeightDecay = c.WeightDecay
		if c.Eps != 0 {
			o.Eps = c.Eps
		}
		return o
	case "adam":
		o := optim.NewAdam(c.LR)
		if c.Eps != 0 {
			o.Eps = c.Eps
		}
		return o
	case "ftrl":
		return optim.NewFTRL(c.LR)
	case "adamw":
		o := optim.NewAdamW(c.LR)
		o.WeightDecay = c.WeightDecay
		if c.Eps != 0 {
			o.Eps = c.Eps
		}
		for i, s := range ps.Slots() {
			if p := ps.List()[i]; len(p.Shape) == 1 {
				o.NoDecay = append(o.NoDecay, [2]int{s.Offset, s.Offset + s.Padded})
			}
		}
		return o
	}
	return &optim.SGD{LR: c.LR, Momentum: c.Momentum, WeightDecay: c.WeightDecay}
}

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
