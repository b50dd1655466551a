package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/predict"
	"github.com/ringo-ml/ringo/train"
)

// predictCommand is `ringo predict CHECKPOINT`. As in `ringo eval`, settings come from the
// checkpoint, and servers load their parts of it. The number of ranks is independent of the run,
// because the output does not depend on it. The default is a single rank in this process, which can
// read standard input.
type predictCommand struct {
	jobFlags
	checkpoint string // file or folder
	out        string
	output     predict.Config
	text       predict.Text
	prompted   bool // --prompt is given
}

func newPredict() *cobra.Command { return new(predictCommand).command() }

func (c *predictCommand) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "predict CHECKPOINT",
		Short: "Predict rows, images or text with a checkpoint",
		Long: "Predict each row or image of --data with a saved model, in input order: classes with\n" +
			"probabilities, numbers in the units of their column, or click probabilities. A language\n" +
			"model continues the text of --prompt.\n" +
			"CHECKPOINT is a file, or the folder of a run: of a folder the best checkpoint (RUN/best)\n" +
			"is used if the run had training.monitor, else the last one (RUN/last).",
		Example: "  ringo predict RUN --data new.csv --out predictions.csv --format csv --columns id\n" +
			"  zcat day.tsv.gz | ringo predict RUN --data - --np 1\n" +
			"  ringo predict RUN --data photos --top 3 --np 2\n" +
			"  ringo predict RUN --prompt \"It was\" --tokens 200 --temperature 0.8",
		Args: oneCheckpoint,
		RunE: func(cmd *cobra.Command, words []string) error { return withCheckpoint(cmd, words, c.execute) },
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { predictHelp(cmd.OutOrStdout()) })
	fs := cmd.Flags()
	fs.StringVar(&c.out, "out", "", "write predictions to `FILE`, atomically; default: stdout")
	cli.Choice(cmd, &c.output.Format, "format", "jsonl (one object per line), csv, parquet or arrow; default: jsonl", predict.JSONL, predict.CSV, predict.Parquet, predict.Arrow)
	fs.IntVar(&c.output.Top, "top", 0, "print the `K` most probable classes; default: 1")
	fs.StringSliceVar(&c.output.Columns, "columns", nil, "`NAMES` of a table's columns to pass through, such as id,name")
	fs.StringVar(&c.text.Prompt, "prompt", "", "`TEXT` that a language model continues")
	fs.IntVar(&c.text.Tokens, "tokens", 256, "number of words or bytes that a language model writes")
	fs.Float64Var(&c.text.Temperature, "temperature", 1, "randomness of the text: 0 always takes the most probable word")
	fs.Uint64Var(&c.text.Seed, "seed", 1, "seed of the random choices; the same seed writes the same text")
	c.register(fs, setting.Predict)
	return cmd
}

// predictHelp prints help for a terminal of 24 lines of 80 columns. The manual page has all flags.
func predictHelp(to io.Writer) {
	var b strings.Builder
	b.WriteString("Predict with a saved model: CHECKPOINT is a file, or the folder of a run.\n\n" +
		"  ringo predict RUN --data new.csv --columns id --format csv --out out.csv\n" +
		"  zcat day.tsv.gz | ringo predict RUN --data -\n" +
		"  ringo predict RUN --data photos --top 3 --np 2\n" +
		"  ringo predict RUN --prompt \"It was\" --tokens 200 --temperature 0.8\n\n")
	for _, f := range [][2]string{
		{"data PATH", "a table, arrays, rows of Criteo, an image or folder, or - for stdin"},
		{"out FILE", "write predictions to FILE, atomically; default: stdout"},
		{"format WORD", "jsonl (one object per line), csv, parquet or arrow"},
		{"columns A,B", "columns of a table to pass through"},
		{"top K", "print the K most probable classes"},
		{"np N", "number of ranks, without effect on the output; --threads N each"},
		{"progress WORD", "auto, bar, plain or none"},
		{"prompt TEXT", "text that a language model continues"},
		{"tokens N", "number of words or bytes that it writes"},
		{"temperature X", "randomness; 0 always takes the most probable word"},
		{"seed N", "seed of the random choices"},
	} {
		fmt.Fprintf(&b, "  --%-15s %s\n", f[0], f[1])
	}
	b.WriteString("\nFlags for ranks on several hosts: `ringo help train job`.\n")
	fmt.Fprint(to, b.String())
}

