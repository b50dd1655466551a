// Package datacmd is `ringo data`: download and verification of data sets, and generation of rows.
package datacmd

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/data/download"
	"github.com/ringo-ml/ringo/internal/data/images"
)

// Command is `ringo data`.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "data",
		Short: "Download, verify or generate a data set",
		Long: `Download, verify or generate a data set.

A published set is downloaded into a folder for ` + "`ringo train --data`" + `. An interrupted
download continues, and a file gets its name only after its content is verified. Every model
also trains on synthetic data (` + "`--data synthetic`" + `), and on your own files in these formats:

  images    train/CLASS/NAME.jpg and test/CLASS/… (or val/…; .png too), or a .tar.gz of these
            folders; rotated by their EXIF orientation, up to 67 million pixels each
  text      plain text with train and test (or dev, valid, eval) in the files' names
  criteo    label, 13 integers and 26 hexadecimal categories per line, separated by tabs`,
	}
	for _, s := range published() {
		var below *cobra.Command
		switch s.name {
		case "criteo":
			below = criteo(s)
		case "cifar10":
			below = cifar(s)
		default:
			below, _ = s.command()
		}
		cmd.AddCommand(below)
	}
	cmd.AddCommand(clicksCommand())
	return cli.Group(cmd)
}

// set is a published data set: its name, a model for the set, and its fetcher.
type set struct {
	name, title, short, model string
	download.Fetcher
}

// published returns the sets in the order of the help.
func published() []set {
	all := []set{
		{name: "mnist", title: "MNIST", short: "Download and verify MNIST (12 MB)", model: "mnist"},
		{name: "cifar10", title: "CIFAR-10", short: "Download and verify CIFAR-10, binary format (170 MB)", model: "cifar-resnet20"},
		{name: "text", title: "WikiText-2", short: "Download and verify WikiText-2 (13 MB)", model: "lstm"},
		{name: "criteo", title: "Criteo's sample", short: "Download Criteo's sample (9 MB), or generate rows like it", model: "ctr-dnn"},
	}
	for i := range all {
		all[i].Fetcher, _ = download.Published(all[i].name) // a test checks all names
	}
	return all
}

// command returns the command that downloads the set. progress creates the progress display, which
// callers may also use for other work, in another unit.
func (s set) command() (cmd *cobra.Command, progress func() (*cli.Progress, error)) {
	cmd = &cobra.Command{
		Use:     s.name + " --out DIR",
		Short:   s.short,
		Example: fmt.Sprintf("  ringo data %s --out %s\n  ringo train %s --data %s --np 2", s.name, s.name, s.model, s.name),
		Args:    cli.NoArguments,
	}
	cmd.Flags().StringVar(&s.Dir, "out", "", "`DIR` for the files (required)")
	cmd.Flags().StringSliceVar(&s.Mirrors, "mirror", s.Mirrors, "`URL` of a folder to fetch from instead of the known mirrors; repeatable")
	cmd.Flags().Lookup("mirror").DefValue = "[]" // the addresses would fill the help
	progress = cli.ProgressFlag(cmd, "bytes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if s.Dir == "" {
			return cli.Usagef("`ringo data %s` needs --out DIR, the folder for the files", s.name)
		}
		if err := s.Validate(); err != nil {
			return cli.Usage(err)
		}
		p, err := progress()
		if err != nil {
			return err
		}
		return s.fetch(cmd, p)
	}
	return cmd, progress
}

func (s *set) fetch(cmd *cobra.Command, p *cli.Progress) error {
	s.Progress = p.Update
	err := s.Fetch(cmd.Context())
	p.Finish()
	if errors.Is(err, download.ErrOffline) {
		return fmt.Errorf("%w, or name another --mirror", err)
	}
	if err == nil && s.name == "criteo" {
		err = download.UnpackCriteo(s.Dir)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is complete in %s; train with `ringo train %s --data %s`\n", s.title, s.Dir, s.model, s.Dir)
	return nil
}

// cifar returns the command that downloads or converts the set.
func cifar(s set) *cobra.Command {
	cmd, _ := s.command()
	from, skipBad := "", 0
	cmd.Flags().StringVar(&from, "from", "", "do not fetch: write the images of this folder or archive (`PATH`) in the binary form, same pixels, classes in turns")
	cmd.Flags().IntVar(&skipBad, "skip-bad", 0, "with --from: leave out up to `N` bad images, and count them")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch out := cmd.Flag("out").Value.String(); {
		case from == "" && skipBad != 0:
			return cli.Usagef("--skip-bad belongs to --from PATH")
		case from == "":
			return run(cmd, args)
		case cmd.Flags().Changed("mirror"):
			return cli.Usagef("--mirror is for fetching; --from fetches nothing")
		case out == "":
			return cli.Usagef("--from needs --out DIR, the folder for the files")
		default:
			return convert(cmd, from, out, skipBad)
		}
	}
	return cmd
}

func convert(cmd *cobra.Command, from, out string, skipBad int) error {
	left, err := images.ConvertCIFAR(from, out, runtime.GOMAXPROCS(0), skipBad)
	if err != nil {
		return err
	}
	for _, l := range left {
		fmt.Fprintln(cmd.OutOrStdout(), l)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "the images of %s are in %s in CIFAR-10's binary form\n", from, out)
	return nil
}
