package train

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/optim/schedule"
)

// MaxThreads is the most threads of a rank: far more than any host's cores, and
// few enough to start.
const MaxThreads = 1024

// Config says what to train and how. Defaults returns a model's usual values;
// the zero value is not valid.
type Config struct {
	// Model is a name known to models.Lookup.
	Model string
	// Custom, where its Build is set, is the model itself, and Model only what it
	// is called: for a model of one's own.
	Custom models.Spec `json:"-"`
	// Data is a folder (or archive) holding the model's data set, or
	// data.Synthetic. TrainFile and EvalFile name single files outright.
	Data, TrainFile, EvalFile string
	// SkipBad is how many bad lines or images are left out before it is an
	// error.
	SkipBad int
	// TrainLimit and EvalLimit use only so many samples; 0 means all.
	TrainLimit, EvalLimit int
	// TableRows is how many rows the embedding table has to which a click model's
	// categories are hashed, 2 to MaxTableRows; 0: the model's own number.
	TableRows int

	// Stream leaves the training rows in their files, of which there may be many
	// and more than fit memory, and reads them as they are needed; TrainFile may
	// be a folder. Only Criteo's are. Ranks share blocks of the files, or with
	// ByFile whole files, which spares each rank unpacking the others'.
	Stream, ByFile bool
	// Window is how many rows of a stream are shuffled among each other, a multiple
	// of Batch; 0: 128 batches; negative: none. Interleave is how many of its files
	// are read at once; 0: 1.
	Window, Interleave int

	// Batch is the number of samples per rank and backward, at least 1.
	Batch int
	// Epochs is how often the training set is seen, at least 1.
	Epochs int
	// Optimizer is one of Optimizers.
	Optimizer string
	// LR is the learning rate, which the schedule changes over the run.
	LR float64
	// Drops, Cosine, Floor and Warmup are those of schedule.Schedule.
	Drops  []schedule.Drop
	Cosine bool
	Floor  float64
	Warmup schedule.Warmup
	// Momentum is of "sgd"; Eps is of "adagrad", "adam" and "adamw", 0 for its usual
	// value; WeightDecay is of "sgd", "adagrad" and "adamw".
	Momentum, Eps, WeightDecay float64
	// Dropout replaces the model's own probability; 0 keeps it, a negative one
	// means none.
	Dropout float64

	// Seed decides the initial parameters, the order and the augmentation of
	// the samples, dropout and the synthetic data.
	Seed uint64
	// Threads is how many threads compute in each rank, 1 to MaxThreads. It does
	// not change the result.
	Threads int
	// Servers says whether parameters lie on servers.
	Servers Servers
	// Exchange says how the ranks agree on a step.
	Exchange distopt.Config
	// Tuning says by what a strategy "auto" and measured plans are chosen, which
	// Exchange may name, too.
	Tuning Tuning
	// WarmupDensity are the shares of values that are sent in the first epochs,
	// instead of Exchange.Spars (Lin et al. 2018).
	WarmupDensity []float64
	// Checkpoint says where and when the run is saved.
	Checkpoint Checkpoint
	// Layers tells of each layer in Epoch. It costs a pass over the residuals.
	Layers bool
}

// Defaults returns the settings that a model is usually trained with, on the
// data of a folder or on data.Synthetic; of an unknown model only those that
// all share.
func Defaults(model, folder string) Config {
	c := Config{Model: model, Data: folder, Batch: 64, Epochs: 10, Seed: 1, Threads: 1}
	c.Exchange = distopt.Config{Strategy: distopt.FP32, Accumulation: 1}
	c.Servers = Servers{GeoSteps: 8, Threads: 1, Values: "fp32"} // 8 keeps the model near bsp's, and spares most of the traffic
	c.SetOptimizer("sgd")
	if spec, err := c.spec(); err == nil {
		d := spec.Defaults
		c.Batch, c.Epochs, c.Optimizer = d.Batch, d.Epochs, d.Optimizer
		c.LR, c.Momentum, c.WeightDecay = d.LR, d.Momentum, d.WeightDecay
		c.Exchange.ClipNorm = d.ClipNorm
	}
	return c
}

// spec is the model.
func (c Config) spec() (models.Spec, error) {
	if c.Custom.Build != nil {
		return c.Custom, nil
	}
	return models.Lookup(c.Model)
}

