package train

import (
	"context"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/model"
)

// Spread is a value over several runs.
type Spread struct {
	Mean float64 `json:"mean"`
	// SD is the standard deviation of a single run, estimated with n-1; 0 for one run. The mean's
	// standard error is SD/sqrt(n).
	SD float64 `json:"sd"`
}

// Seeds sums up runs that differ only in their seed, or in the fold that they evaluate on.
type Seeds struct {
	Event string   `json:"event"` // seeds or folds
	Model string   `json:"model"`
	NP    int      `json:"np"`
	Seeds []uint64 `json:"seeds"`
	// TrainLoss, EvalLoss and SamplesPerS are over the runs' summaries.
	TrainLoss   Spread  `json:"train_loss"`
	EvalLoss    Spread  `json:"eval_loss"`
	SamplesPerS Spread  `json:"samples_per_s"`
	WallS       float64 `json:"wall_s"` // sum over all runs
	// Eval are the metrics that all runs have. As JSON they are fields such as "eval_accuracy".
	Eval map[string]Spread `json:"-"`
	// Tables are the metrics in the tables of all runs, such as "macro_f1", by their names in JSON.
	Tables map[string]Spread `json:"tables,omitempty"`
	// Units has the units of values of a table's target, by the names of Tables. The unit "one
	// standard deviation" is of the training rows, and so differs between folds.
	Units map[string]string `json:"units,omitempty"`
}

// RunSeeds calls Run n times, with the seeds cfg.Seed, cfg.Seed+1 and so on; each receives every
// summary. Files are read once; synthetic data are drawn for every seed.
func RunSeeds(ctx context.Context, job *ringo.Job, m model.Spec, set *data.Dataset, cfg Config, n int, each func(Summary)) (Seeds, error) {
	if n < 1 {
		return Seeds{}, fmt.Errorf("%d seeds: want at least 1", n)
	}
	if n > 1 && cfg.CustomOptimizer != nil {
		return Seeds{}, fmt.Errorf("%d seeds with Config.CustomOptimizer (%s): an optimizer is of one run: run the seeds one by one", n, cfg.CustomOptimizer.Name())
	}
	if n > 1 && cfg.Servers.Consistency != "" {
		return Seeds{}, fmt.Errorf("%d seeds with parameter servers (%s): servers hold the parameters of one run: run the seeds one by one", n, cfg.Servers.Consistency)
	}
	cfg, err := cfg.forSet(job, m, set)
	if err != nil {
		return Seeds{}, err
	}
	var runs []Summary
	first := cfg.Seed
	cfg.seeds = n
	for i := range n {
		cfg.Seed = first + uint64(i)
		if cfg.Data != data.Synthetic && set == nil {
			job.SetStatus("loading the data")
			if err = cfg.follow(job); err != nil {
				return Seeds{}, err
			}
			own := cfg
			if cfg.Partition == PartitionFixed && !job.ServersOnly() {
				own.gather = peersOf(job).gather
			}
			if set, err = openSet(own); err != nil {
				return Seeds{}, err
			}
			defer set.Close() // once: later seeds use the set
		}
		s, err := runOn(ctx, job, cfg, set)
		if err != nil {
			return Seeds{}, fmt.Errorf("seed %d: %w", cfg.Seed, err)
		}
		each(s)
		runs = append(runs, s)
	}
	return sumUp("seeds", runs), nil
}

// RunFolds calls Run n times for cross-validation: each run evaluates on one of n disjoint parts of
// the samples of cfg.Data and trains on the others, with the same seed; each receives every
// summary. A hash of a sample's number, or of an image's path, decides its part.
func RunFolds(ctx context.Context, job *ringo.Job, m model.Spec, cfg Config, n int, each func(Summary)) (Seeds, error) {
	if n < 2 || cfg.Servers.Consistency != "" || cfg.Checkpoint.Dir != "" {
		return Seeds{}, fmt.Errorf("%d folds: want at least 2, without checkpoints and without parameters on servers, which are of one run", n)
	}
	var runs []Summary
	for i := range n {
		cfg.fold, cfg.folds = i, n
		s, err := Run(ctx, job, m, nil, cfg)
		if err != nil {
			return Seeds{}, fmt.Errorf("fold %d of %d: %w", i+1, n, err)
		}
		each(s)
		runs = append(runs, s)
	}
	return sumUp("folds", runs), nil
}

// foldNumber returns the number of the fold, from 1, or 0 without folds.
func (c Config) foldNumber() int {
	if c.folds == 0 {
		return 0
	}
	return c.fold + 1
}

func sumUp(event string, runs []Summary) Seeds {
	out := Seeds{Event: event, Model: runs[0].Model, NP: runs[0].NP}
	for _, s := range runs {
		out.Seeds = append(out.Seeds, s.Seed)
		out.WallS += s.WallS
	}
	out.TrainLoss = spreadOf(runs, func(s Summary) float64 { return s.TrainLoss })
	out.EvalLoss = spreadOf(runs, func(s Summary) float64 { return s.EvalLoss })
	out.SamplesPerS = spreadOf(runs, func(s Summary) float64 { return s.SamplesPerS })
	out.Eval = spreadsOf(runs, func(s Summary) map[string]float64 { return s.Eval })
	out.Tables = spreadsOf(runs, func(s Summary) map[string]float64 { return s.Report.Metrics() })
	if n := runs[0].Report.Numbers; n != nil && n.Unit != "" {
		deviations := "deviations of " + n.Unit
		out.Units = map[string]string{"train_loss": "squared " + deviations, "eval_loss": "squared " + deviations, "eval_" + model.MAE().Name: deviations, "tables.rmse": n.Unit, "tables.mae": n.Unit}
	}
	return out
}

// spreadsOf returns the mean and deviation of each value that all runs have, by name.
func spreadsOf(runs []Summary, of func(Summary) map[string]float64) map[string]Spread {
	out := map[string]Spread{}
	for name := range of(runs[0]) {
		if !slices.ContainsFunc(runs, func(s Summary) bool { _, ok := of(s)[name]; return !ok }) {
			out[name] = spreadOf(runs, func(s Summary) float64 { return of(s)[name] })
		}
	}
	return out
}

func spreadOf(runs []Summary, of func(Summary) float64) Spread {
	values := make([]float64, len(runs))
	for i, s := range runs {
		values[i] = of(s)
	}
	mean, sd := meanAndSD(values)
	return Spread{mean, sd}
}