func (c *predictCommand) execute(cmd *cobra.Command, words []string) error {
	c.checkpoint, c.checkpointPath, c.predicts = words[0], words[0], true
	c.prompted = cmd.Flags().Changed("prompt")
	errs := c.check(cmd, "")
	if c.Spec == nil {
		return errors.Join(errs...)
	}
	errs = append(errs, c.faults(c.ValidateTraining()), c.faults(c.suits(cmd)))
	if err := errors.Join(errs...); err != nil {
		return cli.Usage(err)
	}
	if !c.worker && c.Rank <= 0 {
		if err := cli.Creatable("--out", c.out); err != nil {
			return err
		}
	}
	return c.run(cmd, words, func(job *ringo.Job) error { return c.predict(cmd, job) })
}

// suits reports conflicting flags before any process starts. Only the launcher checks whether data
// are given, because launched ranks receive settings without their origins.
func (c *predictCommand) suits(cmd *cobra.Command) error {
	var faults cli.Faults
	asked := slices.ContainsFunc(c.flags, func(a setting.Assignment) bool { return a.Path == "data.dir" }) || c.isGiven("data.dir") && !fromCheckpoint(c.table.Origin("data.dir"))
	given := func(names ...string) {
		for _, name := range names {
			if f := cmd.Flags().Lookup(name); f.Changed && c.prompted {
				faults.Add("--%s has no effect with --prompt", name)
			} else if f.Changed {
				faults.Add("--%s has no effect without --prompt", name)
			}
		}
	}
	language := c.Train.Model.Task == model.Language
	switch {
	case c.prompted && !language:
		faults.Add("--prompt has no effect on %s, which is no language model", c.Train.Model.Name)
	case !c.prompted && language:
		faults.Add("%s is a language model, which writes text: give it --prompt TEXT", c.Train.Model.Name)
	case c.prompted && asked && !c.worker:
		faults.Add("--prompt with --data: give one of the two; a language model continues the text of --prompt")
	case !c.prompted && !asked && !c.worker:
		faults.Add("no input: give --data FILE, or --data - for stdin; for a language model --prompt TEXT")
	case c.prompted && c.Ranks > 1:
		faults.Add("--np %d: a text is written by one rank, on --threads", c.Ranks)
	case !c.prompted && c.Train.Data == data.Stdin && !c.InProcess():
		faults.Add("--data -: only this process can read stdin, not its ranks: give a file, or remove --np")
	case !c.prompted && c.Train.Data == data.Stdin && c.Ranks > 1:
		faults.Add("--data - with --np: one rank reads stdin, and other ranks would only wait for it: remove --np; --threads makes it faster")
	}
	if c.prompted {
		given("format", "top", "columns")
		faults.Error(c.text.Validate())
	} else {
		given("tokens", "temperature", "seed")
		faults.Error(c.output.Validate())
	}
	return errors.Join(faults...)
}

// fromCheckpoint reports whether a value comes from the checkpoint's run.
func fromCheckpoint(o setting.Origin) bool { return len(o) > 15 && o[:15] == "the checkpoint " }

func (c *predictCommand) predict(cmd *cobra.Command, job *ringo.Job) (err error) {
	cfg := c.training()
	cfg.Checkpoint.Dir = c.checkpoint
	p, err := train.NewPredictor(cmd.Context(), job, cfg.Model, cfg)
	if err != nil {
		return err
	}
	defer func() { err = p.End(err) }()
	if job.Rank() != 0 {
		return c.find(cmd, job, p, cfg, io.Discard)
	}
	if c.out == "" {
		return c.find(cmd, job, p, cfg, cmd.OutOrStdout())
	}
	return dirlock.WriteFile(c.out, func(w io.Writer) error { return c.find(cmd, job, p, cfg, w) })
}

