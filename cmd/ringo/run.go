package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cluster"
	"github.com/ringo-ml/ringo/internal/spelling"
	"github.com/ringo-ml/ringo/launch"
)

// runRole is `ringo run`.
type runRole struct {
	np, servers                       int
	joinTimeout, heartbeat, deadAfter time.Duration
	transport                         string
	slice                             sliceFlag
	ps                                psFlags
}

func newRun() *cobra.Command {
	c := &runRole{}
	cmd := &cobra.Command{
		Use:   "run --np N -- PROGRAM ARGS…",
		Short: "Start any program that uses the library as N workers of one job",

		DisableFlagsInUseLine: true, // "[flags]" would follow the program's
		Long: "Start any program that uses the library as N workers of one job. Each finds its\n" +
			"place in RINGO_RANK, RINGO_WORLD_SIZE, RINGO_LOCAL_RANK, RINGO_RENDEZVOUS and\nRINGO_TICKET, which ringo.Join reads. With --servers there are as many `ringo server`\n" +
			"beside them, at which ringo.Job's Reducer sums gradients, or with --ps-mode sync,\nasync, geo or ssp its DialTables finds tables of parameters.",
		Example: "  ringo run --np 2 -- ./my-trainer --epochs 3\n" +
			"  ringo run --np 4 --servers 2 -- ./my-trainer\n" +
			"  ringo run --np 4 --servers 2 --ps-mode async -- ./my-tables",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("`ringo run` needs a program: ringo run --np N -- PROGRAM ARGS…")
			}
			return nil
		},
		RunE: c.execute,
	}
	fs, times := cmd.Flags(), cluster.Times{}.WithDefaults()
	fs.IntVar(&c.np, "np", 1, "number of `ranks` (workers)")
	fs.IntVar(&c.servers, "servers", 0, "number of servers beside them")
	fs.DurationVar(&c.joinTimeout, "join-timeout", times.Join, "how long ranks wait for each other at the start")
	fs.DurationVar(&c.heartbeat, "heartbeat", times.Heartbeat, "time between signs of life of servers that keep parameters, and of those connected to them")
	fs.DurationVar(&c.deadAfter, "dead-after", times.DeadAfter, "a server that keeps parameters is lost without a sign of life for so long, and with --ps-lost go-on a rank; at least twice --heartbeat")
	fs.StringVar(&c.transport, "transport", "", "how they talk, unless the program says: shm or tcp; sets "+launch.TransportVar)
	c.slice.register(fs)
	c.ps.registerTables(fs)
	c.ps.registerRestarts(fs)
	fs.SetInterspersed(false) // the program's flags are its own
	return cmd
}

func (c *runRole) execute(cmd *cobra.Command, program []string) error {
	if err := errors.Join(c.check(cmd)...); err != nil {
		return usageError{err}
	}
	if err := c.slice.apply(cmd, false); err != nil {
		return err
	}
	cfg := launch.Config{Roles: []launch.Role{launch.Ranks(c.np, program...)}, Times: cluster.Times{Join: c.joinTimeout}}
	if c.servers > 0 {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("cannot find this program's own file, which is its servers: %w", err)
		}
		server := []string{self, serverCommand}
		if c.ps.keeps() {
			c.ps.launched(&cfg, c.servers, append(server, givenFlags(cmd, c.ps.tableFlags)...))
			cfg.Roles[1].DeadAfter = c.deadAfter
		} else {
			cfg.Roles = append(cfg.Roles, launch.Aggregators(c.servers, append(server, givenFlags(cmd, serverFlags)...)...))
		}
	}
	if c.transport != "" {
		cfg.Env = []string{launch.TransportVar + "=" + c.transport}
	}
	return launchProgram(cmd, cfg)
}

// check reports every fault of the flags.
func (c *runRole) check(cmd *cobra.Command) []error {
	var faults faultList
	_, _, err := launch.FromEnv(os.LookupEnv)
	faults.addOther(cmd, err)
	if c.np < 1 || c.np > maxRanks {
		faults.add("--np %d: want 1 to %d", c.np, maxRanks)
	}
	if c.servers < 0 || c.servers > maxRanks {
		faults.add("--servers %d: want 0 to %d", c.servers, maxRanks)
	}
	if !oneOf(c.transport, "", ringo.TransportSHM, ringo.TransportTCP) {
		faults.add("--transport %q is not known%s: use shm or tcp", c.transport, spelling.Hint(c.transport, "shm", "tcp"))
	}
	times := jobFlags{timeout: 1, joinTimeout: c.joinTimeout, heartbeat: c.heartbeat, deadAfter: c.deadAfter, slice: c.slice}
	times.checkTimes(&faults)
	c.ps.check(cmd, modePS, &faults)
	if !c.ps.keeps() {
		for _, name := range []string{"heartbeat", "dead-after"} {
			if cmd.Flags().Changed(name) {
				faults.add("--%s has no effect without servers that keep parameters (--ps-mode): the program says when a rank is lost", name)
			}
		}
	}
	if !c.ps.keeps() {
		return faults
	}
	checkBeat(c.heartbeat, &faults)
	if c.servers == 0 {
		faults.add("--ps-mode %s needs servers that keep the parameters: say --servers", c.ps.mode)
	}
	if c.ps.goesOn() && c.transport != "" {
		faults.add("--transport %s is not for --ps-lost %s: ranks are connected to servers, and not to each other", c.transport, lostGoesOn)
	}
	c.ps.keep.check(c.ps.durability, c.ps.dir, c.servers-1, &faults)
	return faults
}
