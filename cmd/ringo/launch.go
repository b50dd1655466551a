package main

import (
	"fmt"
	"os"
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
	np, servers, join, over := 1, 0, time.Minute, ""
	cmd := &cobra.Command{
		Use:   "run --np N -- PROGRAM ARGS…",
		Short: "Start any program that uses the library as N workers of one job",

		DisableFlagsInUseLine: true, // "[flags]" would follow the program's
		Long: "Start any program that uses the library as N workers of one job. Each finds its\n" +
			"place in RINGO_RANK, RINGO_WORLD_SIZE, RINGO_LOCAL_RANK, RINGO_RENDEZVOUS and\nRINGO_TICKET, which ringo.Join reads. With --servers there are as many `ringo server`\n" +
			"beside them; ringo.Job's Reducer sums gradients there.",
		Example: "  ringo run --np 2 -- ./my-trainer --epochs 3\n" +
			"  ringo run --np 4 --servers 2 -- ./my-trainer",
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
			if servers < 0 || servers > maxRanks {
				return usagef("--servers %d: want 0 to %d", servers, maxRanks)
			}
			if join <= 0 {
				return usagef("--join-timeout %v: want a positive time, such as 30s", join)
			}
			if !oneOf(over, "", ringo.TransportSHM, ringo.TransportTCP) {
				return usagef("--transport %q is not known: use shm or tcp", over)
			}
			cfg := launch.Config{N: np, Command: args, Servers: servers, JoinTimeout: join}
			if servers > 0 {
				self, err := os.Executable()
				if err != nil {
					return fmt.Errorf("cannot find this program's own file, which is its servers: %w", err)
				}
				cfg.ServerCommand = append([]string{self, serverCommand}, givenFlags(cmd, serverFlags)...)
			}
			if over != "" {
				cfg.Env = []string{launch.TransportVar + "=" + over}
			}
			return launchProgram(cmd, cfg)
		},
	}
	cmd.Flags().IntVar(&np, "np", 1, "number of `ranks` (workers)")
	cmd.Flags().IntVar(&servers, "servers", 0, "number of servers beside them")
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
	return append(append(path, args...), givenFlags(cmd, func(string) bool { return true })...)
}

// givenFlags are the flags that were given and that some other command takes too.
func givenFlags(cmd *cobra.Command, takes func(name string) bool) (out []string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !takes(f.Name) {
			return
		}
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
