package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/exchange"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/setting"
	"github.com/ringo-ml/ringo/train"
	"github.com/ringo-ml/ringo/tune"
)

// maxSeeds bounds a slip of the finger.
const maxSeeds = 1000

// settings are the flags of a training run, but for which ranks there are. What
// is not given is the model's default, which is known only when the model is.
type settings struct {
	cfg     train.Config
	lrSteps string
	warmup  string
	density string
	dropout float64
	seeds   int
	json    string
}

func (s *settings) register(fs *pflag.FlagSet) {
	c := &s.cfg
	fs.StringVar(&c.Data, "data", c.Data, "`DIR` with the data set's files, of images a .tar.gz too, or \"synthetic\" (required, unless both files are named)")
	fs.StringVar(&c.TrainFile, "train-file", c.TrainFile, "train on this `FILE` (text, Criteo)")
	fs.StringVar(&c.EvalFile, "eval-file", c.EvalFile, "evaluate on this `FILE` (text, Criteo)")
	fs.IntVar(&c.SkipBad, "skip-bad", c.SkipBad, "leave out up to `N` bad lines or images, and count them")
	fs.BoolVar(&c.Stream, "stream", false, "read rows from their files as they are needed, not into memory before (Criteo; those to evaluate on where their file is not compressed); --train-file may be a folder")
	fs.IntVar(&c.Window, "shuffle-window", 0, "with --stream: `rows` that are shuffled among each other, a multiple of --batch; 0: 128 batches; -1: none")
	fs.BoolVar(&c.ByFile, "by-file", false, "with --stream: ranks share whole files, not blocks of them; for compressed files, of which each rank unpacks its own alone")
	fs.IntVar(&c.Interleave, "interleave", 0, "with --stream: `files` read at once, a block of each in turn; 0: 1")
	fs.IntVar(&c.TableRows, "table-rows", 0, "`rows` of the embedding table that categories are hashed to (ctr-dnn); 0: the model's own number")
	fs.IntVar(&c.TrainLimit, "train-limit", 0, "train on the first `N` samples only, of a tree of images on N spread over its classes; 0: all")
	fs.IntVar(&c.EvalLimit, "eval-limit", 0, "evaluate on so few (`N`) likewise; 0: all")
	fs.IntVar(&c.Batch, "batch", c.Batch, "samples per rank and backward")
	fs.IntVar(&c.Epochs, "epochs", c.Epochs, "how often the training set is seen")
	fs.StringVar(&c.Optimizer, "optimizer", c.Optimizer, strings.Join(train.Optimizers(), ", ")+"; another than the model's has its own usual rate, momentum and decay")
	fs.Float64Var(&c.LR, "lr", c.LR, "learning rate")
	fs.StringVar(&s.lrSteps, "lr-steps", "", "`EPOCH:LR,...`: the learning rate after so many epochs, such as 80:0.01,120:0.001")
	fs.BoolVar(&c.Cosine, "lr-cosine", c.Cosine, "let the learning rate fall along half a cosine")
	fs.Float64Var(&c.Floor, "lr-floor", c.Floor, "where --lr-cosine ends")
	fs.StringVar(&s.warmup, "warmup", "", "let the learning rate rise over so many steps (500) or epochs (2epochs) first")
	fs.Float64Var(&c.Momentum, "momentum", c.Momentum, "momentum of sgd")
	fs.Float64Var(&c.Eps, "eps", c.Eps, "what adagrad, adam and adamw add to the divisor; 0: 1e-10, 1e-8 and 1e-8")
	fs.Float64Var(&c.WeightDecay, "weight-decay", c.WeightDecay, "L2 penalty on the parameters; decoupled with adamw, where biases and normalisations have none")
	fs.Float64Var(&s.dropout, "dropout", 0, "probability of dropping a value, of models that do; 0: none (default: the model's)")
	fs.Float64Var(&c.Exchange.ClipNorm, "clip-norm", c.Exchange.ClipNorm, "bound on the norm of the whole gradient; 0: none")
	fs.IntVar(&c.Exchange.Accumulation, "accumulate", 1, "batches whose gradients make one step")
	fs.Uint64Var(&c.Seed, "seed", c.Seed, "decides initial parameters, order and augmentation of samples, dropout and synthetic data")
	fs.IntVar(&s.seeds, "seeds", 1, "run so many seeds one after the other, from --seed on, and report mean and spread")
	registerExchange(fs, &c.Exchange)
	fs.StringVar(&c.Checkpoint.Dir, "checkpoint", c.Checkpoint.Dir, "save the run in `DIR`, the last 3 times, at its end, and when a signal tells it to end")
	fs.IntVar(&c.Checkpoint.Every, "every", c.Checkpoint.Every, "save after every `N` steps; 0: after each epoch")
	fs.BoolVar(&c.Checkpoint.Resume, "resume", c.Checkpoint.Resume, "go on from the last checkpoint, if there is one; what is not given is as it was begun")
	fs.StringVar(&s.density, "warmup-density", "", "`SHARE,...`: send so large shares in the first epochs instead of --spars, such as 0.25,0.0625,0.015625,0.004")
	fs.BoolVar(&c.Layers, "layers", c.Layers, "tell in --json of each layer what rank 0's last step of an epoch sent of it and kept")
	fs.StringVar(&s.json, "json", "", "write one JSON object per epoch and a summary to `FILE`, or to stdout with -")
}

