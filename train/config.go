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
	"github.com/ringo-ml/ringo/optim/schedule"
)

// MaxThreads is the most threads of a rank: far more than any host's cores, and
// few enough to start.
const MaxThreads = 1024

// Config says what to train and how. Defaults returns a model's usual values. For Run the zero value of every field
// stands for something: of Batch, Epochs, Optimizer and LR the model's usual ones, of others what their comments say.
type Config struct {
	// Model is one of the zoo (models.Lookup) or one's own.
	Model model.Spec `json:"-"`
	// Name is what the run calls the model, such as an alias; empty: Model.Name.
	Name string
	// Data is a folder (or archive) holding the model's data set, or
	// data.Synthetic. TrainFile and EvalFile name single files outright.
	Data, TrainFile, EvalFile string
	// SkipBad is how many bad lines or images of all ranks together are left out before it is an
	// error.
	SkipBad int
	// TrainLimit and EvalLimit use only so many samples; 0 means all.
	TrainLimit, EvalLimit int
	// TableRows is how many rows the embedding table has to which a click model's
	// categories are hashed, 2 to 2^31 - 1; 0: the model's own number.
	TableRows int

	// Of a table such as a CSV file: Target is the column to find, Schema says what columns are
	// for, and what they do not say is guessed (table.Options); Split is the share of rows held out
	// for evaluation where there is no EvalFile, 0: 0.1.
	Target string
	Schema table.Schema
	Split  float64

	// Layout is how a click model's samples lie in their files: a file of package layout's, or one of layout.Names; "": in Criteo's format.
	Layout string

	// ImageSize is the height and width to which images of folders and shards are brought; 0: the model's.
	ImageSize int

	// Partition is PartitionShuffled, for which "" stands, PartitionFixed, or PartitionFiles with
	// Stream.
	Partition string

	// Stream leaves the training rows in their files, of which there may be many and more than fit
	// memory, and reads them as they are needed; TrainFile may be a folder. Only those of clicks
	// are. Ranks share blocks of the files, or whole files with PartitionFiles.
	Stream bool
	// Window is how many rows of a stream are shuffled among each other, a multiple
	// of Batch; 0: 128 batches; negative: none. Interleave is how many of its files
	// are read at once; 0: 1.
	Window, Interleave int

	// Batch is the number of samples per rank and backward; for Run 0: the model's usual one, or 64.
	Batch int
	// Epochs is how often the training set is seen; for Run 0: as usual for the model, or 10 times.
	Epochs int
	// Optimizer is one of Optimizers; for Run "": with an LR of 0 the model's, with its usual settings, else "sgd".
	Optimizer string
	// TableRules say what moves the rows of tables in place of it: PATTERN=RULE, separated by commas, such as
	// "*=adagrad-rowwise,wide=ftrl:rate=50:l1=0.01". A pattern is that of path.Match, of several that match a table's name the last
	// counts, and settings go before what the model says (nn.Table.Rule). A rule is one of optim.RowRules with settings of
	// schema.Rule; its learning rate is the run's times rate.
	TableRules string
	// LR is the learning rate, which the schedule changes over the run; for Run 0: the optimizer's usual one.
	LR float64
	// ScaleLR enables the scaling of the model's own rate for sgd to the global batch, as an LR of
	// 0 does. Rates above it rise in a warm-up, unless there is one.
	ScaleLR bool
	// Drops, Cosine, Floor and Warmup are those of schedule.Schedule.
	Drops  []schedule.Drop
	Cosine bool
	Floor  float64
	Warmup schedule.Warmup
	// Momentum is of "sgd"; Eps is of "adagrad", "adam" and "adamw", 0 for its usual
	// value; WeightDecay is of "sgd", "adagrad" and "adamw".
	Momentum, Eps, WeightDecay float64
	// AUCWindow is of how many last samples of all ranks Progressive is, for click models, at most 50,000,000; 0: 1,000,000.
	AUCWindow int
	// Dropout replaces the model's own probability; 0 keeps it, a negative one
	// means none.
	Dropout float64

	// Start says which values parameters begin with, and which of them are trained.
	Start Init

	// Seed decides the initial parameters, the order and the augmentation of
	// the samples, dropout and the synthetic data.
	Seed uint64
	// Threads is how many threads compute in each rank, 1 to MaxThreads; for Run 0: this process's cores, shared among the
	// ranks as if all were on this host. It does not change the result.
	Threads int
	// Servers says whether parameters lie on servers.
	Servers Servers
	// Heter says whether the dense part of the model runs on heter-trainers.
	Heter Heter
	// Exchange says how the ranks agree on a step.
	Exchange distopt.Config
	// Traced says that a timeline is made of the run (package trace), which takes all ranks.
	Traced bool
	// Labelled says that profiles of the processor's time are to tell phases and layers (nn.TapeConfig.Labels). It changes no result.
	Labelled bool
	// Tuning says by what a strategy "auto" and measured plans are chosen, which
	// Exchange may name, too.
	Tuning Tuning
	// WarmupDensity are the shares of values that are sent in the first epochs,
	// instead of Exchange.Spars (Lin et al. 2018).
	WarmupDensity []float64
	// Checkpoint says where and when the run is saved.
	Checkpoint Checkpoint
	// Best compares the epochs.
	Best Best
	// Layers tells of each layer in Epoch, and in each Step that Observer.Step is told of. It costs a pass over the residuals.
	Layers bool
	// LogEvery is after how many steps of an epoch each Observer.Step is called; 0: never.
	LogEvery int
	// Observer is told what happens on this rank; nil: nobody is.
	Observer Observer `json:"-"`
	// EachStep is told of each step of this rank, on the goroutine that trains, and should return at once; nil: nobody is. Unlike
	// Callbacks.AfterStep it ends nothing and makes ranks meet nowhere, so that any of them may have it.
	EachStep func(Step) `json:"-"`
	// Callbacks are called on every rank and may end the run.
	Callbacks `json:"-"`

	saved   []string                       // what a checkpoint has by name beside what its servers have saved
	given   bool                           // the data set is, and not named by Data
	encoder *table.Encoder                 // of the run whose checkpoint is used
	gather  func([]byte) ([][]byte, error) // of ranks that may have tables of their own

	previous *table.Encoder    // of the checkpoint of Init.From
	about    *data.Description // of the run's data; nil if these have no names
}

