package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/data"
)

func newData() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "data",
		Short: "Fetch and verify data sets, or make one",
		Long: `Fetch and verify data sets, or make one.

A set is fetched from where it is published into a folder that ` + "`ringo train --data`" + `
reads. What an interrupted fetch left is resumed; the content is verified
before a file gets its name. Every model also trains on synthetic data made by
the program (` + "`--data synthetic`" + `), and on your own files in the same formats:

  images    train/CLASS/NAME.jpg and test/CLASS/… (or val/…; .png too), or a .tar.gz of that;
            turned as their EXIF data say, up to 67 million pixels each
  text      plain text with train and test (or dev, valid, eval) in the files' names
  criteo    label, 13 integers and 26 hexadecimal categories per line, separated by tabs`,
		Args: onlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, set := range publishedSets() {
		f, _ := data.Published(set.name)
		switch set.name {
		case "criteo":
			cmd.AddCommand(newDataCriteo(f))
		case "cifar10":
			cmd.AddCommand(newDataCIFAR(f))
		default:
			cmd.AddCommand(newDataSet(set, f))
		}
	}
	return cmd
}

// publishedSet is how a data set is called on the command line.
type publishedSet struct{ name, title, short, model string }

func publishedSets() []publishedSet {
	return []publishedSet{
		{"mnist", "MNIST", "Fetch MNIST (12 MB), resuming and verifying", "mnist"},
		{"cifar10", "CIFAR-10", "Fetch CIFAR-10 in its binary form (170 MB), resuming and verifying", "cifar-resnet20"},
		{"text", "WikiText-2", "Fetch WikiText-2 (13 MB), resuming and verifying", "lstm"},
		{"criteo", "Criteo's sample", "Fetch Criteo's sample (9 MB), or make rows like one", "ctr-dnn"},
	}
}

func setNamed(name string) publishedSet {
	all := publishedSets()
	return all[slices.IndexFunc(all, func(s publishedSet) bool { return s.name == name })]
}

// newDataSet returns the command that fetches a set; f says what.
func newDataSet(set publishedSet, f data.Fetcher) *cobra.Command {
	progress := "auto"
	cmd := &cobra.Command{
		Use:     set.name + " --out DIR",
		Short:   set.short,
		Example: fmt.Sprintf("  ringo data %s --out %s\n  ringo train %s --data %s --np 2", set.name, set.name, set.model, set.name),
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runFetch(cmd, set, &f, progress)
		},
	}
	fetchFlags(cmd, &f, &progress)
	return cmd
}

// newDataCIFAR is newDataSet that also converts.
func newDataCIFAR(f data.Fetcher) *cobra.Command {
	cmd := newDataSet(setNamed("cifar10"), f)
	from, skipBad := "", 0
	cmd.Flags().StringVar(&from, "from", "", "do not fetch: write the images of this folder or archive (`PATH`) in the binary form, same pixels, classes in turns")
	cmd.Flags().IntVar(&skipBad, "skip-bad", 0, "with --from: leave out up to `N` bad images, and count them")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if from == "" && skipBad != 0 {
			return usagef("--skip-bad belongs to --from PATH")
		}
		if from == "" {
			return run(cmd, args)
		}
		if cmd.Flags().Changed("mirror") {
			return usagef("--mirror is for fetching; --from fetches nothing")
		}
		out := cmd.Flag("out").Value.String()
		if out == "" {
			return usagef("--from needs --out DIR, the folder for the files")
		}
		skipped, err := data.ConvertCIFAR(from, out, runtime.GOMAXPROCS(0), skipBad)
		if err != nil {
			return err
		}
		if skipped > 0 {
			fmt.Fprintf(cmd.OutOrStdout(), "left out %s (--skip-bad)\n", counted(skipped, "bad image"))
		}
		fmt.Fprintf(cmd.OutOrStdout(), "the images of %s are in %s in CIFAR-10's binary form\n", from, out)
		return nil
	}
	return cmd
}

func fetchFlags(cmd *cobra.Command, f *data.Fetcher, progress *string) {
	cmd.Flags().StringVar(&f.Dir, "out", "", "`DIR` for the files (required)")
	cmd.Flags().Var(&mirrorList{&f.Mirrors, false}, "mirror", "`URL` of a folder to fetch from instead of the known mirrors; repeatable")
	cmd.Flags().StringVar(progress, "progress", *progress, "progress `style`: auto, bar, plain or none")
}

// mirrorList is a flag whose first value replaces what was there.
type mirrorList struct {
	urls  *[]string
	given bool
}

func (m *mirrorList) String() string { return "" }
func (m *mirrorList) Type() string   { return "strings" }

func (m *mirrorList) Set(value string) error {
	if !m.given {
		*m.urls, m.given = nil, true
	}
	*m.urls = append(*m.urls, strings.Split(value, ",")...)
	return nil
}

func runFetch(cmd *cobra.Command, set publishedSet, f *data.Fetcher, progress string) error {
	if f.Dir == "" {
		return usagef("`ringo data %s` needs --out DIR, the folder for the files", set.name)
	}
	if err := f.Validate(); err != nil {
		return usageError{err}
	}
	style, err := progressStyle(progress, cmd.ErrOrStderr())
	if err != nil {
		return usageError{err}
	}
	return fetch(cmd.Context(), set, f, style, cmd.OutOrStdout(), cmd.ErrOrStderr())
}

// fetch brings the files and says what is there.
func fetch(ctx context.Context, set publishedSet, f *data.Fetcher, style string, stdout, stderr io.Writer) error {
	p := &fetchProgress{style: style, out: stderr, unit: "bytes"}
	p.columns, _ = terminalOf(stdout, stderr)
	f.Progress = p.update
	err := f.Fetch(ctx)
	p.finish()
	if errors.Is(err, data.ErrOffline) {
		return fmt.Errorf("%w, or name another --mirror", err)
	}
	if err == nil && set.name == "criteo" {
		err = data.UnpackCriteo(f.Dir)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s is complete in %s; train with `ringo train %s --data %s`\n", set.title, f.Dir, set.model, f.Dir)
	return nil
}

// fetchProgress shows one file at a time.
type fetchProgress struct {
	style   string
	out     io.Writer
	unit    string
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
				progressbar.OptionSetDescription(file), progressbar.OptionShowCount(), progressbar.OptionShowBytes(p.unit == "bytes"))
		}
	}
	p.done = done
	switch {
	case p.bar != nil:
		_ = p.bar.Set64(done) // a terminal that cannot be written to stops nothing
	case p.style == "plain" && time.Since(p.printed) >= plainEvery:
		p.printed = time.Now()
		of := ""
		if total >= 0 {
			of = " of " + grouped(int(total))
		}
		fmt.Fprintf(p.out, "%s: %s%s %s\n", file, grouped(int(done)), of, p.unit)
	}
}

// finish ends the file's progress with a line that stays.
func (p *fetchProgress) finish() {
	endBar(p.bar)
	if p.style != "none" && p.file != "" {
		fmt.Fprintf(p.out, "%s: %s %s\n", p.file, grouped(int(p.done)), p.unit)
	}
	p.bar, p.file = nil, ""
}
