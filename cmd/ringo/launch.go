package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo/launch"
)

// guardCommand is the hidden command that outlives a killed launcher and ends
// its workers.
const guardCommand = "guard-workers"

func newGuard() *cobra.Command {
	return &cobra.Command{
		Use:    guardCommand,
		Hidden: true,
		Args:   noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return launch.Guard(cmd.InOrStdin())
		},
	}
}

// commandLine is the command line again, for the workers: its path, its words and
// the flags that were given.
func commandLine(cmd *cobra.Command, args []string) []string {
	var path []string
	for c := cmd; c.HasParent(); c = c.Parent() {
		path = append([]string{c.Name()}, path...)
	}
	return append(append(path, args...), givenFlags(cmd, func(name string) bool { return name != "job" && name != "set" })...) // what these gave is in the flags
}

// givenFlags are the flags that were given and that some other command takes too.
func givenFlags(cmd *cobra.Command, takes func(name string) bool) (out []string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !takes(f.Name) {
			return
		}
		out = append(out, "--"+f.Name+"="+flagText(f))
	})
	return out
}

// flagText is a flag's value as it is written on a command line.
func flagText(f *pflag.Flag) string {
	if s, ok := f.Value.(pflag.SliceValue); ok {
		return strings.Join(s.GetSlice(), ",")
	}
	return f.Value.String()
}
