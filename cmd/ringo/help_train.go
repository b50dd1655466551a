package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/spelling"
)

// defaults are the most common flags, with descriptions that fit a line.
var defaults = [][2]string{
	{"data DIR", "the data set's folder or archive, or \"synthetic\""},
	{"np N", "number of ranks"},
	{"epochs N", "number of passes over the training set"},
	{"batch N", "samples per rank and step"},
	{"lr X", "learning rate"},
	{"optimizer NAME", "sgd, adagrad, adam, adamw, ftrl"},
	{"strategy NAME", "gradient exchange: fp32, fp16, topk, dlgs, auto, …"},
	{"sync HOW", "allreduce; on --servers N: sum, bsp, ssp, async, geo"},
	{"checkpoint DIR", "save the run in DIR; --resume continues it"},
	{"json FILE", "write a line of JSON per epoch; - is stdout"},
	{"verbose", "print plans, kernels, connections and processes, too"},
	{"job FILE", "read settings from a YAML file; --set PATH=VALUE sets one"},
	{"rank N", "start one rank by hand, with --rendezvous HOST:PORT"},
}

// shortHelp prints the help of train for a terminal of 24 lines of 80 columns.
func shortHelp(to io.Writer) {
	var b strings.Builder
	b.WriteString("Train a model on N ranks: here with one command, or rank by rank on any hosts.\n\n" +
		"  ringo train mnist --data synthetic --np 2 --epochs 3\n" +
		"  ringo train cifar-resnet20 --data synthetic --np 2 --strategy auto\n" +
		"  ringo train mnist --data DIR --np 4 --checkpoint RUN --resume\n" +
		"  ringo train ctr-dnn --data DIR --np 2 --sync async --servers 2\n\n")
	for _, f := range defaults {
		fmt.Fprintf(&b, "  --%-15s %s\n", f[0], f[1])
	}
	b.WriteString("\nMore: `ringo help train models`, `ringo help train all`, or of one group:\n")
	fmt.Fprint(to, b.String()+cli.InLines(groupNames())+"\n")
}

func groupNames() (names []string) {
	for _, g := range job.Groups() {
		if g.Name != "" {
			names = append(names, g.Name)
		}
	}
	return names
}

func trainTopics() []string { return append([]string{"models", "all"}, groupNames()...) }

// helpOnTrain prints `ringo help train TOPIC`, or the short help without a topic.
func helpOnTrain(cmd *cobra.Command, topic string) error {
	to := cmd.OutOrStdout()
	switch topic {
	case "":
		shortHelp(to)
		return nil
	case "models":
		_, err := fmt.Fprint(to, "Models, with their data and default settings:\n\n"+modelList())
		return err
	}
	found := false
	for _, g := range job.Groups() {
		if topic != "all" && topic != g.Name {
			continue
		}
		if found {
			fmt.Fprintln(to)
		}
		found = true
		groupHelp(to, g)
	}
	if !found {
		return cli.Usagef("%q is no topic of `ringo help train`%s; there are %s", topic, spelling.Hint(topic, trainTopics()...), strings.Join(trainTopics(), ", "))
	}
	return nil
}

// groupHelp lists a group's flags, then the settings for --set and job files only.
func groupHelp(to io.Writer, g job.SettingGroup) {
	table := usualTable()
	flags, paths := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	var renamed []string
	for _, r := range table.Rows() {
		if job.GroupOf(r.Path) != g.Name {
			continue
		}
		f := &pflag.Flag{Name: r.Flag, Shorthand: letters[r.Flag], Usage: r.About, DefValue: table.Default(r.Path), Value: &settingFlag{row: r, text: table.Default(r.Path)}}
		if short := strings.TrimPrefix(string(r.Path), g.Name+"."); r.Flag != "" && r.Flag != short {
			renamed = append(renamed, short+" (--"+r.Flag+")")
		}
		if to := flags; r.Flag != "" {
			to.AddFlag(f)
			continue
		}
		f.Name = string(r.Path)
		paths.AddFlag(f)
	}
	flags.SortFlags, paths.SortFlags = false, false
	name := g.Name
	if name == "" {
		name = "job"
	}
	fmt.Fprintf(to, "%s: %s\n\n%s", name, g.About, flags.FlagUsagesWrapped(cli.HelpColumns(to)))
	if paths.HasFlags() {
		// Paths have no hyphens in front.
		usages := strings.ReplaceAll(paths.FlagUsagesWrapped(cli.HelpColumns(to)), "      --", "      ")
		fmt.Fprintf(to, "\nBy --set PATH=VALUE, or in a job file:\n\n%s", usages)
	}
	if g.Name != "" {
		fmt.Fprintf(to, "\nNames in job files, below `%s:`", g.Name)
		if len(renamed) > 0 {
			fmt.Fprintf(to, ", where these have other names than their flags:\n%s", cli.InLines(renamed))
		}
		fmt.Fprintln(to, ".")
	}
}

func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND] [TOPIC]",
		Short: "Show help for a command or a group of settings",
		RunE: func(cmd *cobra.Command, words []string) error {
			of, rest, err := cmd.Root().Find(words)
			if err != nil || of == nil || of == cmd.Root() && len(rest) > 0 {
				return cli.OnlySubcommands(cmd.Root(), words)
			}
			if of.Name() == "train" {
				return helpOnTrain(of, strings.Join(rest, " "))
			}
			if len(rest) > 0 {
				return cli.Usagef("`ringo help %s` has no topics, got %q", strings.TrimPrefix(of.CommandPath(), "ringo "), rest)
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
}
