package train

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/data/layout"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/tune"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Settings returns the rows of all settings of c and its exchange, for c from Defaults and
// SetOptimizer. Conditions also name "sync" and settings of output, from other packages.
func (c *Config) Settings() []setting.Row {
	return slices.Concat(c.trainingSettings(), tune.Settings(&c.Exchange), c.otherSettings())
}

func (c *Config) otherSettings() []setting.Row {
	warmup := setting.Row{Path: "exchange.warmup-density", Commands: setting.BenchStep, Unit: "SHARE,…", Needs: setting.Equals("exchange.strategy", distopt.Takers(distopt.SettingWarmup)...), Value: setting.Parsed(&c.WarmupDensity, parseShares, formatShares),
		About: "shares of values to send in the first epochs, such as 0.25,0.0625,0.015625,0.004"}
	return slices.Concat(c.Start.settings(), []setting.Row{warmup}, c.dataSettings(), c.Checkpoint.settings(), c.Best.settings(), c.Servers.settings(), c.Heter.settings(), c.Tuning.settings(), []setting.Row{
		{Path: "output.log-every", Flag: "log-every", Unit: "steps", Scope: setting.PerProcess, Value: setting.Int(&c.LogEvery),
			About: "interval of rank 0's step reports within an epoch, in steps; 0: reports of epochs only"},
		{Path: "output.layer-stats", Scope: setting.PerProcess, Needs: setting.Any(setting.Enabled("output.json"), setting.Enabled("output.http")), Value: setting.Bool(&c.Layers),
			About: "report of the values sent and kept back per layer, in rank 0's last step of an epoch and its reported steps"},
	})
}

func (c *Config) trainingSettings() []setting.Row {
	optimizers := func(names ...string) setting.Condition { return setting.Equals("training.optimizer", names...) }
	return []setting.Row{
		{Path: "training.batch", Commands: setting.BenchStep, Flag: "batch", Unit: "samples", Value: setting.Int(&c.Batch),
			About: "batch size of each rank, in samples"},
		{Path: "training.epochs", Flag: "epochs", Unit: "epochs", Scope: setting.JobMutable, Value: setting.Int(&c.Epochs),
			About: "number of passes over the training set"},
		{Path: "training.seed", Flag: "seed", Value: setting.Int(&c.Seed),
			About: "seed of the initial parameters, the order and augmentation of samples, dropout and synthetic data"},
		{Path: "training.optimizer", Flag: "optimizer", Value: setting.Choice(&c.Optimizer, Optimizers()...),
			About: "optimizer of the parameters; an optimizer other than the model's has its own default rate, momentum and decay"},
		{Path: tableRules, Unit: "TABLE=RULE,…", Value: setting.Parsed(&c.TableRules, checkedRules, func(text string) string { return text }),
			About: "optimizers of table rows instead of training.optimizer, by table name or pattern, such as *=adagrad-rowwise,wide=ftrl:rate=50:l1=0.01"},
		{Path: "training.lr", Flag: "lr", Unit: "rate", Scope: setting.JobMutable, Value: setting.Float(&c.LR),
			About: "learning rate"},
		{Path: "training.lr-schedule", Flag: "lr-schedule", Unit: "EPOCH:LR,…", Scope: setting.JobMutable, Value: setting.Textual(lrSchedule{c}),
			About: "learning rates by number of completed epochs, such as 80:0.01,120:0.001; or cosine, half a cosine down to 0 at the end, or cosine:0.001 down to another rate; empty: constant"},
		{Path: "training.warmup", Flag: "warmup", Unit: "length", Scope: setting.JobMutable, Value: setting.Parsed(&c.Warmup, schedule.ParseWarmup, schedule.Warmup.String),
			About: "length of the learning rate's initial rise in steps, such as 500, or epochs, such as 2epochs; without it, a tenth of the epochs, at most 5, if the rate is above the model's own for a larger global batch"},
		{Path: "training.momentum", Flag: "momentum", Unit: "factor", Needs: optimizers("sgd"), Value: setting.Float(&c.Momentum),
			About: "momentum of sgd"},
		{Path: "training.eps", Needs: optimizers("adagrad", "adam", "adamw"), Value: setting.Float(&c.Eps),
			About: "term that adagrad, adam and adamw add to the divisor; 0: 1e-10 for adagrad, 1e-8 for adam and adamw"},
		{Path: "training.weight-decay", Flag: "weight-decay", Unit: "factor", Needs: optimizers("sgd", "adagrad", "adamw", OptimizerClick), Value: setting.Float(&c.WeightDecay),
			About: "L2 penalty on the parameters; with adamw a decay separate from the gradient, of all but biases and normalisations"},
		{Path: settingAverage, Unit: "decay", Value: setting.Float(&c.Average),
			About: "decay of an exponential moving average of the weights, such as 0.999, for evaluations, predictions and exports; in step t at most (1+t)/(10+t); 0: no average"},
		{Path: settingPrecision, Commands: setting.Eval | setting.Predict | setting.BenchStep, Flag: "precision", Scope: setting.JobMutable, Value: setting.Choice(&c.Precision, fp32, bf16, auto, ""),
			About: "format of the operands of matrix products, convolutions and attention: fp32, or bf16 with sums in fp32, on processors with AVX512-BF16, or auto, bf16 if a measurement at the start shows a gain; all else is fp32"},
		{Path: "training.dropout", Flag: "dropout", Unit: "share", Value: setting.Parsed(&c.Dropout, parseDropout, formatDropout),
			About: "share of values that language models drop in training; default: the model's share"},
		{Path: settingWeights, Unit: "CLASS=WEIGHT,…", Value: setting.Parsed(&c.ClassWeights, checkedWeights, func(text string) string { return text }),
			About: "factors of the training loss by class: balanced, for the same share of each class, or weights by name such as fraud=5,ok=1; their mean over the training rows is made 1"},
		{Path: settingSmoothing, Unit: "share", Value: setting.Float(&c.LabelSmoothing),
			About: "share of the target that training divides over all classes, at least 0 and below 1"},
		{Path: "training.threads", OneStart: true, Commands: setting.Ranks, Flag: "threads", Unit: "threads", Scope: setting.PerProcess, Value: setting.Int(&c.Threads),
			About: "compute threads of each rank, without effect on the result; 0: the ranks started here share this machine's cores, within the quota of its control group"},
	}
}

