package main

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/launch"
)

// guardCommand is the hidden command that outlives a killed launcher and ends
// its workers.
const guardCommand = "guard-workers"

func newRun() *cobra.Command {
	np, join, over := 1, time.Minute, ""
	cmd := &cobra.Command{
		Use:   "run --np N -- PROGRAM ARGS…",
		Short: "Start any program that uses the library as N workers of one job",

		DisableFlagsInUseLine: true, // "[flags]" would follow the program's
		Long: "Start any program that uses the library as N workers of one job. Each finds its\n" +
			"place in RINGO_RANK, RINGO_WORLD_SIZE, RINGO_LOCAL_RANK, RINGO_RENDEZVOUS and\nRINGO_TICKET, which ringo.Join reads.",
		Example: "  ringo run --np 2 -- ./my-trainer --epochs 3",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("`ringo run` needs a program: ringo run --np N -- PROGRAM ARGS…")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if np < 1 || np > maxRanks {
				return usagef("--np %d: want 1 to %d", np, maxRanks)
			}
			if join <= 0 {
				return usagef("--join-timeout %v: want a positive time, such as 30s", join)
			}
			if !oneOf(over, "", ringo.TransportSHM, ringo.TransportTCP) {
				return usagef("--transport %q is not known: use shm or tcp", over)
			}
			cfg := launch.Config{N: np, Command: args, JoinTimeout: join}
			if over != "" {
				cfg.Env = []string{launch.TransportVar + "=" + over}
			}
			return launchProgram(cmd, cfg)
		},
	}
	cmd.Flags().IntVar(&np, "np", 1, "number of `ranks` (workers)")
	cmd.Flags().DurationVar(&join, "join-timeout", join, "how long ranks wait for each other at the start")
	cmd.Flags().StringVar(&over, "transport", "", "how they talk, unless the program says: shm or tcp; sets "+launch.TransportVar)
	cmd.Flags().SetInterspersed(false) // the program's flags are its own
	return cmd
}

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
	out := append(path, args...)
	cmd.Flags().Visit(func(f *pflag.Flag) {
		value := f.Value.String()
		if s, ok := f.Value.(pflag.SliceValue); ok {
			value = ""
			for i, v := range s.GetSlice() {
				if i > 0 {
					value += ","
				}
				value += v
			}
		}
		out = append(out, "--"+f.Name+"="+value)
	})
	return out
}
