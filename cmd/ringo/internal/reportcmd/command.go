package reportcmd

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/search"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/runlog"
)

type options struct {
	out, target string
}

// Command is `ringo report`.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "report RUN.jsonl...",
		Short: "Write an HTML report that compares runs",
		Long: "Write a self-contained HTML page that compares runs by their --json files: curves with the\n" +
			"spread over seeds, time to a target metric, parts of the step, bytes, different settings, and\n" +
			"the machine.",
		Example: "  ringo report run.jsonl\n  ringo report fp32.jsonl dlgs.jsonl --target accuracy=0.97 --out report.html",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("`%s` needs a file of --json, for instance `%[1]s run.jsonl`", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	cmd.Flags().StringVar(&o.out, "out", "report.html", "write the page to `FILE`")
	cmd.Flags().StringVar(&o.target, "target", "", "show the time until each run reached this `metric` of the evaluation, such as 0.97 or auc=0.75; default: the best value that all runs reach")
	return cmd
}

// run reads all files before writing: an error in the last file leaves the old page.
func (o options) run(cmd *cobra.Command, files []string) error {
	q, err := read(files)
	if err != nil {
		return err
	}
	if err := q.aim(o.target); err != nil {
		return cli.Usage(err)
	}
	if err := dirlock.WriteFile(o.out, q.answer().write); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "report of %s in %s\n", cli.Counted(q.count(), "run"), o.out)
	return err
}

func read(files []string) (q question, err error) {
	var all []*runlog.Run
	for _, path := range files {
		found, err := search.ReadRecords(path)
		if err != nil {
			return q, err
		}
		if found.Cut > 0 {
			q.notes = append(q.notes, fmt.Sprintf("%s: left out %s that ended too early", path, cli.Counted(found.Cut, "line")))
		}
		if found.Passed > 0 {
			q.notes = append(q.notes, fmt.Sprintf("%s: left out %s of steps that stand behind one of a later step", path, cli.Counted(found.Passed, "record")))
		}
		for _, r := range found.Runs() {
			if !r.Ended {
				q.notes = append(q.notes, fmt.Sprintf("%s: the run with seed %d has no summary: it goes on, or was ended", path, r.Info.Seed))
			}
		}
		all = append(all, found.Runs()...)
	}
	if len(all) == 0 {
		return q, fmt.Errorf("%s: no run: want what `ringo train --json FILE` writes", strings.Join(files, ", "))
	}
	q.groups = runlog.GroupsOf(all)
	q.metric, q.target = runlog.Metrics(q.groups)[0], math.NaN()
	return q, nil
}

// aim sets the runs' target: a value of the first metric, or name=value; % is for percentages.
func (q *question) aim(text string) error {
	if text == "" {
		q.target = runlog.Common(q.groups, q.metric)
		return nil
	}
	name, value, named := strings.Cut(text, "=")
	if !named {
		value = text
	} else if m, err := runlog.MetricNamed(q.groups, name); err != nil {
		return fmt.Errorf("--target %w", err)
	} else {
		q.metric = m
	}
	v, err := strconv.ParseFloat(strings.TrimSuffix(value, "%"), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Errorf("--target %q: want a figure such as 0.97, 97%% or auc=0.75", text)
	}
	if strings.HasSuffix(value, "%") {
		v /= 100
	}
	q.target, q.asked = v, true
	return nil
}