// Validate reports every fault of c that needs no file to be seen.
func (c Config) Validate() error {
	var errs []error
	atLeast := func(name string, value, least int) {
		if value < least {
			errs = append(errs, fmt.Errorf("%s %d: want at least %d", name, value, least))
		}
	}
	if c.Data == "" && (c.TrainFile == "" || c.EvalFile == "") {
		errs = append(errs, fmt.Errorf("no data: name the folder of the data set, or %q, with --data; or both files with --train-file and --eval-file", data.Synthetic))
	} else {
		errs = append(errs, c.data().Validate())
	}
	atLeast("bad samples to skip", c.SkipBad, 0)
	atLeast("training limit", c.TrainLimit, 0)
	atLeast("evaluation limit", c.EvalLimit, 0)
	atLeast("batch", c.Batch, 1)
	errs = append(errs, c.validateStream()...)
	errs = append(errs, c.validateTableRows())
	atLeast("epochs", c.Epochs, 1)
	atLeast("threads", c.Threads, 1)
	if c.Threads > MaxThreads {
		errs = append(errs, fmt.Errorf("threads %d: want at most %d", c.Threads, MaxThreads))
	}
	errs = append(errs, c.validateOptimizer()...)
	if math.IsNaN(c.Dropout) || c.Dropout >= 1 {
		errs = append(errs, fmt.Errorf("dropout %v: want below 1; negative for none, 0 for the model's own", c.Dropout))
	}
	errs = append(errs, c.tuning().Validate(), c.Checkpoint.Validate())
	errs = append(errs, c.validateTuning()...)
	errs = append(errs, c.validateCodec()...)
	errs = append(errs, c.validateServers()...)
	return errors.Join(errs...)
}

// MaxTableRows is the most rows of a table: ids are int32.
const MaxTableRows = math.MaxInt32

// validateTableRows reports a number of rows that no table can have.
func (c Config) validateTableRows() error {
	spec, err := c.spec()
	switch {
	case c.TableRows == 0 || err != nil: // Model is reported elsewhere
		return nil
	case spec.Task != models.Click:
		return fmt.Errorf("--table-rows %d has no effect on model %s, which hashes no categories: leave it out", c.TableRows, spec.Name)
	case c.TableRows < 2 || c.TableRows > MaxTableRows:
		return fmt.Errorf("--table-rows %d: want 2 to %d, or 0 for the model's own number", c.TableRows, MaxTableRows)
	}
	return nil
}

// validateCodec reports what does not fit the strategy besides what Exchange
// itself does.
func (c Config) validateCodec() (errs []error) {
	i, err := distopt.Lookup(c.Exchange.Resolved().Strategy)
	if err != nil {
		return nil // Exchange has said so
	}
	const name = distopt.SettingWarmup
	if n := len(c.WarmupDensity); n > 0 && !i.HasEffect(name) {
		errs = append(errs, fmt.Errorf("%s %v has no effect on strategy %s: leave it out", name, c.WarmupDensity, i.Name))
	} else if n > c.Epochs && c.Epochs > 0 {
		errs = append(errs, fmt.Errorf("%s %v is for %d epochs, the run has %d", name, c.WarmupDensity, n, c.Epochs))
	}
	for _, d := range c.WarmupDensity {
		if !(d > 0 && d <= 1) {
			errs = append(errs, fmt.Errorf("%s %v: want shares above 0 and at most 1", name, c.WarmupDensity))
			break
		}
	}
	if m := c.Exchange.Momentum; m > 0 && (c.Optimizer != "sgd" || c.Momentum > 0) {
		errs = append(errs, fmt.Errorf("%s %v with optimizer %q of momentum %v: it takes the place of the optimizer's own: use sgd with momentum 0", distopt.SettingMomentum, m, c.Optimizer, c.Momentum))
	}
	return errs
}

// density is the share of values that an epoch's steps send.
func (c Config) density(epoch int) float64 {
	if epoch <= len(c.WarmupDensity) {
		return c.WarmupDensity[epoch-1]
	}
	return c.Exchange.Resolved().Spars
}

// schedule is the learning rate over the run.
func (c Config) schedule() schedule.Schedule {
	return schedule.Schedule{LR: c.LR, Drops: c.Drops, Cosine: c.Cosine, Floor: c.Floor, Warmup: c.Warmup}
}

// source says where the data are.
func (c Config) source() string {
	var parts []string
	for _, p := range []string{c.Data, c.TrainFile, c.EvalFile} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ", ")
}

// data is what data.Open needs to know, but for numbers and the model's part.
func (c Config) data() data.Config {
	return data.Config{Dir: c.Data, TrainFile: c.TrainFile, EvalFile: c.EvalFile, Seed: c.Seed}
}

// dataOf is what data.Open needs to know for a model.
func (c Config) dataOf(spec models.Spec) data.Config {
	d := c.data()
	d.Stream = c.Stream
	d.SkipBad, d.TrainLimit, d.EvalLimit, d.Threads = c.SkipBad, c.TrainLimit, c.EvalLimit, c.Threads
	if len(spec.Input) == 3 {
		d.ImageSize = spec.Input[0]
	}
	switch spec.Task {
	case models.Language:
		d.Steps = spec.IDs
		if spec.Data == "text" { // of others it is what it is
			d.Vocabulary = spec.Classes
		}
	case models.Click:
		d.Rows = cmp.Or(c.TableRows, spec.Rows)
	}
	return d
}

// FindData reports, without reading them, that files of the data set are
// missing: what Run would say on every rank.
func FindData(c Config) error {
	spec, err := c.spec()
	if err != nil {
		return err
	}
	return data.Find(spec.Data, c.dataOf(spec))
}
