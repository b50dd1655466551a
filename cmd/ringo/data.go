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
	cmd.AddCommand(newDataMNIST(data.Fetcher{}))
	return cmd
}

// newDataMNIST returns the command; f says what to fetch, if not MNIST itself.
func newDataMNIST(f data.Fetcher) *cobra.Command {
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
	p.columns, _ = terminalOf(stdout, stderr)
	f.Progress = p.update
	err := f.Fetch(ctx)
	p.finish()
	if errors.Is(err, data.ErrOffline) {
		return fmt.Errorf("%w, or name another --mirror", err)
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
	columns int // of the terminal, 0 when not known
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
			const numbers = 47 // "  34% || (9.9/9.9 MB, 12.3 MB/s) [12m0s:12m0s]"
			p.bar = newBar(p.out, p.columns, len(file)+numbers, total,
				progressbar.OptionSetDescription(file), progressbar.OptionShowCount(), progressbar.OptionShowBytes(true))
		}
	}
	p.done = done
	switch {
	case p.bar != nil:
		_ = p.bar.Set64(done) // a terminal that cannot be written to stops nothing
	case p.style == "plain" && time.Since(p.printed) >= plainEvery:
		p.printed = time.Now()
		fmt.Fprintf(p.out, "%s: %s of %s bytes\n", file, grouped(int(done)), grouped(int(total)))
	}
}

// finish ends the file's progress with a line that stays.
func (p *fetchProgress) finish() {
	endBar(p.bar)
	if p.style != "none" && p.file != "" {
		fmt.Fprintf(p.out, "%s: %s bytes\n", p.file, grouped(int(p.done)))
	}
	p.bar, p.file = nil, ""
}
