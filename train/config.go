package train

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/optim/schedule"
)

// MaxThreads limits the threads of a rank: more than any host has cores, and few enough to start.
const MaxThreads = 1024

// Config selects a model, data and the settings of a run. Defaults returns a model's default
// values. For Run every field has a useful zero value: Batch, Epochs, Optimizer and LR default to
// the model's values, other fields as documented.
type Config struct {
	// Model is a model of the zoo (models.Lookup) or a custom one.
	Model model.Spec `json:"-"`
	// Name is the model's name in reports, such as an alias. "" means Model.Name.
	Name string
	// Data is a folder (or archive) with the model's data set, or data.Synthetic. TrainFile and
	// EvalFile name single files.
	Data, TrainFile, EvalFile string
	// SkipBad is the maximum number of bad lines or images, on all ranks together, that are
	// skipped; one more is an error.
	SkipBad int
	// TrainLimit and EvalLimit limit the number of samples. 0 means all.
	TrainLimit, EvalLimit int
	// TableRows is the number of rows of the embedding table that hashed categories of a click
	// model share, 2 to 2^31 - 1. 0 means the model's number.
	TableRows int

	// Target is the column of a table, such as a CSV file, that the model predicts. Schema sets the
	// kinds of columns; other kinds are guessed (table.Options). Split is the share of rows for
	// evaluation without an EvalFile; 0 means 0.1.
	Target string
	Schema table.Schema
	// MinCount is the smallest number of training rows with a word of a table's category; words
	// with fewer count as unknown. 0 means no limit.
	MinCount int
	Split    float64

	// Layout describes the columns of a click model's files: a file as read by package layout, or
	// one of layout.Names. "" means Criteo's format.
	Layout string

	// ImageSize is the height and width to which images are resized. 0 means the model's.
	ImageSize int

	// Partition is PartitionShuffled (or ""), PartitionFixed, or PartitionFiles with Stream.
	Partition string

	// Stream reads training rows of clicks from their files while training, so that they need not
	// fit into memory; TrainFile may be a folder. Ranks divide the blocks of all files, or whole
	// files with PartitionFiles.
	Stream bool
	// Window is the number of rows of a stream that are shuffled together, a multiple of Batch. 0
	// means 128 batches, a negative value no shuffling. Interleave is the number of files from
	// which rows are read alternately; 0 means 1.
	Window, Interleave int

	// Batch is the number of samples of a rank in one forward and backward pass. For Run 0 means
	// the model's default, or 64.
	Batch int
	// Epochs is the number of passes over the training set. 0 in Run means the model's, or 10.
	Epochs int
	// Optimizer is an element of Optimizers. For Run, "" means "sgd", or, if LR is 0 too, the
	// model's optimizer and settings.
	Optimizer string
	// CustomOptimizer updates the parameters instead of an element of Optimizers, with the rate LR,
	// or with its own rate if LR is 0. Checkpoints store its State; a resumed run needs an
	// optimizer with the same name and sizes of state. Tables need an optim.RowOptimizer or
	// TableRules. Each run and each rank needs its own value; parameter servers and heter-trainers
	// reject it.
	CustomOptimizer optim.Optimizer `json:"-"`
	// TableRules replace the optimizer for rows of tables: PATTERN=RULE, separated by commas, such
	// as "*=adagrad-rowwise,wide=ftrl:rate=50:l1=0.01". Patterns are as in path.Match; the last
	// match counts, and overrides the model (nn.Table.Rule). A rule is a name of optim.RowRules
	// with settings of schema.Rule. Its learning rate is the run's, multiplied by the rule's
	// setting "rate".
	TableRules string
	// LR is the learning rate before the schedule. For Run 0 means the optimizer's default.
	LR float64
	// ScaleLR multiplies the model's default rate for sgd by the ratio of the global batch to the
	// model's, as an LR of 0 does. If the result is above the default, training begins with a
	// warm-up, unless Warmup is set.
	ScaleLR bool
	// Drops, Cosine, Floor and Warmup are the fields of schedule.Schedule.
	Drops  []schedule.Drop
	Cosine bool
	Floor  float64
	Warmup schedule.Warmup
	// Momentum is for "sgd". Eps is for "adagrad", "adam" and "adamw", 0 for the default.
	// WeightDecay is for "sgd", "adagrad" and "adamw".
	Momentum, Eps, WeightDecay float64
	// AUCWindow is the number of the latest samples of all ranks over which Progressive computes
	// metrics of click models, at most 50,000,000. 0 means 1,000,000.
	AUCWindow int
	// Precision is the format of the operands of matrix products, convolutions and attention:
	// "fp32", or "bf16" on processors with AVX512-BF16. Sums, parameters, normalisations, losses,
	// gradients and the optimizer are fp32 in both, and so are checkpoints: a resumed run may
	// change the precision. "auto" is bf16 if it makes forward and backward passes at least 5 %
	// shorter, by a measurement of rank 0 at the start. "" means "fp32".
	Precision string
	// Dropout is the probability of dropout. 0 means the model's; a negative value means none.
	Dropout float64

	// ClassWeights are factors of a sample's loss in training, for models of classes: "balanced"
	// for the same share of each class, or weights by name, such as "fraud=5,ok=1"; other classes
	// have 1. The mean over the training samples is 1. "" means no weights. Evaluations have none.
	ClassWeights string
	// LabelSmoothing is the share of the target that training divides over all classes, at least 0
	// and below 1 (Szegedy and others 2016). Evaluations have none.
	LabelSmoothing float64
	// Average is the decay of an exponential moving average of the weights, from 0 (no average) to
	// below 1. Step t updates it with the decay min(Average, (1+t)/(10+t)). Evaluations and readers
	// of checkpoints use the average; a resumed run continues both the weights and their average.
	// Running statistics are not averaged.
	Average float64

	// Start selects initial values of parameters, and the parameters to train.
	Start Init

	// Seed determines the initial parameters, the order and the augmentation of samples, dropout
	// and synthetic data.
	Seed uint64
	// Threads is the number of computing threads of each rank, 1 to MaxThreads. For Run 0 means the
	// process's cores, divided by the number of ranks. Results do not depend on Threads.
	Threads int
	// Servers configures parameters on servers.
	Servers Servers
	// Heter configures heter-trainers for the dense part of the model.
	Heter Heter
	// Exchange configures the exchange of gradients.
	Exchange distopt.Config
	// Traced reports that a timeline of the run is recorded (package trace), on all ranks.
	Traced bool
	// Labelled adds labels of phases and layers to CPU profiles (nn.TapeConfig.Labels). Results do
	// not depend on Labelled.
	Labelled bool
	// Tuning configures the strategy "auto" and plans of buckets from measurements, which Exchange
	// may select.
	Tuning Tuning
	// WarmupDensity lists, for the first epochs, the shares of values that selections send, instead
	// of Exchange.Spars (Lin et al. 2018).
	WarmupDensity []float64
	// Workers is the number of virtual workers, at least one per rank, which are divided equally
	// over the ranks. Each has a share of the samples, and separate random numbers, running
	// statistics and state of the exchange. Gradients are summed in a fixed order of the workers:
	// the result has the same bits for any number of ranks. 0 means that each rank is a worker;
	// gradients are then summed as is fastest for the ranks.
	Workers int
	// Checkpoint sets where and when the run is saved.
	Checkpoint Checkpoint
	// Best selects how epochs are compared to find the best one.
	Best Best
	// Layers adds statistics of each layer to Epoch, and to each Step for Observer.Step. Cost: a
	// pass over the unsent gradients (residuals).
	Layers bool
	// LogEvery is the number of steps between calls of Observer.Step. 0 means never.
	LogEvery int
	// Worst is the number of samples with the largest losses that Evaluate reports, at most 1,000.
	// Importance is the number of permutations of each input by which Evaluate measures the rise of
	// the loss, at most 1,000. 0 means none. Run ignores both.
	Worst, Importance int
	// By is the column for which Evaluate reports metrics per value, for a model of clicks or of
	// two classes. "" means none. Run ignores it.
	By string
	// Observer receives the events of this rank. nil ignores them.
	Observer Observer `json:"-"`
	// EachStep receives each step of this rank, on the goroutine that trains, and should return
	// immediately. nil means that no function receives the steps. Unlike Callbacks.AfterStep,
	// EachStep cannot end the run, and may be set on some ranks only.
	EachStep func(Step) `json:"-"`
	// Callbacks run on every rank and may end the run.
	Callbacks `json:"-"`

	saved   []string       // parameters in a checkpoint's file; servers have saved the other ones
	hasSet  bool           // the data set is an argument, not named by Data
	encoder *table.Encoder // encoding of a checkpoint in use
	// savedKernels names the kind of kernels with which the checkpoint was computed; Precision
	// "auto" keeps it.
	savedKernels string
	gather       func([]byte) ([][]byte, error) // gathers tables of ranks with tables of their own

	seeds       int // of RunSeeds
	fold, folds int // of RunFolds, the fold from 0

	classWeights []float32 // by class, from ClassWeights and the data; nil without weights

	previous *table.Encoder    // encoding of the checkpoint Init.From, or of the resumed run
	resumed  bool              // previous is of the resumed run
	about    *data.Description // the run's data; nil if the data have no names
}

