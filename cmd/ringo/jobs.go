package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/job/jobfile"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/spelling"
	"github.com/ringo-ml/ringo/train"
)

func newJobs() *cobra.Command {
	return &cobra.Command{
		Use:   "jobs [NAME]",
		Short: "List the built-in job files, or print one",
		Long: "List the built-in job files, or print one: to run it, or as the start of your own.\n" +
			"`ringo help train all` lists all settings.",
		Example: "  ringo train --job mnist-ps\n  ringo jobs ctr-geo > job.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			out := cmd.OutOrStdout()
			if len(names) == 0 {
				for _, name := range job.Presets() {
					text, _ := job.Preset(name)
					about, _, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
					fmt.Fprintf(out, "%-12s %s\n", name, about)
				}
				return nil
			}
			text, known := job.Preset(names[0])
			if !known {
				return cli.Usagef("%q is no job that comes with ringo%s; there are %s", names[0], spelling.Hint(names[0], job.Presets()...), strings.Join(job.Presets(), ", "))
			}
			_, err := fmt.Fprint(out, text)
			return err
		},
	}
}

// writeJob writes the job's resolved settings to the file of --write-job, if given: see
// job.Spec.Resolved.
func (g *commandSettings) writeJob(path string, chosen ...setting.Assignment) error {
	if path == "" {
		return nil
	}
	err := dirlock.WriteFile(path, func(w io.Writer) error {
		return jobfile.Write(w, g.asSaid(g.Resolved(g.table, chosen...))...)
	})
	if err != nil {
		err = fmt.Errorf("--write-job: %w", err)
	}
	return err
}

// chosen returns the settings that a run has chosen by measurements, and settings that disable the
// measurements. With several seeds or folds, each run still measures and chooses for itself.
func (c *trainCommand) chosen(job *ringo.Job, s train.Summary) []setting.Assignment {
	rules, _ := job.Group().Rules().MarshalText() // never fails
	made, _ := s.Choices.MarshalText()
	var scaled []setting.Assignment
	if s.LR > 0 {
		scaled = []setting.Assignment{{Path: "training.lr", Text: strconv.FormatFloat(s.LR, 'g', -1, 64)}, {Path: "training.warmup", Text: s.Warmup.String()}}
	}
	if c.Seeds > 1 || c.Folds > 0 {
		return scaled
	}
	return append(scaled, []setting.Assignment{
		{Path: "tuning.choices", Text: string(made)}, {Path: "tuning.algorithms", Text: string(rules)}, {Path: "tuning.tune", Text: "false"}, {Path: "tuning.profile"},
	}...)
}
