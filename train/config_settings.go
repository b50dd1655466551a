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
		About: "shares of values that are sent in the first epochs, such as 0.25,0.0625,0.015625,0.004"}
	return slices.Concat(c.Start.settings(), []setting.Row{warmup}, c.dataSettings(), c.Checkpoint.settings(), c.Best.settings(), c.Servers.settings(), c.Heter.settings(), c.Tuning.settings(), []setting.Row{
		{Path: "output.log-every", Flag: "log-every", Unit: "steps", Scope: setting.PerProcess, Value: setting.Int(&c.LogEvery),
			About: "tell of rank 0's step after so many steps of an epoch each; 0: of epochs alone"},
		{Path: "output.layer-stats", Scope: setting.PerProcess, Needs: setting.Any(setting.Enabled("output.json"), setting.Enabled("output.http")), Value: setting.Bool(&c.Layers),
			About: "tell of each layer what rank 0's last step of an epoch, and steps that are told of, sent of it and kept back"},
	})
}

func (c *Config) trainingSettings() []setting.Row {
	optimizers := func(names ...string) setting.Condition { return setting.Equals("training.optimizer", names...) }
	return []setting.Row{
		{Path: "training.batch", Commands: setting.BenchStep, Flag: "batch", Unit: "samples", Value: setting.Int(&c.Batch),
			About: "samples of a batch of each rank"},
		{Path: "training.epochs", Flag: "epochs", Unit: "epochs", Scope: setting.JobMutable, Value: setting.Int(&c.Epochs),
			About: "how often the training set is seen"},
		{Path: "training.seed", Flag: "seed", Value: setting.Int(&c.Seed),
			About: "decides the initial parameters, the order and augmentation of samples, dropout and synthetic data"},
		{Path: "training.optimizer", Flag: "optimizer", Value: setting.Choice(&c.Optimizer, Optimizers()...),
			About: "what moves the parameters; another than the model's has its own usual rate, momentum and decay"},
		{Path: tableRules, Unit: "TABLE=RULE,…", Value: setting.Parsed(&c.TableRules, checkedRules, func(text string) string { return text }),
			About: "what moves the rows of tables in place of the optimizer, by name or pattern, such as *=adagrad-rowwise,wide=ftrl:rate=50:l1=0.01"},
		{Path: "training.lr", Flag: "lr", Unit: "rate", Scope: setting.JobMutable, Value: setting.Float(&c.LR),
			About: "learning rate"},
		{Path: "training.lr-schedule", Flag: "lr-schedule", Unit: "EPOCH:LR,…", Scope: setting.JobMutable, Value: setting.Textual(lrSchedule{c}),
			About: "the learning rate after so many epochs, such as 80:0.01,120:0.001; or cosine, half a cosine down to 0 at the end, or cosine:0.001 down to another rate; empty: constant"},
		{Path: "training.warmup", Flag: "warmup", Unit: "length", Scope: setting.JobMutable, Value: setting.Parsed(&c.Warmup, schedule.ParseWarmup, schedule.Warmup.String),
			About: "let the learning rate rise over so many steps, such as 500, or epochs, such as 2epochs, first"},
		{Path: "training.momentum", Flag: "momentum", Unit: "factor", Needs: optimizers("sgd"), Value: setting.Float(&c.Momentum),
			About: "momentum of sgd"},
		{Path: "training.eps", Needs: optimizers("adagrad", "adam", "adamw"), Value: setting.Float(&c.Eps),
			About: "what adagrad, adam and adamw add to the divisor; 0: 1e-10 for adagrad, 1e-8 for the others"},
		{Path: "training.weight-decay", Flag: "weight-decay", Unit: "factor", Needs: optimizers("sgd", "adagrad", "adamw", OptimizerClick), Value: setting.Float(&c.WeightDecay),
			About: "L2 penalty on the parameters; with adamw a decay apart from the gradient, of all but biases and normalisations"},
		{Path: "training.dropout", Flag: "dropout", Unit: "share", Value: setting.Parsed(&c.Dropout, parseDropout, formatDropout),
			About: "share of values that language models drop while they are trained; default: the model's own"},
		{Path: "training.threads", OneStart: true, Commands: setting.Ranks, Flag: "threads", Unit: "threads", Scope: setting.PerProcess, Value: setting.Int(&c.Threads),
			About: "threads that compute in each rank, which do not change the result; 0: this machine's cores, within the quota of its control group, are shared among the ranks started here"},
	}
}