// Defaults returns a model's default settings, for the data of a folder or data.Synthetic. For a
// model without Build these are the defaults of all models.
func Defaults(m model.Spec, folder string) Config {
	c := Config{Model: m, Data: folder, Partition: PartitionShuffled, Batch: 64, Epochs: 10, Seed: 1, Threads: 1, Precision: fp32}
	c.Exchange = distopt.Config{Strategy: distopt.FP32, NonFinite: "end", Accumulation: 1}
	c.Heter = Heter{Micros: usualMicros, Values: "fp32"}
	c.Servers = Servers{GeoSteps: 8, Threads: 1, Values: "fp32"} // 8 keeps the model near bsp's, and avoids most of the traffic
	c.SetOptimizer("sgd")
	if d := m.Defaults; d.Optimizer != "" {
		c.Batch, c.Epochs, c.Optimizer = d.Batch, d.Epochs, d.Optimizer
		c.LR, c.Momentum, c.WeightDecay = d.LR, d.Momentum, d.WeightDecay
		c.Exchange.ClipNorm = d.ClipNorm
	}
	return c
}

// on completes c with the number of ranks and other properties of a job.
func (c Config) on(job *ringo.Job) Config {
	addrs, _ := job.Heters()
	if c.Heter.Count = cmp.Or(c.Heter.Count, len(addrs)); c.Heter.Count > 0 {
		c.Heter.Micros = cmp.Or(c.Heter.Micros, usualMicros)
	}
	if s := job.Saving(); s.Attempt > 0 && c.Servers.Consistency != "" && c.Servers.Start == 0 && c.Checkpoint.in(s.Dir) {
		c.Checkpoint.Dir, c.Checkpoint.Resume, c.Servers.Start = s.Dir, s.Resume, s.Attempt
	}
	return c.settled(job.Size())
}