func (c *Config) dataSettings() []setting.Row {
	stream := setting.Enabled("data.stream")
	return []setting.Row{
		{Path: "data.dir", Commands: setting.Eval | setting.Predict, Flag: "data", Unit: "DIR", Scope: setting.PerProcess, Value: setting.Text(&c.Data),
			About: "folder with the data set's files, or a .tar.gz of images, a table such as my.csv, arrays such as my.npz, shards such as my-{000..009}.tar, or the word synthetic; required unless both files are named"},
		{Path: "data.train-file", Commands: setting.Eval, Flag: "train-file", Unit: "FILE", Scope: setting.PerProcess, Value: setting.Text(&c.TrainFile),
			About: "training file of text or click rows; with data.stream also a folder"},
		{Path: "data.eval-file", Commands: setting.Eval, Flag: "eval-file", Unit: "FILE", Scope: setting.PerProcess, Value: setting.Text(&c.EvalFile),
			About: "evaluation file of text or click rows"},
		{Path: "data.max-bad-records", Commands: setting.Eval | setting.Predict, Unit: "lines", Value: setting.Int(&c.SkipBad),
			About: "maximum number of bad lines or images, skipped and counted"},
		{Path: "data.train-limit", Commands: setting.Eval, Flag: "train-limit", Unit: "samples", Value: setting.Int(&c.TrainLimit),
			About: "number of training samples in use: the first, or with a tree of images a selection spread over its classes; 0: all"},
		{Path: "data.eval-limit", Commands: setting.Eval, Flag: "eval-limit", Unit: "samples", Value: setting.Int(&c.EvalLimit),
			About: "number of evaluation samples in use: the first, or with a tree of images a selection spread over its classes; 0: all"},
		{Path: "data.target", Commands: setting.Eval, Unit: "COLUMN", Value: setting.Text(&c.Target),
			About: "column of a table (CSV), or array, to predict; default: a column called target, label, class or y, else the last"},
		{Path: "data.schema", Commands: setting.Eval, Unit: "COLUMN=KIND,…", Value: setting.Parsed(&c.Schema, table.ParseSchema, table.Schema.String),
			About: "kinds of table columns or arrays: number, category, date, label, target or ignore, with an optional format such as date:DD/MM/YYYY; ringo infers and prints the kinds that are not given"},
		{Path: "data.min-count", Unit: "rows", Value: setting.Int(&c.MinCount),
			About: "smallest number of training rows of a word of a table's category; rarer words are pooled with unknown ones"},
		{Path: settingLayout, Commands: setting.Eval, Flag: "layout", Unit: "FILE", Scope: setting.PerProcess, Value: setting.Text(&c.Layout),
			About: "file layout of a click model's samples: a YAML file that names the columns of labels, numbers, categories, bags and sequences, or " + strings.Join(layout.Names(), ", ") + "; default: Criteo's format"},
		{Path: "data.eval-split", Commands: setting.Eval, Flag: "eval-split", Unit: "share", Value: setting.Float(&c.Split),
			About: "share of a table's rows, or of samples, held out for evaluation by a hash of their numbers; 0: 0.1 if the data has no evaluation samples"},
		{Path: settingImageSize, Commands: setting.Eval, Flag: "image-size", Unit: "pixels", Value: setting.Int(&c.ImageSize),
			About: "height and width of resized and cropped images of folders and shards, in pixels; 0: the model's size"},
		{Path: settingPartition, Commands: setting.Eval, Value: setting.Choice(&c.Partition, PartitionShuffled, PartitionFixed, PartitionFiles, ""),
			About: "distribution of the samples: shuffled (ranks share each epoch's order of one set), fixed (each rank has its own part in all epochs, or its own files), files (each rank reads and unpacks whole files of a stream)"},
		{Path: "data.table-rows", Commands: setting.Eval, Unit: "rows", Value: setting.Int(&c.TableRows),
			About: "number of embedding table rows for a click model's hashed categories; 0: the model's number"},
		{Path: "data.stream", Flag: "stream", Value: setting.Bool(&c.Stream),
			About: "reading of a click model's rows from their files when needed, instead of holding them in memory"},
		{Path: "data.shuffle-window", Commands: setting.Eval, Unit: "rows", Needs: stream, Value: setting.Int(&c.Window),
			About: fmt.Sprintf("number of stream rows that are shuffled together, a multiple of the batch; 0: %d batches; -1: no shuffling", usualWindow)},
	}
}