func (c *Config) dataSettings() []setting.Row {
	stream := setting.Enabled("data.stream")
	return []setting.Row{
		{Path: "data.dir", Commands: setting.Eval | setting.Predict, Flag: "data", Unit: "DIR", Scope: setting.PerProcess, Value: setting.Text(&c.Data),
			About: "folder with the data set's files, of images a .tar.gz too, a table such as my.csv, arrays such as my.npz, shards such as my-{000..009}.tar, or the word synthetic; needed unless both files are named"},
		{Path: "data.train-file", Commands: setting.Eval, Flag: "train-file", Unit: "FILE", Scope: setting.PerProcess, Value: setting.Text(&c.TrainFile),
			About: "file to train on, of text and rows of clicks; with data.stream it may be a folder"},
		{Path: "data.eval-file", Commands: setting.Eval, Flag: "eval-file", Unit: "FILE", Scope: setting.PerProcess, Value: setting.Text(&c.EvalFile),
			About: "file to evaluate on, of text and rows of clicks"},
		{Path: "data.max-bad-records", Commands: setting.Eval | setting.Predict, Unit: "lines", Value: setting.Int(&c.SkipBad),
			About: "leave out up to so many bad lines or images, and count them"},
		{Path: "data.train-limit", Commands: setting.Eval, Flag: "train-limit", Unit: "samples", Value: setting.Int(&c.TrainLimit),
			About: "train on the first so many samples only, of a tree of images on so many spread over its classes; 0: all"},
		{Path: "data.eval-limit", Commands: setting.Eval, Flag: "eval-limit", Unit: "samples", Value: setting.Int(&c.EvalLimit),
			About: "evaluate on so few samples likewise; 0: all"},
		{Path: "data.target", Commands: setting.Eval, Unit: "COLUMN", Value: setting.Text(&c.Target),
			About: "the column of a table (CSV), or the array, that the model is to find; default: one called target, label, class or y, else the last"},
		{Path: "data.schema", Commands: setting.Eval, Unit: "COLUMN=KIND,…", Value: setting.Parsed(&c.Schema, table.ParseSchema, table.Schema.String),
			About: "what columns of a table, or arrays, are for: number, category, label, target or ignore; what is not said is guessed and told"},
		{Path: settingLayout, Commands: setting.Eval, Flag: "layout", Unit: "FILE", Scope: setting.PerProcess, Value: setting.Text(&c.Layout),
			About: "how a click model's samples lie in their files: a YAML file that says which columns are labels, numbers, categories, bags and sequences, or " + strings.Join(layout.Names(), ", ") + "; default: Criteo's format"},
		{Path: "data.eval-split", Commands: setting.Eval, Flag: "eval-split", Unit: "share", Value: setting.Float(&c.Split),
			About: "share of a table's rows, or of samples, that is held out for evaluation, by a hash of each one's number; 0: 0.1, where there are none to evaluate on"},
		{Path: settingImageSize, Commands: setting.Eval, Flag: "image-size", Unit: "pixels", Value: setting.Int(&c.ImageSize),
			About: "height and width to which images of folders and shards are resized and cropped; 0: those that the model is made for"},
		{Path: settingPartition, Commands: setting.Eval, Value: setting.Choice(&c.Partition, PartitionShuffled, PartitionFixed, PartitionFiles, ""),
			About: "shuffled: ranks share each epoch's order of one set; fixed: each rank has its own part in all epochs, or its own files; files: each rank reads and unpacks whole files of a stream"},
		{Path: "data.table-rows", Commands: setting.Eval, Unit: "rows", Value: setting.Int(&c.TableRows),
			About: "rows of the embedding table to which a click model's categories are hashed; 0: the model's own number"},
		{Path: "data.stream", Flag: "stream", Value: setting.Bool(&c.Stream),
			About: "read a click model's rows from their files as they are needed, and do not hold them in memory"},
		{Path: "data.shuffle-window", Commands: setting.Eval, Unit: "rows", Needs: stream, Value: setting.Int(&c.Window),
			About: fmt.Sprintf("rows of a stream that are shuffled among each other, a multiple of the batch; 0: %d batches; -1: none", usualWindow)},
	}
}