// settled replaces zero values by defaults.
func (c Config) settled(ranks int) Config {
	usual := Defaults(c.Model, c.Data)
	c.Batch, c.Epochs = cmp.Or(c.Batch, usual.Batch), cmp.Or(c.Epochs, usual.Epochs)
	c.Threads = cmp.Or(c.Threads, min(max(1, runtime.GOMAXPROCS(0)/ranks), MaxThreads))
	c = c.customized()
	switch {
	case c.CustomOptimizer != nil: // has its own rate
	case c.Optimizer == "" && c.LR == 0:
		c.ScaleLR = true
		c.Optimizer, c.LR, c.Momentum, c.WeightDecay = usual.Optimizer, usual.LR, usual.Momentum, usual.WeightDecay
		c.Exchange.ClipNorm = cmp.Or(c.Exchange.ClipNorm, usual.Exchange.ClipNorm)
	case c.LR == 0:
		own := Config{Model: c.Model}
		own.SetOptimizer(c.Optimizer)
		c.LR = own.LR
	}
	c.Optimizer, c.Partition, c.Precision = cmp.Or(c.Optimizer, "sgd"), cmp.Or(c.Partition, PartitionShuffled), cmp.Or(c.Precision, fp32)
	c.Exchange.Strategy, c.Servers.GeoSteps = cmp.Or(c.Exchange.Strategy, distopt.FP32), cmp.Or(c.Servers.GeoSteps, usual.Servers.GeoSteps)
	if c.Observer == nil {
		c.Observer = unobserved{}
	}
	return c.scaled(ranks).byKeys()
}