func (c *Checkpoint) settings() []setting.Row {
	folder := setting.Enabled("checkpoint.dir")
	return []setting.Row{
		{Path: "checkpoint.dir", OneStart: true, Commands: setting.Run, Flag: "checkpoint", Unit: "DIR", Scope: setting.PerProcess, Value: setting.Text(&c.Dir),
			About: "folder or base URL (s3://, azblob://, file://) of the run's checkpoints, saved at its end, after a signal to end, and as checkpoint.every sets"},
		{Path: "checkpoint.every", Flag: "checkpoint-every", Unit: "steps", Scope: setting.JobMutable, Needs: folder, Value: setting.Int(&c.Every),
			About: "interval of checkpoints, in steps; 0: after each epoch"},
		{Path: "checkpoint.keep", Unit: "checkpoints", Scope: setting.PerProcess, Needs: folder, Value: setting.Int(&c.Keep),
			About: "number of latest checkpoints that remain, next to the best and the last healthy checkpoint; 0: 3"},
		{Path: "checkpoint.resume", OneStart: true, Commands: setting.Run, Flag: "resume", Scope: setting.PerProcess, Needs: folder, Value: setting.Bool(&c.Resume),
			About: "continuation from the last checkpoint, if any; settings that are not given have the values of the run's beginning"},
	}
}

func (s *Servers) settings() []setting.Row {
	kept := setting.Equals("sync", "bsp", "ssp", "async", "geo") // parameters are on servers
	return []setting.Row{
		{Path: "ps.staleness", Commands: setting.Run | setting.Server, Flag: "staleness", Unit: "steps", Needs: setting.Equals("sync", "ssp"), Value: setting.Int(&s.Staleness),
			About: "maximum number of steps of a rank ahead of the slowest rank under sync ssp"},
		{Path: "ps.geo-steps", Commands: setting.Server, Flag: "geo-steps", Unit: "steps", Needs: setting.Equals("sync", "geo"), Value: setting.Int(&s.GeoSteps),
			About: "interval at which ranks and servers exchange parameter changes under sync geo, in steps"},
		{Path: "ps.wire-dtype", Commands: setting.Server, Needs: kept, Value: setting.Choice(&s.Values, "fp32", "fp16", "bf16", "int8", ""),
			About: "data type of values between ranks and parameter servers; int8: gradients of rows in 8 bits, all other values as fp16"},
		{Path: "ps.trainer-threads", Commands: setting.Run | setting.Server, Unit: "threads", Needs: setting.Equals("sync", "ssp", "async", "geo"), Value: setting.Int(&s.Threads),
			About: "number of threads of each rank that train concurrently, each with separate batches; they share training.threads"},
		{Path: "ps.row-cache", Commands: setting.Run | setting.Server, Unit: "SIZE", Scope: setting.PerProcess, Needs: setting.Equals("sync", "bsp", "ssp", "async"), Value: setting.Bytes(&s.CacheBytes),
			About: "memory of each rank for rows of earlier batches, reused instead of pulled, such as 64MiB: under ssp as ps.staleness allows, under async in the 3 steps after the pull, under bsp in evaluations only; 0: none"},
		{Path: "ps.click", Commands: setting.Server, Unit: "NAME=X,…", Needs: setting.Equals("training.optimizer", OptimizerClick), Value: setting.Parsed(&s.Click, parseClick, formatClick),
			About: "settings of optimizer click: rate (factor on the learning rate of rows; 5), initial (3), bound (10), no_click and click (value of a show; 0.1 and 1), extend_at (10), decay (0.98 a day), delete_below (0.8), delete_after (30 days unseen), cold_after (1)"},
	}
}