// registerExchange registers the flags of how gradients travel.
func registerExchange(fs *pflag.FlagSet, c *distopt.Config) {
	fs.StringVar((*string)(&c.Strategy), "strategy", string(distopt.FP32), "what the ranks exchange: "+strategyList()+"; auto: the fastest of some, measured in the first steps")
	fs.Float64Var(&c.Spars, "spars", 0, "the `share` of values that is sent by "+takers(distopt.SettingWarmup)+"; the least magnitude of sparseThreshold; 0: 0.05")
	fs.IntVar(&c.Every, "dlgs-every", 0, fmt.Sprintf("dlgs selects exactly every so many `steps`; 0: %d", compress.DefaultEvery))
	fs.StringVar((*string)(&c.Rule), "dlgs-rule", "", "the `rule` of dlgs between two exact selections: paper, their threshold as it is; corrected, it follows what was sent (default: corrected)")
	fs.BoolVar(&c.LayerThresholds, "layer-thresholds", false, "select from each layer of a bucket by itself, of "+takers(distopt.SettingThresholds))
	fs.Float64Var(&c.ClipValue, "clip-value", 0, "limit each value of a rank's gradient to this `magnitude` before it is compressed; 0: none")
	fs.Float64Var(&c.Momentum, "momentum-correction", 0, "`factor` of DGC's momentum correction, in place of --momentum, of strategies that select; 0: none")
	fs.IntVar(&c.Partitions, "partitions", 0, "parts that partialUpdate averages in turn; 0: 4")
	fs.StringVar(&c.SparseAlgorithm, "sparse-algorithm", "", "how selected entries are exchanged: "+strings.Join(exchange.Algorithms(), ", ")+" (default: by their number)")
	fs.BoolVar(&c.BoundSum, "bound-sum", false, "let a sum of selected entries have no more than one rank sends, as Ok-Topk does, so that bytes do not grow with the ranks")
	fs.StringVar(&c.Plan, "plan", "", "how layers are merged into buckets: "+strings.Join(distopt.Plans(), ", ")+"; by measurements (--tune) or a --profile of them: "+strings.Join(tune.Plans(), ", ")+" (default: fixed, but one of topk, per-layer of lags, exact of auto)")
	fs.StringVar((*string)(&c.Update), "update", "", "who updates the parameters under fp32: "+string(distopt.UpdateSharded)+", each rank a part that it writes to all, in memory that they share; "+string(distopt.UpdateWhole)+", each rank all (default: sharded where it can be, unless a rank has more threads than there are ranks)")
	fs.IntVar(&c.BucketBytes, "bucket-bytes", 0, "bytes of a bucket with --plan fixed; 0: 8 MiB, halved until a model has four buckets")
}

// takers are the strategies on which a setting has an effect.
func takers(p setting.Path) string { return strings.Join(distopt.Takers(p), ", ") }

// parseShares reads the list of --warmup-density.
func parseShares(text string) (shares []float64, err error) {
	if text == "" {
		return nil, nil
	}
	for _, part := range strings.Split(text, ",") {
		v, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil {
			return nil, fmt.Errorf("--%s: %q is no number", "warmup-density", part)
		}
		shares = append(shares, v)
	}
	return shares, nil
}

func strategyList() string {
	var names []string
	for _, s := range distopt.Strategies() {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// forModel is the settings of a model: its defaults, and over them the flags
// that were given.
func (s *settings) forModel(cmd *cobra.Command, model string) (settings, error) {
	out := settings{cfg: train.Defaults(model, "")}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	if cmd.Flags().Changed("optimizer") {
		out.cfg.SetOptimizer(s.cfg.Optimizer) // before what it would change is set
	}
	out.register(fs)
	var errs []error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if fs.Lookup(f.Name) != nil {
			errs = append(errs, fs.Set(f.Name, f.Value.String()))
		}
	})
	var err error
	if out.cfg.Drops, err = schedule.ParseDrops(out.lrSteps); err != nil {
		errs = append(errs, fmt.Errorf("--lr-steps %q: %w", out.lrSteps, err))
	}
	if out.cfg.Warmup, err = schedule.ParseWarmup(out.warmup); err != nil {
		errs = append(errs, fmt.Errorf("--warmup %q: %w", out.warmup, err))
	}
	if out.cfg.WarmupDensity, err = parseShares(out.density); err != nil {
		errs = append(errs, err)
	}
	if out.cfg.Dropout = out.dropout; fs.Changed("dropout") && out.dropout == 0 {
		out.cfg.Dropout = -1
	}
	if out.dropout < 0 {
		errs = append(errs, fmt.Errorf("--dropout %v: want 0 to below 1", out.dropout))
	}
	return out, errors.Join(append(errs, out.idle(model)...)...)
}

// idle reports what was asked for and would do nothing.
func (s *settings) idle(model string) (errs []error) {
	if spec, err := models.Lookup(model); err == nil && spec.Task != models.Language && s.dropout > 0 {
		errs = append(errs, fmt.Errorf("--dropout %v has no effect on %s, which drops nothing: leave it out", s.dropout, spec.Name))
	}
	if s.cfg.SkipBad > 0 && s.cfg.Data == data.Synthetic {
		errs = append(errs, fmt.Errorf("--skip-bad %d has no effect on synthetic data: leave it out", s.cfg.SkipBad))
	}
	if s.cfg.Layers && s.json == "" {
		errs = append(errs, errors.New("--layers has no effect without --json: leave it out"))
	}
	return errs
}