// Defaults returns the settings that a model is usually trained with, on the
// data of a folder or on data.Synthetic; of one without Build only those that
// all share.
func Defaults(m model.Spec, folder string) Config {
	c := Config{Model: m, Data: folder, Partition: PartitionShuffled, Batch: 64, Epochs: 10, Seed: 1, Threads: 1}
	c.Exchange = distopt.Config{Strategy: distopt.FP32, NonFinite: "end", Accumulation: 1}
	c.Heter = Heter{Micros: usualMicros, Values: "fp32"}
	c.Servers = Servers{GeoSteps: 8, Threads: 1, Values: "fp32"} // 8 keeps the model near bsp's, and spares most of the traffic
	c.SetOptimizer("sgd")
	if d := m.Defaults; d.Optimizer != "" {
		c.Batch, c.Epochs, c.Optimizer = d.Batch, d.Epochs, d.Optimizer
		c.LR, c.Momentum, c.WeightDecay = d.LR, d.Momentum, d.WeightDecay
		c.Exchange.ClipNorm = d.ClipNorm
	}
	return c
}

// on is c settled for the ranks of a job, or one of its heter-trainers.
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

// settled is c with what its zero values stand for.
func (c Config) settled(ranks int) Config {
	usual := Defaults(c.Model, c.Data)
	c.Batch, c.Epochs = cmp.Or(c.Batch, usual.Batch), cmp.Or(c.Epochs, usual.Epochs)
	c.Threads = cmp.Or(c.Threads, min(max(1, runtime.GOMAXPROCS(0)/ranks), MaxThreads))
	switch {
	case c.Optimizer == "" && c.LR == 0:
		c.ScaleLR = true
		c.Optimizer, c.LR, c.Momentum, c.WeightDecay = usual.Optimizer, usual.LR, usual.Momentum, usual.WeightDecay
		c.Exchange.ClipNorm = cmp.Or(c.Exchange.ClipNorm, usual.Exchange.ClipNorm)
	case c.LR == 0:
		own := Config{Model: c.Model}
		own.SetOptimizer(c.Optimizer)
		c.LR = own.LR
	}
	c.Optimizer, c.Partition = cmp.Or(c.Optimizer, "sgd"), cmp.Or(c.Partition, PartitionShuffled)
	c.Exchange.Strategy, c.Servers.GeoSteps = cmp.Or(c.Exchange.Strategy, distopt.FP32), cmp.Or(c.Servers.GeoSteps, usual.Servers.GeoSteps)
	if c.Observer == nil {
		c.Observer = unobserved{}
	}
	return c.scaled(ranks).byKeys()
}

// scaled is c with the model's own rate for its global batch, by the linear rule of Goyal et al.,
// "Accurate, Large Minibatch SGD" (2017). A rate above the model's own begins with a warm-up, of a
// tenth of the epochs and at most 5.
func (c Config) scaled(ranks int) Config {
	d, batch := c.Model.Defaults, c.globalBatch(ranks)
	c.ScaleLR = c.ScaleLR && d.GlobalBatch > 0 && c.Optimizer == "sgd" && d.Optimizer == "sgd" && c.LR == d.LR && batch != d.GlobalBatch
	if !c.ScaleLR {
		return c
	}
	if c.LR = d.LR * float64(batch) / float64(d.GlobalBatch); c.LR > d.LR && c.Warmup == (schedule.Warmup{}) {
		c.Warmup.Epochs = min(5, float64(c.Epochs)/10)
	}
	return c
}