// lrSchedule has the text form of the settings Drops, Cosine and Floor.
type lrSchedule struct{ *Config }

const cosine = "cosine"

// MarshalText returns the text that UnmarshalText reads.
func (s lrSchedule) MarshalText() ([]byte, error) {
	text := schedule.FormatDrops(s.Drops)
	if s.Cosine {
		text = cosine
		if s.Floor != 0 {
			text += ":" + strconv.FormatFloat(s.Floor, 'g', -1, 64)
		}
	}
	return []byte(text), nil
}

// UnmarshalText reads EPOCH:LR,..., cosine or cosine:LR.
func (s lrSchedule) UnmarshalText(text []byte) (err error) {
	word, end, more := strings.Cut(string(text), ":")
	if word != cosine {
		var drops []schedule.Drop
		if drops, err = schedule.ParseDrops(string(text)); err == nil {
			s.Drops, s.Cosine, s.Floor = drops, false, 0
		}
		return err
	}
	floor := 0.
	if more {
		if floor, err = strconv.ParseFloat(end, 64); err != nil || floor != floor {
			return fmt.Errorf("%q: want the rate at the end, such as %s:0.001", end, cosine)
		}
	}
	s.Drops, s.Cosine, s.Floor = nil, true, floor
	return nil
}

// modelsOwn is the text of a Dropout of 0: the model's default probability.
const modelsOwn = "default"

// parseDropout reads a share, or modelsOwn.
func parseDropout(text string) (float64, error) {
	if text == modelsOwn {
		return 0, nil
	}
	switch v, err := strconv.ParseFloat(text, 64); {
	case err != nil || !(v >= 0 && v < 1):
		return 0, fmt.Errorf("want a number from 0 to below 1, or %s for the model's own", modelsOwn)
	case v == 0:
		return -1, nil
	default:
		return v, nil
	}
}

func formatDropout(v float64) string {
	if v == 0 {
		return modelsOwn
	}
	return strconv.FormatFloat(max(0, v), 'g', -1, 64)
}

// parseShares reads numbers, separated by commas.
func parseShares(text string) (shares []float64, err error) {
	if text == "" {
		return nil, nil
	}
	for _, part := range strings.Split(text, ",") {
		v, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil || v != v {
			return nil, errors.New("want numbers separated by commas, such as 0.25,0.0625")
		}
		shares = append(shares, v)
	}
	return shares, nil
}

func formatShares(shares []float64) string {
	parts := make([]string, len(shares))
	for i, v := range shares {
		parts[i] = strconv.FormatFloat(v, 'g', -1, 64)
	}
	return strings.Join(parts, ",")
}

// parseClick reads settings of the click rule as NAME=X, separated by commas, and checks them.
func parseClick(text string) (map[string]float64, error) {
	if text == "" {
		return nil, nil
	}
	out := map[string]float64{}
	for _, part := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if _, again := out[name]; err != nil || again {
			return nil, fmt.Errorf("%q: want NAME=X, each name once", part)
		}
		out[name] = v
	}
	_, err := schema.Rule{Name: OptimizerClick, LR: 1, Settings: out}.Rows()
	return out, err
}

func formatClick(settings map[string]float64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		parts = append(parts, name+"="+strconv.FormatFloat(settings[name], 'g', -1, 64))
	}
	return strings.Join(parts, ",")
}