// find writes the predictions; messages go to stderr. On rank 0 a file appears when all ranks have
// finished, and none appears if a rank fails.
func (c *predictCommand) find(cmd *cobra.Command, job *ringo.Job, p *train.Predictor, cfg train.Config, out io.Writer) error {
	if c.prompted {
		return predict.Write(p, c.text, out, func(words []string) {
			fmt.Fprintf(cmd.ErrOrStderr(), "the model does not know %s of the prompt: %s\n", cli.Counted(len(words), "word"), strings.Join(words, ", "))
		})
	}
	in, err := data.OpenInput(p.Description(), data.InputConfig{
		Path: cfg.Data, Stdin: cmd.InOrStdin(), Batch: cfg.Batch, Rank: job.Rank(), Size: job.Size(), Threads: cfg.Threads, SkipBad: cfg.SkipBad, Schema: cfg.Schema, Columns: c.output.Columns, Seed: cfg.Seed,
	})
	if err != nil {
		return err
	}
	defer in.Close()
	how := c.output
	progress := cli.Progress{Style: c.progress, To: cmd.ErrOrStderr(), Unit: "rows", Columns: cli.Columns(cmd.ErrOrStderr())}
	if job.Rank() == 0 {
		file, _ := p.Checkpoint()
		how.Progress = func(rows int64) { progress.Update(fmt.Sprintf("%s by %s", cfg.Data, file), rows, -1) }
		how.Progress(0)
	}
	_, err = predict.Run(p, job.Rank(), in, out, how)
	if err != nil {
		progress.Style = "none" // no final count after an error
	}
	progress.Finish()
	if err != nil {
		return err
	}
	unseen, err := unseenOfAll(p, in.Unseen())
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(unseen)) {
		if job.Rank() == 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "column %q: in %s a value that training has not seen, which is treated as a missing one\n", name, cli.Counted(unseen[name], "row"))
		}
	}
	left, err := leftOfAll(p, in.LeftOut(), cfg.SkipBad)
	for _, l := range left {
		if job.Rank() == 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), l)
		}
	}
	return err
}

// gathered returns the values of all ranks by rank. In errors, the format what, with %d for the
// rank, describes a value. It is a collective call.
func gathered[T any](p *train.Predictor, own T, what string) ([]T, error) {
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	all, err := p.Gather(text)
	out := make([]T, len(all))
	for rank, text := range all {
		if err := json.Unmarshal(text, &out[rank]); err != nil {
			return nil, fmt.Errorf(what+": %w", rank, err)
		}
	}
	return out, err
}

// unseenOfAll sums own over all ranks: the number of rows, by column, with a word that the training
// data lack. It is a collective call.
func unseenOfAll(p *train.Predictor, own map[string]int) (map[string]int, error) {
	all, err := gathered(p, own, "the unseen values of rank %d")
	sum := map[string]int{}
	for _, other := range all {
		for name, n := range other {
			sum[name] += n
		}
	}
	return sum, err
}

// leftOfAll merges the samples that the ranks' inputs leave out, without duplicates, and returns an
// error if bad samples exceed limit. It is a collective call.
func leftOfAll(p *train.Predictor, own []data.LeftOut, limit int) (left []data.LeftOut, err error) {
	all, err := gathered(p, own, "what rank %d leaves out")
	if err != nil {
		return nil, err
	}
	for _, o := range slices.Concat(all...) {
		i := slices.IndexFunc(left, func(l data.LeftOut) bool { return l.Kind == o.Kind })
		if i < 0 {
			left = append(left, o)
			continue
		}
		l := &left[i]
		known := len(l.Names)
		l.Names = append(l.Names, o.Names...)
		slices.Sort(l.Names)
		l.Names = slices.Compact(l.Names)
		l.Count += len(l.Names) - known
	}
	for _, l := range left {
		if l.Kind != data.BadSample {
			continue
		}
		if slices.Sort(l.Names); l.Count > limit {
			return left, setting.Errorf("data.max-bad-records", "%d: the ranks have skipped %d", limit, l.Count)
		}
	}
	return left, nil
}