// globalBatch is the number of samples that one update is the mean of: of all ranks, but on servers
// that are not in step, of one push.
func (c Config) globalBatch(ranks int) int {
	batch := c.Batch * max(1, c.Exchange.Accumulation)
	if s := c.Servers.Consistency; s != "" && s != "bsp" {
		return batch
	}
	return batch * ranks
}

// byKeys is c with a model by keys in place of one that takes them as well as ids, where servers have a row for each key: unless
// TableRows says that there are so many rows, or the samples are given.
func (c Config) byKeys() Config {
	m := &c.Model
	if c.Servers.Consistency == "" || c.TableRows > 0 || c.given || !m.AnySlots || m.IDs == 0 {
		return c
	}
	m.Slots = nil
	for i := range m.IDs {
		m.Slots = append(m.Slots, model.Slot{Name: fmt.Sprintf("C%d", i+1)})
	}
	m.IDs = 0
	return c
}

// name is what the run calls the model.
func (c Config) name() string { return cmp.Or(c.Name, c.Model.Name) }

// Validate reports every fault of c that needs no file to be seen, settings without effect among them.
func (c Config) Validate() error {
	var f errorList
	f.add(c.Batch < 1, "training.batch", "%d: want at least 1", c.Batch)
	f.add(c.Epochs < 1, "training.epochs", "%d: want at least 1", c.Epochs)
	f.add(c.Threads < 1 || c.Threads > MaxThreads, "training.threads", "%d: want 1 to %d", c.Threads, MaxThreads)
	if !c.given {
		f.join(c.dataOf().Validate())
	}
	f.add(c.AUCWindow < 0 || c.AUCWindow > maxAUCWindow, aucWindow, "%d: want 1 to %d samples, or 0 for %d", c.AUCWindow, maxAUCWindow, usualAUCWindow)
	f.add(c.LogEvery < 0, "output.log-every", "%d: want at least 1 step, or 0", c.LogEvery)
	f.add(c.Best.Patience < 0, "training.patience", "%d: want at least 1 epoch, or 0", c.Best.Patience)
	if c.Model.Build == nil {
		f.join(fmt.Errorf("train: model %q has no Build, which makes its parameters", c.name()))
	} else {
		c.validateModel(c.Model, &f)
	}
	c.Start.validate(&f)
	c.validateStream(&f)
	c.validateOptimizer(&f)
	f.join(c.tuning().Validate(), c.Checkpoint.Validate())
	c.validateExchange(&f)
	c.validateServers(&f)
	c.validateHeter(&f)
	f.join(c.unused())
	return errors.Join(f...)
}

// errorList are what is wrong.
type errorList []error

func (f *errorList) add(wrong bool, p setting.Path, format string, args ...any) {
	if wrong {
		*f = append(*f, setting.Errorf(p, format, args...))
	}
}

func (f *errorList) join(errs ...error) { *f = append(*f, errs...) }