// scaled scales the model's own rate to the global batch, by the linear rule of Goyal et al.,
// "Accurate, Large Minibatch SGD" (2017). A rate above the model's begins with a warm-up of a tenth
// of the epochs, at most 5.
func (c Config) scaled(ranks int) Config {
	d, batch := c.Model.Defaults, c.globalBatch(ranks)
	c.ScaleLR = c.ScaleLR && c.CustomOptimizer == nil && d.GlobalBatch > 0 && c.Optimizer == "sgd" && d.Optimizer == "sgd" && c.LR == d.LR && batch != d.GlobalBatch
	if !c.ScaleLR {
		return c
	}
	if c.LR = d.LR * float64(batch) / float64(d.GlobalBatch); c.LR > d.LR && c.Warmup == (schedule.Warmup{}) {
		c.Warmup.Epochs = min(5, float64(c.Epochs)/10)
	}
	return c
}

// globalBatch returns the number of samples of one update: those of all ranks, or of a single push
// if servers apply each push separately.
func (c Config) globalBatch(ranks int) int {
	batch := c.Batch * max(1, c.Exchange.Accumulation)
	if s := c.Servers.Consistency; s != "" && s != "bsp" {
		return batch
	}
	return batch * c.virtual(ranks)
}

// byKeys returns c for a model that takes ids or keys, set to use keys if servers have a row for
// each key. With TableRows, or a data set as an argument, the model uses ids.
func (c Config) byKeys() Config {
	m := &c.Model
	if c.Servers.Consistency == "" || c.TableRows > 0 || c.hasSet || !m.AnySlots || m.IDs == 0 {
		return c
	}
	m.Slots = nil
	for i := range m.IDs {
		m.Slots = append(m.Slots, model.Slot{Name: fmt.Sprintf("C%d", i+1)})
	}
	m.IDs = 0
	return c
}

func (c Config) name() string { return cmp.Or(c.Name, c.Model.Name) }

// Validate returns all errors of c that need no files, together. A setting that has no effect is an
// error too.
func (c Config) Validate() error {
	var f setting.Faults
	f.Add(c.Batch < 1, "training.batch", "%d: want at least 1", c.Batch)
	f.Add(c.Epochs < 1, "training.epochs", "%d: want at least 1", c.Epochs)
	f.Add(c.Threads < 1 || c.Threads > MaxThreads, "training.threads", "%d: want 1 to %d", c.Threads, MaxThreads)
	if !c.hasSet {
		f.Join(c.dataOf().Validate())
		f.Add(c.Checkpoint.Resume && c.Data == "" && c.TrainFile == "", "checkpoint.resume", "%q has no checkpoint to take the data from: check the name of the folder", c.Checkpoint.Dir)
	}
	f.Add(c.AUCWindow < 0 || c.AUCWindow > maxAUCWindow, aucWindow, "%d: want 1 to %d samples, or 0 for %d", c.AUCWindow, maxAUCWindow, usualAUCWindow)
	f.Add(c.LogEvery < 0, "output.log-every", "%d: want at least 1 step, or 0", c.LogEvery)
	f.Add(c.Best.Patience < 0 || c.Best.Patience > 0 && c.Best.Metric == "", "training.monitor", "patience=%d: want a metric, and at least 1 epoch, or 0", c.Best.Patience)
	if c.Model.Build == nil {
		f.Join(fmt.Errorf("train: model %q has no Build, which makes its parameters", c.name()))
	} else {
		c.validateModel(c.Model, &f)
	}
	c.Start.validate(&f)
	c.validateStream(&f)
	if c.CustomOptimizer != nil {
		c.validateCustom(&f)
	}
	c.validateOptimizer(&f)
	f.Join(c.tuning().Validate(), c.Checkpoint.Validate())
	c.validateExchange(&f)
	c.validateAverage(&f)
	c.validateWorkers(&f)
	c.validatePrecision(&f)
	c.validateServers(&f)
	c.validateHeter(&f)
	f.Join(c.unused())
	return f.Err()
}

