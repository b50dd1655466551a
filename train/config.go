package train

import (
	"errors"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/models"
)

// Synthetic is the value of Config.Data that draws the data set instead of
// reading it.
const Synthetic = "synthetic"

// MaxThreads is the most threads of a rank: far more than any host's cores, and
// few enough to start.
const MaxThreads = 1024

// Config says what to train and how. Defaults returns the reference's values;
// the zero value is not valid.
type Config struct {
	// Model is a name known to models.Lookup.
	Model string
	// Data is a folder holding the data set's files, or Synthetic.
	Data string
	// Batch is the number of samples per rank and backward, at least 1.
	Batch int
	// Epochs is how often the training set is seen, at least 1.
	Epochs int
	// LR, Momentum and WeightDecay are those of optim.SGD.
	LR, Momentum, WeightDecay float64
	// Seed decides the initial parameters, the order of the samples and the
	// synthetic data.
	Seed uint64
	// Threads is how many threads compute in each rank, 1 to MaxThreads. It does
	// not change the result.
	Threads int
	// TrainLimit and EvalLimit use only so many samples; 0 means all.
	TrainLimit, EvalLimit int
	// Exchange says how the ranks agree on a step.
	Exchange distopt.Config
}

// Defaults returns the reference run's settings for a model and a data set.
func Defaults(model, data string) Config {
	return Config{Model: model, Data: data, Batch: 64, Epochs: 10, LR: 0.005, Momentum: 0.9, WeightDecay: 1e-5, Seed: 1, Threads: 1}
}

// Validate reports every fault of c that needs no file to be seen.
func (c Config) Validate() error {
	var errs []error
	atLeast := func(name string, value, least int) {
		if value < least {
			errs = append(errs, fmt.Errorf("%s %d: want at least %d", name, value, least))
		}
	}
	within := func(name string, value, limit float64) {
		if math.IsNaN(value) || value < 0 || value >= limit {
			errs = append(errs, fmt.Errorf("%s %v: want a number from 0 to below %v", name, value, limit))
		}
	}
	if c.Data == "" {
		errs = append(errs, fmt.Errorf("no data: name the folder of the data set, or %q", Synthetic))
	}
	atLeast("batch", c.Batch, 1)
	atLeast("epochs", c.Epochs, 1)
	atLeast("threads", c.Threads, 1)
	if c.Threads > MaxThreads {
		errs = append(errs, fmt.Errorf("threads %d: want at most %d", c.Threads, MaxThreads))
	}
	atLeast("training limit", c.TrainLimit, 0)
	atLeast("evaluation limit", c.EvalLimit, 0)
	if math.IsNaN(c.LR) || math.IsInf(c.LR, 0) || c.LR <= 0 {
		errs = append(errs, fmt.Errorf("learning rate %v: want a positive number", c.LR))
	}
	within("momentum", c.Momentum, 1)
	within("weight decay", c.WeightDecay, math.Inf(1))
	errs = append(errs, c.Exchange.Validate())
	return errors.Join(errs...)
}

// agreed is what must be equal on all ranks. Threads and the folder of the data
// may differ: they do not change the result.
func (c Config) agreed() Config {
	c.Threads = 0
	if spec, err := models.Lookup(c.Model); err == nil {
		c.Model = spec.Name // and not an alias
	}
	if c.Data != Synthetic {
		c.Data = "files"
	}
	return c
}
