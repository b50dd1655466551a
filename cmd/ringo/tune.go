package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/reportcmd"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/search"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/launch/hosts"
	"github.com/ringo-ml/ringo/internal/placement"
	"github.com/ringo-ml/ringo/internal/setting"
)

// tuneCommand is `ringo tune MODEL`: a search over settings of `ringo train`, a process per trial.
type tuneCommand struct {
	jobFlags
	try      []string
	trials   int
	parallel int
	metric   string
	out      string
}

func newTune() *cobra.Command {
	c := new(tuneCommand)
	cmd := &cobra.Command{
		Use:   "tune MODEL --try PATH=VALUES --out DIR",
		Short: "Search for better settings",
		Long: "Train MODEL once per combination of the values of --try, or with --trials N for N random\n" +
			"ones, and compare the evaluations. VALUES is a list, lr=0.001,0.01, or a range,\n" +
			"lr=0.0001..0.1:log. All other flags are those of `ringo train` and hold for each trial.\n" +
			"Trials run in parallel, each on its share of the processors. The same command continues\n" +
			"an interrupted search. DIR has the records of each trial and report.html with charts.",
		Example: "  ringo tune mlp --data houses.csv --try lr=0.001,0.01 --try batch=32,64 --out search\n" +
			"  ringo tune mnist --data synthetic --try lr=0.001..0.5:log --trials 20 --out search",
		Args: oneModel,
		RunE: func(cmd *cobra.Command, words []string) error { return c.execute(cmd, words[0]) },
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&c.try, "try", nil, "`PATH=VALUES`: a setting and its values a,b,c or range LOW..HIGH, with :log for a uniform logarithm; may be repeated")
	fs.IntVar(&c.trials, "trials", 0, "number of random `trials`; 0: the grid of all combinations")
	fs.IntVar(&c.parallel, "parallel", 0, "`trials` at the same time; 0: as many as the processors allow")
	fs.StringVar(&c.metric, "metric", "", "`NAME` of the metric of the evaluation that compares trials; default: the model's first one")
	fs.StringVar(&c.out, "out", "", "the search's `DIR`, new or of the same search, which continues")
	c.register(fs, setting.Train)
	return cmd
}

// ownSetting reports whether a setting would make trials write to the same files or serve at the
// same address.
func ownSetting(p setting.Path) bool {
	return job.GroupOf(p) == "checkpoint" || slices.Contains([]setting.Path{"job.rank", "job.rendezvous", "output.http", "output.log-dir", "output.tensorboard", "output.trace", "tuning.profile"}, p)
}

func (c *tuneCommand) execute(cmd *cobra.Command, model string) error {
	trials, cfg, err := c.settle(cmd, model)
	if err != nil {
		return err
	}
	return cli.WithOutput(cmd, c.Output.JSON, func(out *cli.Output) error { return c.search(cmd, cfg, trials, out) })
}

// settle validates the flags and the settings of every trial.
func (c *tuneCommand) settle(cmd *cobra.Command, model string) ([]search.Trial, search.Config, error) {
	var faults cli.Faults
	fail := func() ([]search.Trial, search.Config, error) {
		return nil, search.Config{}, cli.Usage(errors.Join(faults...))
	}
	faults.Error(errors.Join(c.check(cmd, model)...))
	if c.Spec == nil {
		return fail()
	}
	base := slices.DeleteFunc(job.Overrides(c.table, nil), func(a setting.Assignment) bool {
		return slices.Contains([]setting.Path{"model", "output.json", "output.progress"}, a.Path)
	})
	for _, a := range base {
		faults.If(ownSetting(a.Path),
			"%s is of one run, and `ringo tune` runs several: train the best settings with it afterwards", flagOf(a.Path))
	}
	switch {
	case c.worker || c.part != nil:
		faults.Add("`ringo tune` starts its trials' ranks itself: start it once, without another launcher")
	case c.out == "":
		faults.Add("`ringo tune` needs --out DIR, for the results")
	case c.trials < 0 || c.parallel < 0:
		faults.Add("--trials %d, --parallel %d: want 0 or more", c.trials, c.parallel)
	}
	_, table, err := job.New() // parsing of --try changes fields
	if err != nil {
		return nil, search.Config{}, err
	}
	if monitor := c.Train.Best.Metric; monitor != "" && c.metric != "" && c.metric != monitor {
		faults.Add("--metric %s, and %s %s: a run's best evaluation is chosen by one metric: give one of both", c.metric, setting.Path("training.monitor"), monitor)
	}
	space, err := search.Parse(c.try, table)
	faults.Error(err)
	if len(faults) > 0 {
		return fail()
	}
	trials, err := space.Trials(c.trials)
	faults.Error(err)
	faults.Error(c.validTrials(base, space, trials))
	if len(faults) > 0 {
		return fail()
	}
	cfg, err := c.searchConfig(base, space)
	return trials, cfg, err
}