// unused reports what is neither as usual nor left out, and has no effect. Settings of the exchange
// know that themselves.
func (c Config) unused() error {
	if !slices.Contains(Optimizers(), c.Optimizer) || !slices.Contains(append(Consistencies(), ""), c.Servers.Consistency) {
		return nil // that is reported, and most would be with it
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

// validateModel reports what does not fit the model.
func (c Config) validateModel(spec model.Spec, f *errorList) {
	f.add(c.TableRows != 0 && spec.Task != model.Click, "data.table-rows", "%d has no effect on model %s, which hashes no categories: leave it out", c.TableRows, spec.Name)
	f.add(!(c.Dropout < 1), "training.dropout", "%s: want below 1; negative for none, 0 for the model's own", quantity.Exact(c.Dropout))
	f.add(c.Dropout > 0 && !spec.Drops, "training.dropout", "%s has no effect on model %s, which drops nothing: leave it out", quantity.Exact(c.Dropout), spec.Name)
	f.add(c.ImageSize < 0 || c.ImageSize > MaxImageSize, settingImageSize, "%d: want 1 to %d; 0 for the model's", c.ImageSize, MaxImageSize)
	if set := c.setName(); c.ImageSize > 0 && !c.given {
		f.add(!slices.Contains([]string{"images", "imagenet", "shards"}, set), settingImageSize, "%d has no effect on the data set %s: it is for images in folders and shards", c.ImageSize, set)
		f.add(!spec.AnySize && !spec.AnyShape && !(len(spec.Input) == 3 && spec.Input[0] == c.ImageSize), settingImageSize, "%d: model %s takes images of %v alone", c.ImageSize, spec.Name, spec.Input)
	}
	f.add(c.Stream && spec.Data != "criteo", "data.stream", "is for rows of clicks alone; the data of %s are read into memory", spec.Name)
	f.add(c.Layout != "" && !spec.AnySlots, settingLayout, "%s has no effect on model %s, which takes no slots of keys: use ctr-dnn, wide-deep, deepfm, dcn-v2, dlrm or din", c.Layout, spec.Name)
	rows := spec.Rows > 0
	f.add(rows && c.Momentum != 0, "training.momentum", "%s would move rows of %s's table that no sample has touched: want 0", quantity.Exact(c.Momentum), spec.Name)
	f.add(rows && c.WeightDecay != 0, "training.weight-decay", "%s would move rows of %s's table that no sample has touched: want 0", quantity.Exact(c.WeightDecay), spec.Name)
	f.add(c.Optimizer == OptimizerClick && (spec.Task != model.Click || !slices.Contains([]string{"bsp", "ssp", "async"}, c.Servers.Consistency)), "training.optimizer",
		"%s counts on servers what was shown and clicked: it is for click models such as ctr-dnn, with %v bsp, ssp or async", c.Optimizer, setting.Path("sync"))
	f.add(c.Servers.Consistency != "" && len(spec.Slots) > 0 && c.TableRows > 0, "data.table-rows", "%d has no effect with %v %s: on servers tables of model %s have a row for each key: leave it out", c.TableRows, setting.Path("sync"), c.Servers.Consistency, spec.Name)
	t := c.tuning()
	f.add(t.Profile != nil && t.Chooses() && t.Profile.Model != t.Model, "tuning.profile", "was measured with model %q, not with %s", cmp.Or(t.Profile, new(bucket.Profile)).Model, t.Model)
}

// validateExchange reports what does not fit the strategy besides what Exchange itself does.
func (c Config) validateExchange(f *errorList) {
	n := len(c.WarmupDensity)
	f.add(n > c.Epochs && c.Epochs > 0, distopt.SettingWarmup, "%s is for %d epochs, the run has %d", formatShares(c.WarmupDensity), n, c.Epochs)
	f.add(slices.ContainsFunc(c.WarmupDensity, func(d float64) bool { return !(d > 0 && d <= 1) }), distopt.SettingWarmup, "%s: want shares above 0 and at most 1", formatShares(c.WarmupDensity))
	m := c.Exchange.Momentum
	f.add(m > 0 && (c.Optimizer != "sgd" || c.Momentum > 0), distopt.SettingMomentum, "%s with %v %s of momentum %s: it takes the place of the optimizer's own: use sgd with momentum 0",
		quantity.Exact(m), setting.Path("training.optimizer"), c.Optimizer, quantity.Exact(c.Momentum))
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

// dataOf is what data.Open needs to know for the model.
func (c Config) dataOf() data.Config {
	spec, d := c.Model, c.data()
	d.Stream, d.Layout = c.Stream, c.Layout
	d.Target, d.Schema, d.Split, d.Encoder, d.Gather = c.Target, c.Schema, c.Split, c.encoder, c.gather
	d.Previous = c.previous
	d.SkipBad, d.TrainLimit, d.EvalLimit, d.Threads = c.SkipBad, c.TrainLimit, c.EvalLimit, c.Threads
	if d.ImageSize = c.ImageSize; d.ImageSize == 0 && len(spec.Input) == 3 {
		d.ImageSize = spec.Input[0]
	}
	switch spec.Task {
	case model.Language:
		d.Steps = spec.IDs
		if spec.Data == "text" { // of others it is what it is
			d.Vocabulary = spec.Classes
		}
	case model.Click:
		d.Rows, d.Keys = cmp.Or(c.TableRows, spec.Rows), len(spec.Slots) > 0
	}
	return d
}

// FindData reports, without reading them, that files of the data set are
// missing: what Run would say on every rank.
func FindData(c Config) error {
	return data.Find(c.setName(), c.dataOf())
}

// MaxImageSize bounds Config.ImageSize.
const MaxImageSize = 1 << 12

// settingImageSize is the path of Config.ImageSize.
const settingImageSize setting.Path = "data.image-size"

// settingLayout is the path of Config.Layout.
const settingLayout setting.Path = "data.layout"

// setName is the data set as its files, or else the model, have it. With a size of one's own, images are a tree whose
// images may have any.
func (c Config) setName() string {
	name := data.NameOf(c.Model.Data, c.dataOf())
	if c.ImageSize > 0 && (name == "cifar10" || name == "mnist" && c.Model.AnyShape) {
		return "images"
	}
	return name
}
