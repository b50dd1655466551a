package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo/internal/spelling"
)

// usual are the flags that most people use, with what they are for in so few words that a line holds them.
var usual = [][2]string{
	{"data DIR", "the data set's folder or archive, or \"synthetic\""},
	{"np N", "number of ranks (workers)"},
	{"epochs N", "how often the training set is seen"},
	{"batch N", "samples per rank and step"},
	{"lr X", "learning rate"},
	{"optimizer NAME", "sgd, adagrad, adam, adamw, ftrl"},
	{"strategy NAME", "what ranks exchange: fp32, fp16, topk, dlgs, auto, …"},
	{"mode ps", "gradients go to --servers N, which may keep parameters"},
	{"checkpoint DIR", "save the run there; --resume goes on"},
	{"json FILE", "write a line of JSON per epoch; - is stdout"},
	{"job FILE", "read settings from a YAML file; --set PATH=VALUE gives one"},
	{"rank N", "start one rank by hand, with --rendezvous HOST:PORT"},
}

// shortHelp is the help of train that fits a terminal of 24 lines of 80 columns.
func shortHelp(to io.Writer) {
	var b strings.Builder
	b.WriteString("Train a model on N workers: here with one command, or rank by rank on any hosts.\n\n" +
		"  ringo train mnist --data synthetic --np 2 --epochs 3\n" +
		"  ringo train cifar-resnet20 --data synthetic --np 2 --strategy auto\n" +
		"  ringo train mnist --data DIR --np 4 --checkpoint RUN --resume\n" +
		"  ringo train ctr-dnn --data DIR --np 2 --mode ps --servers 2 --ps-mode async\n\n")
	for _, f := range usual {
		fmt.Fprintf(&b, "  --%-15s %s\n", f[0], f[1])
	}
	b.WriteString("\nMore: `ringo help train models`, `ringo help train all`, or of one group:\n")
	var names []string
	for _, g := range trainGroups() {
		names = append(names, g.name)
	}
	b.WriteString(inLines(names) + "\n")
	fmt.Fprint(to, b.String())
}

// trainTopics are the words that may stand behind `ringo help train`.
func trainTopics() []string {
	topics := []string{"models", "all"}
	for _, g := range trainGroups() {
		topics = append(topics, g.name)
	}
	return topics
}

// helpOnTrain is `ringo help train TOPIC`; none is the short help.
func helpOnTrain(cmd *cobra.Command, topic string) error {
	to := cmd.OutOrStdout()
	switch topic {
	case "":
		shortHelp(to)
		return nil
	case "models":
		_, err := fmt.Fprint(to, "Models, with what each trains on and its usual settings:\n\n"+modelList())
		return err
	}
	found := false
	for _, g := range trainGroups() {
		if topic != "all" && topic != g.name {
			continue
		}
		if found {
			fmt.Fprintln(to)
		}
		found = true
		groupHelp(cmd, g)
	}
	if !found {
		return usagef("%q is no topic of `ringo help train`%s; there are %s", topic, spelling.Hint(topic, trainTopics()...), strings.Join(trainTopics(), ", "))
	}
	return nil
}

// groupHelp lists the flags of a group.
func groupHelp(cmd *cobra.Command, g group) {
	to := cmd.OutOrStdout()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SortFlags = false
	for _, r := range g.rows {
		if f := cmd.Flags().Lookup(r.flag); f != nil {
			fs.AddFlag(f)
		}
	}
	fmt.Fprintf(to, "%s: %s\n\n%s", g.name, g.about, fs.FlagUsagesWrapped(helpColumns(to)))
	fmt.Fprintf(to, "\nIn job files they stand below `%s:`, by the names of their flags", g.name)
	var others []string
	for _, r := range g.rows {
		if r.name != r.flag {
			others = append(others, r.name+" (--"+r.flag+")")
		}
	}
	if len(others) > 0 {
		fmt.Fprintf(to, ", but\n%s", inLines(others))
	}
	fmt.Fprintln(to, ".")
}

// newHelp is `ringo help`, with topics of train.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND] [TOPIC]",
		Short: "Help on a command; on the groups of settings of train",
		RunE: func(cmd *cobra.Command, words []string) error {
			of, rest, err := cmd.Root().Find(words)
			if err != nil || of == nil || of == cmd.Root() && len(rest) > 0 {
				return onlySubcommands(cmd.Root(), words)
			}
			if of.Name() == "train" {
				return helpOnTrain(of, strings.Join(rest, " "))
			}
			if len(rest) > 0 {
				return usagef("`ringo help %s` has no topics, got %q", strings.TrimPrefix(of.CommandPath(), "ringo "), rest)
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
}