// validTrials returns the errors of the first trial with invalid settings.
func (c *tuneCommand) validTrials(base []setting.Assignment, space search.Space, trials []search.Trial) error {
	for _, t := range trials {
		all := slices.Concat([]setting.Assignment{{Path: "model", Text: c.Model}}, base)
		var words []string
		for i, a := range space {
			all = append(all, setting.Assignment{Path: a.Path, Text: t.Values[i], Origin: "--try"})
			words = append(words, string(a.Path)+"="+t.Values[i])
		}
		spec, table, err := job.New(all...)
		if err == nil {
			err = errors.Join(spec.ValidateTraining(), spec.ValidateProcesses())
		}
		if err == nil {
			err = spec.Unused(table).Err()
		}
		if err != nil {
			return fmt.Errorf("a trial with %s: %w", strings.Join(words, " "), c.faults(err))
		}
	}
	return nil
}

func (c *tuneCommand) searchConfig(base []setting.Assignment, space search.Space) (search.Config, error) {
	program, err := os.Executable()
	if err != nil {
		return search.Config{}, err
	}
	cfg := search.Config{
		Plan:  search.Plan{Ringo: ringo.Version, Model: c.Model, Try: c.try, Random: c.trials > 0},
		Space: space, Program: program, Args: []string{"train", c.Model}, Folder: c.out,
		Metric: cmp.Or(c.metric, c.Train.Best.Metric), Parallel: c.parallel, Best: c.Train.Best.Metric != "",
	}
	for _, a := range base {
		cfg.Args = append(cfg.Args, "--set", string(a.Path)+"="+a.Text)
		cfg.Plan.Base = append(cfg.Plan.Base, string(a.Path)+"="+a.Text)
	}
	if cfg.Parallel == 0 {
		cfg.Parallel = 1
		if c.Hosts == "" {
			cfg.Parallel = max(1, placement.Usable()/(c.Ranks*max(1, c.Train.Threads)))
		}
	}
	return cfg, nil
}

func (c *tuneCommand) search(cmd *cobra.Command, cfg search.Config, trials []search.Trial, out *cli.Output) error {
	cfg.Trials = trials
	cfg.Parallel = min(cfg.Parallel, len(trials))
	cfg.Begin = func() {
		out.Line("%s of %s, %d at the same time; results in %s", cli.Counted(len(trials), "trial"), c.Model, cfg.Parallel, c.out)
	}
	ended := 0
	var fault error
	cfg.Report = func(s search.Search, r search.Result, restored bool) {
		ended++
		from := ""
		if restored {
			from = ", from an earlier start"
		}
		fault = errors.Join(fault, out.Result(r, "%d/%d  trial %d: %s%s", ended, len(trials), r.Number, s.Line(r), from))
	}
	found, err := search.Run(cmd.Context(), cfg)
	if err = errors.Join(err, fault); err != nil {
		if cmd.Context().Err() != nil {
			return fmt.Errorf("%w; %d of %d trials have results in %s: the same command continues", err, ended, len(trials), c.out)
		}
		return err
	}
	return c.conclude(cfg, found, out)
}

// bestTrial is the last record of --json.
type bestTrial struct {
	Event    string            `json:"event"` // "search"
	Model    string            `json:"model"`
	Trials   int               `json:"trials"`
	Failed   int               `json:"failed_trials"`
	Metric   string            `json:"metric"`
	Best     int               `json:"best_trial"`
	Value    float64           `json:"best_value"`
	Settings map[string]string `json:"best_settings"`
}

// conclude prints the table and a command to train with the best settings, and writes the page.
func (c *tuneCommand) conclude(cfg search.Config, found search.Search, out *cli.Output) error {
	page := filepath.Join(c.out, "report.html")
	if err := dirlock.WriteFile(page, func(w io.Writer) error { return reportcmd.WriteTrials(w, found) }); err != nil {
		return err
	}
	best := found.Results[0]
	record := bestTrial{Event: "search", Model: c.Model, Trials: len(found.Results), Metric: best.Metric, Best: best.Number, Value: best.Value, Settings: best.Settings}
	for _, r := range found.Results {
		if r.Failed() {
			record.Failed++
		}
	}
	out.Line("")
	if out.Lines != nil {
		if err := found.WriteTable(out.Lines); err != nil {
			return err
		}
	}
	words := append([]string{"ringo"}, cfg.Args...)
	for _, a := range found.Space {
		words = append(words, "--set", string(a.Path)+"="+best.Settings[string(a.Path)])
	}
	which := "the last evaluation of each run"
	if cfg.Best {
		which = "the best evaluation of each run"
	}
	return out.Result(record, "\ncompared by %s in %s; charts in %s\nbest: %s", found.Metric.Title, which, page, strings.Join(quoted(words), " "))
}

// quoted returns words of a command for a shell.
func quoted(words []string) (out []string) {
	for _, w := range words {
		if strings.ContainsAny(w, " \t\n'\"\\$`*?[]{}()<>|&;#~!") {
			w = hosts.Quote(w)
		}
		out = append(out, w)
	}
	return out
}
