// Package mangen generates shell completion and man pages from the commands.
package mangen

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo/internal/cli"
)

func scripts(root *cobra.Command) map[string]func(to io.Writer) error {
	return map[string]func(io.Writer) error{
		"bash": func(to io.Writer) error { return bash(root, to) },
		"zsh":  root.GenZshCompletion,
		"fish": func(to io.Writer) error { return root.GenFishCompletion(to, true) },
	}
}

// Completion is `ringo completion SHELL`.
func Completion() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a shell completion script",
		Example: "  source <(ringo completion bash)\n" +
			"  ringo completion bash > /etc/bash_completion.d/ringo\n" +
			"  ringo completion zsh > \"${fpath[1]}/_ringo\"\n" +
			"  ringo completion fish > ~/.config/fish/completions/ringo.fish",
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || scripts(cmd.Root())[args[0]] == nil {
				return cli.Usagef("`%s` wants the name of a shell, bash, zsh or fish, got %q", cmd.CommandPath(), args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return scripts(cmd.Root())[args[0]](cmd.OutOrStdout()) },
	}
}

// Words is implemented by flag values with a fixed set of words.
type Words interface{ Words() []string }

// Complete sets the completion of arguments and flags of every command below root by their names in
// help: folders for DIR, files for FILE and PATH, the given words for names such as MODEL, and the
// words of values with Words. All else, such as numbers, completes to no words.
func Complete(root *cobra.Command, words map[string][]string) {
	for _, cmd := range all(root) {
		switch {
		case cmd.Name() == "help":
			cmd.ValidArgsFunction = commands
		case cmd.ValidArgsFunction == nil && cmd.ValidArgs == nil && !cmd.HasSubCommands():
			cmd.ValidArgsFunction = arguments(cmd, words)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			name, _ := pflag.UnquoteUsage(f)
			offer := offers(name, words)
			if v, ok := f.Value.(Words); ok && len(v.Words()) > 0 {
				offer = cobra.FixedCompletions(v.Words(), cobra.ShellCompDirectiveNoFileComp)
			}
			_ = cmd.RegisterFlagCompletionFunc(f.Name, offer) // an error where it has one, which stays
		})
	}
}

// arguments completes the arguments: the first capitals in the usage, repeated before dots.
func arguments(cmd *cobra.Command, words map[string][]string) cobra.CompletionFunc {
	if strings.Contains(cmd.Use, " -- ") { // command line of a program
		return cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	}
	takes := ""
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if strings.Contains(word, "-") { // flag with a value
			break
		}
		if word == strings.ToUpper(word) {
			takes = word
			break
		}
	}
	name, several := strings.CutSuffix(takes, "...")
	offer := offers(name, words)
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !several {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return offer(cmd, args, begun)
	}
}

// commands completes the subcommands of the command named by the previous words.
func commands(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	if of, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
		for _, sub := range of.Commands() {
			if sub.IsAvailableCommand() {
				names = append(names, sub.Name()+"\t"+sub.Short)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func offers(name string, words map[string][]string) cobra.CompletionFunc {
	switch {
	case words[name] != nil:
		return cobra.FixedCompletions(words[name], cobra.ShellCompDirectiveNoFileComp)
	case name == "DIR":
		return cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	case name == "FILE" || name == "PATH":
		return cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	}
	return cobra.NoFileCompletions
}

// all returns a command and its visible subcommands.
func all(cmd *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			out = append(out, all(sub)...)
		}
	}
	return out
}

func path(cmd *cobra.Command, between string) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", between)
}