// unused reports settings without an effect that differ from their defaults, except for settings of
// the exchange.
func (c Config) unused() error {
	if c.CustomOptimizer == nil && !slices.Contains(Optimizers(), c.Optimizer) || !slices.Contains(append(Consistencies(), ""), c.Servers.Consistency) {
		return nil // reported already; most settings would follow
	}
	rows := func(c *Config) []setting.Row {
		sync, x := cmp.Or(c.Servers.Consistency, "allreduce"), c.Exchange.Resolved()
		return append(slices.Concat(c.trainingSettings(), c.otherSettings()), setting.Row{Path: "sync", Value: setting.Text(&sync)}, setting.Row{Path: "exchange.strategy", Value: setting.Text(&x.Strategy)})
	}
	usual := Defaults(c.Model, c.Data)
	usual.SetOptimizer(c.Optimizer)
	idle, err := setting.Unused(rows(&c), rows(new(Config)), rows(&usual))
	return errors.Join(idle.Err(), err)
}

func (c Config) validateModel(spec model.Spec, f *setting.Faults) {
	f.Add(c.TableRows != 0 && spec.Task != model.Click, "data.table-rows", "%d has no effect on model %s, which hashes no categories: leave it out", c.TableRows, spec.Name)
	f.Add(!(c.Dropout < 1), "training.dropout", "%s: want below 1; negative for none, 0 for the model's own", quantity.Exact(c.Dropout))
	f.Add(c.Dropout > 0 && !spec.Drops, "training.dropout", "%s has no effect on model %s, which drops nothing: leave it out", quantity.Exact(c.Dropout), spec.Name)
	c.validateLoss(spec, f)
	f.Add(c.ImageSize < 0 || c.ImageSize > MaxImageSize, settingImageSize, "%d: want 1 to %d; 0 for the model's", c.ImageSize, MaxImageSize)
	if set := c.setName(); c.ImageSize > 0 && !c.hasSet {
		f.Add(!slices.Contains([]string{"images", "imagenet", "shards"}, set), settingImageSize, "%d has no effect on the data set %s: it is for images in folders and shards", c.ImageSize, set)
		f.Add(!spec.AnySize && !spec.AnyShape && !(len(spec.Input) == 3 && spec.Input[0] == c.ImageSize), settingImageSize, "%d: model %s takes images of %v alone", c.ImageSize, spec.Name, spec.Input)
	}
	f.Add(c.Stream && spec.Data != "criteo", "data.stream", "is for rows of clicks alone; the data of %s are read into memory", spec.Name)
	f.Add(c.Layout != "" && !spec.AnySlots, settingLayout, "%s has no effect on model %s, which takes no slots of keys: use ctr-dnn, wide-deep, deepfm, dcn-v2, dlrm or din", c.Layout, spec.Name)
	rows := spec.Rows > 0
	f.Add(rows && c.Momentum != 0, "training.momentum", "%s would change rows of %s's table that are not in the batch: must be 0", quantity.Exact(c.Momentum), spec.Name)
	f.Add(rows && c.WeightDecay != 0, "training.weight-decay", "%s would change rows of %s's table that are not in the batch: must be 0", quantity.Exact(c.WeightDecay), spec.Name)
	f.Add(c.Optimizer == OptimizerClick && (spec.Task != model.Click || !slices.Contains([]string{"bsp", "ssp", "async"}, c.Servers.Consistency)), "training.optimizer",
		"%s counts shows and clicks on parameter servers: only for click models such as ctr-dnn, with %v bsp, ssp or async", c.Optimizer, setting.Path("sync"))
	f.Add(c.Servers.Consistency != "" && len(spec.Slots) > 0 && c.TableRows > 0, "data.table-rows", "%d has no effect with %v %s: on servers tables of model %s have a row for each key: leave it out", c.TableRows, setting.Path("sync"), c.Servers.Consistency, spec.Name)
	t := c.tuning()
	f.Add(t.Profile != nil && t.Chooses() && t.Profile.Model != t.Model, "tuning.profile", "was measured with model %q, not with %s", cmp.Or(t.Profile, new(bucket.Profile)).Model, t.Model)
}