func (c *Checkpoint) settings() []setting.Row {
	folder := setting.Enabled("checkpoint.dir")
	return []setting.Row{
		{Path: "checkpoint.dir", OneStart: true, Commands: setting.Run, Flag: "checkpoint", Unit: "DIR", Scope: setting.PerProcess, Value: setting.Text(&c.Dir),
			About: "save the run in this folder, or below this URL (s3://, azblob://, file://): at its end, when a signal tells it to end, and now and then"},
		{Path: "checkpoint.every", Flag: "checkpoint-every", Unit: "steps", Scope: setting.JobMutable, Needs: folder, Value: setting.Int(&c.Every),
			About: "save after so many steps each; 0: after each epoch"},
		{Path: "checkpoint.keep", Unit: "checkpoints", Scope: setting.PerProcess, Needs: folder, Value: setting.Int(&c.Keep),
			About: "number of checkpoints that remain, the latest, next to the best and the last healthy one; 0: 3"},
		{Path: "checkpoint.resume", OneStart: true, Commands: setting.Run, Flag: "resume", Scope: setting.PerProcess, Needs: folder, Value: setting.Bool(&c.Resume),
			About: "go on from the last checkpoint, if there is one; what is not given is as the run was begun"},
	}
}

func (s *Servers) settings() []setting.Row {
	kept := setting.Equals("sync", "bsp", "ssp", "async", "geo") // parameters are on servers
	return []setting.Row{
		{Path: "ps.staleness", Commands: setting.Run | setting.Server, Flag: "staleness", Unit: "steps", Needs: setting.Equals("sync", "ssp"), Value: setting.Int(&s.Staleness),
			About: "how many steps a rank may be ahead of the slowest one under sync ssp"},
		{Path: "ps.geo-steps", Commands: setting.Server, Flag: "geo-steps", Unit: "steps", Needs: setting.Equals("sync", "geo"), Value: setting.Int(&s.GeoSteps),
			About: "after how many steps each ranks and servers exchange by how much parameters have moved, under sync geo"},
		{Path: "ps.wire-dtype", Commands: setting.Server, Needs: kept, Value: setting.Choice(&s.Values, "fp32", "fp16", "bf16", "int8", ""),
			About: "how values travel between ranks and servers that keep parameters; int8: gradients of rows in 8 bits, all else as fp16"},
		{Path: "ps.trainer-threads", Commands: setting.Run | setting.Server, Unit: "threads", Needs: setting.Equals("sync", "ssp", "async", "geo"), Value: setting.Int(&s.Threads),
			About: "threads of each rank that train at once, each on batches of its own; they share training.threads"},
		{Path: "ps.row-cache", Commands: setting.Run | setting.Server, Unit: "SIZE", Scope: setting.PerProcess, Needs: setting.Equals("sync", "bsp", "ssp", "async"), Value: setting.Bytes(&s.CacheBytes),
			About: "memory of each rank for rows of earlier batches that it uses again instead of pulling them, such as 64MiB: under ssp as ps.staleness allows, under async in the 3 steps after it was pulled, under bsp in evaluations alone; 0: none"},
		{Path: "ps.click", Commands: setting.Server, Unit: "NAME=X,…", Needs: setting.Equals("training.optimizer", OptimizerClick), Value: setting.Parsed(&s.Click, parseClick, formatClick),
			About: "settings of optimizer click: rate (rows learn at so many times the learning rate; 5), initial (3), bound (10), no_click and click (what a show is worth; 0.1 and 1), extend_at (10), decay (0.98 a day), delete_below (0.8), delete_after (30 days unseen), cold_after (1)"},
	}
}

// lrSchedule is the text of Drops, Cosine and Floor.
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

// modelsOwn is the text of a dropout of 0, the model's own.
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
