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

// Optimizers lists the values of Config.Optimizer. OptimizerClick is for click models with
// parameters on servers.
func Optimizers() []string {
	return []string{"sgd", "adagrad", "adam", "adamw", "ftrl", OptimizerClick}
}

// OptimizerClick updates rows of a table by the rule of click models (optim.ClickRows), which
// counts shows and clicks on the servers, and dense parameters by adagrad.
const OptimizerClick = "click"

// SetOptimizer selects an optimizer. A change resets learning rate, momentum and weight decay to
// the new optimizer's defaults, because the old values have another meaning. A model with a
// row-sparse table gets no decay, which would move rows outside of a step.
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

// newOptimizer returns the optimizer for a model's arena. AdamW does not decay biases and
// normalisations, the parameters of one dimension.
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

// Tuning configures strategy "auto" and measured plans. The zero value measures for "auto" alone.
type Tuning struct {
	// Measure times the run's first steps, codecs and links, and chooses by the measurements.
	// Results then depend on the measurements.
	Measure bool
	// Profile replaces the measurements. It must be equal on every rank.
	Profile *bucket.Profile
	// Choices repeats the choices of an earlier run (Summary.Choices). It must be equal on every
	// rank.
	Choices tune.Choices
	// Report receives choices, Measuring announces measurements of codecs and links, and Save
	// receives the measurements, on rank 0. Each may be nil.
	Report    func(tune.Report)          `json:"-"`
	Measuring func()                     `json:"-"`
	Save      func(bucket.Profile) error `json:"-"`
}

func (t *Tuning) settings() []setting.Row {
	return []setting.Row{
		{Path: "tuning.choices", Commands: setting.Bench | setting.BenchStep, Needs: setting.Any(setting.Equals("exchange.strategy", string(tune.Auto)), setting.Equals("exchange.plan", tune.Plans()...)), Value: setting.Textual(&t.Choices),
			About: "measured choices of an earlier run, each with the number of steps before it, to repeat them with the same bits, such as 0:one=16; 12:dlgs/exact=3,4,9; 15:reselect"},
	}
}

func (c Config) tuning() tune.Config {
	return tune.Config{
		Exchange: c.Exchange, Measure: c.Tuning.Measure, Profile: c.Tuning.Profile, Choices: c.Tuning.Choices, Model: c.Model.Name, Batch: c.Batch,
		MayKeep: c.Checkpoint.Resume,
	}
}

func (r *Replica) newTuner(cfg Config, g *collective.Group) (*tune.Tuner, error) {
	c := cfg.tuning()
	if r.job.Rank() == 0 {
		c.Report, c.Measuring, c.Save = cfg.Tuning.Report, cfg.Tuning.Measuring, cfg.Tuning.Save
	}
	return tune.New(g, r.Opt, planParams(r.Params), r.Params.Grads(), c)
}
