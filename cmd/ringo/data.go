package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/data"
)

func newData() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "data",
		Short: "Fetch and verify data sets",
		Args:  onlySubcommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDataMNIST())
	return cmd
}

func newDataMNIST() *cobra.Command {
	var f data.Fetcher
	progress := "auto"
	cmd := &cobra.Command{
		Use:     "mnist --out DIR",
		Short:   "Fetch MNIST (12 MB), resuming and verifying",
		Example: "  ringo data mnist --out mnist\n  ringo train mnist --data mnist --np 2",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.Dir == "" {
				return usagef("`ringo data mnist` needs --out DIR, the folder for the files")
			}
			if err := f.Validate(); err != nil {
				return usageError{err}
			}
			style, err := progressStyle(progress, cmd.ErrOrStderr())
			if err != nil {
				return usageError{err}
			}
			return fetch(cmd.Context(), &f, style, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&f.Dir, "out", "", "`DIR` for the files (required)")
	cmd.Flags().StringSliceVar(&f.Mirrors, "mirror", nil, "`URL` of a folder to fetch from instead of the known mirrors; repeatable")
	cmd.Flags().StringVar(&progress, "progress", progress, "progress `style`: auto, bar, plain or none")
	return cmd
}

// fetch brings the files and says what is there.
func fetch(ctx context.Context, f *data.Fetcher, style string, stdout, stderr io.Writer) error {
	p := &fetchProgress{style: style, out: stderr}
	f.Progress = p.update
	err := f.Fetch(ctx)
	p.finish()
	if errors.Is(err, data.ErrOffline) {
		return fmt.Errorf("%w; alternatives: copy the four files into %s by hand (plain or gzipped), name another --mirror, or train with `--data synthetic`, which needs no file", err, f.Dir)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "MNIST is complete in %s; train with `ringo train mnist --data %s`\n", f.Dir, f.Dir)
	return nil
}

// fetchProgress shows one file at a time.
type fetchProgress struct {
	style   string
	out     io.Writer
	file    string
	bar     *progressbar.ProgressBar
	printed time.Time
	done    int64
}

func (p *fetchProgress) update(file string, done, total int64) {
	if file != p.file {
		p.finish()
		p.file, p.printed = file, time.Now()
		if p.style == "bar" {
			p.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(p.out), progressbar.OptionSetDescription(file),
				progressbar.OptionShowBytes(true), progressbar.OptionSetWidth(24), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetPredictTime(true))
		}
	}
	p.done = done
	switch {
	case p.bar != nil:
		_ = p.bar.Set64(done) // a terminal that cannot be written to stops nothing
	case p.style == "plain" && time.Since(p.printed) >= plainEvery:
		p.printed = time.Now()
		fmt.Fprintf(p.out, "%s: %d of %d bytes\n", file, done, total)
	}
}

// finish ends the file's progress.
func (p *fetchProgress) finish() {
	switch {
	case p.bar != nil:
		_ = p.bar.Exit()
		fmt.Fprintln(p.out)
		p.bar = nil
	case p.style == "plain" && p.file != "":
		fmt.Fprintf(p.out, "%s: %d bytes\n", p.file, p.done)
	}
	p.file = ""
}