// validateExchange adds errors for a strategy that does not fit the optimizer or the epochs.
func (c Config) validateExchange(f *setting.Faults) {
	n := len(c.WarmupDensity)
	f.Add(n > c.Epochs && c.Epochs > 0, distopt.SettingWarmup, "%s is for %d epochs, the run has %d", formatShares(c.WarmupDensity), n, c.Epochs)
	f.Add(slices.ContainsFunc(c.WarmupDensity, func(d float64) bool { return !(d > 0 && d <= 1) }), distopt.SettingWarmup, "%s: want shares above 0 and at most 1", formatShares(c.WarmupDensity))
	m := c.Exchange.Momentum
	f.Add(m > 0 && (c.Optimizer != "sgd" || c.Momentum > 0 || c.CustomOptimizer != nil), distopt.SettingMomentum, "%s with %v %s of momentum %s: it takes the place of the optimizer's own: use sgd with momentum 0",
		quantity.Exact(m), setting.Path("training.optimizer"), c.Optimizer, quantity.Exact(c.Momentum))
}

// density returns the share of values that selections of an epoch send.
func (c Config) density(epoch int) float64 {
	if epoch <= len(c.WarmupDensity) {
		return c.WarmupDensity[epoch-1]
	}
	return c.Exchange.Resolved().Spars
}

func (c Config) schedule() schedule.Schedule {
	return schedule.Schedule{LR: c.LR, Drops: c.Drops, Cosine: c.Cosine, Floor: c.Floor, Warmup: c.Warmup}
}

// source returns the paths of the data.
func (c Config) source() string {
	var parts []string
	for _, p := range []string{c.Data, c.TrainFile, c.EvalFile} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ", ")
}

// dataOf returns the configuration of data.Open for the model.
func (c Config) dataOf() data.Config {
	spec, d := c.Model, data.Config{Dir: c.Data, TrainFile: c.TrainFile, EvalFile: c.EvalFile, Seed: c.Seed}
	d.Stream, d.Layout = c.Stream, c.Layout
	d.Target, d.Schema, d.Split, d.Encoder, d.Gather = c.Target, c.Schema, c.Split, c.encoder, c.gather
	d.Fold, d.Folds = c.fold, c.folds
	d.Previous, d.Resumed, d.MinCount = c.previous, c.resumed, c.MinCount
	d.SkipBad, d.TrainLimit, d.EvalLimit, d.Threads = c.SkipBad, c.TrainLimit, c.EvalLimit, c.Threads
	if d.ImageSize = c.ImageSize; d.ImageSize == 0 && len(spec.Input) == 3 {
		d.ImageSize = spec.Input[0]
	}
	switch spec.Task {
	case model.Language:
		d.Steps = spec.IDs
		if spec.Data == "text" { // other data sets have fixed vocabularies
			d.Vocabulary = spec.Classes
		}
	case model.Click:
		d.Rows, d.Keys = cmp.Or(c.TableRows, spec.Rows), len(spec.Slots) > 0
	}
	return d
}

// FindData returns an error for missing files of the data set, as Run would, and reads no file.
func FindData(c Config) error {
	return data.Find(c.setName(), c.dataOf())
}

// MaxImageSize limits Config.ImageSize.
const MaxImageSize = 1 << 12

const settingImageSize setting.Path = "data.image-size"

const settingLayout setting.Path = "data.layout"

// setName returns the data set that the files select, or else the model. With ImageSize, images are
// a tree of any sizes.
func (c Config) setName() string {
	name := data.NameOf(c.Model.Data, c.dataOf())
	if c.ImageSize > 0 && (name == "cifar10" || name == "mnist" && c.Model.AnyShape) {
		return "images"
	}
	return name
}
