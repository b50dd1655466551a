package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/setting"
)

// serverCommand is the command that launchers start as a server.
const serverCommand = "server"

func bytesOf(n int64) string { return cli.Bytes(float64(n)) }

// serverRole is `ringo server`.
type serverRole struct {
	commandSettings
	index    int
	place    launch.RoleEnv // assignment of a launched parameter server
	launched bool           // place is set
}

func newServer() *cobra.Command { return new(serverRole).command() }

func (c *serverRole) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   serverCommand + " --index I",
		Short: "Run a parameter server or an aggregation server of a job",
		Long: "Run a server of a job: a parameter server (--sync bsp, ssp, async or geo), or an\n" +
			"aggregation server, which sums gradients (--sync aggregate). A launcher starts servers\n" +
			"automatically: see --servers of `ringo train`. A server started by hand needs the ticket\n" +
			"(--ticket-file) and either the job file of the ranks, or --index, --np and --sync, with\n" +
			"--ps-addresses for a parameter server, or --servers and --rendezvous for an aggregation\n" +
			"server. It ends when all ranks have left.",
		Example: "  ringo server --index 0 --servers 2 --np 4 --rendezvous host0:4000\n" +
			"  ringo server --index 0 --np 4 --sync async --ps-addresses host0:5000,host1:5000\n" +
			"  ringo server --index 0 --job job.yaml",
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.carried(func() error { return c.execute(cmd) }) },
	}
	c.register(cmd.Flags(), setting.Server)
	cmd.Flags().IntVar(&c.index, "index", -1, "which `server` this is, from 0")
	return cmd
}

func (c *serverRole) execute(cmd *cobra.Command) error {
	if err := errors.Join(c.check(cmd)...); err != nil {
		return cli.Usage(err)
	}
	c.shortenSlices()
	if c.Sync.UsesParameterServers() {
		return c.serveTables(cmd)
	}
	cfg := c.Run(c.table)
	if cfg.Settings = c.SharedSettings(c.table, false); !c.worker {
		cfg.Size, cfg.Rank, cfg.Rendezvous, cfg.TicketFile = c.Ranks, c.index, c.Rendezvous, c.TicketFile
		var err error
		if cfg.BlackBox, err = c.blackBox(); err != nil {
			return err
		}
	}
	place := ringo.Serving{Index: max(0, c.index)}
	figures, err := ringo.Serve(cmd.Context(), cfg, func(s ringo.Serving) {
		place = s
		c.role(cmd, "server %d of %d is up (rank %d), for %s", s.Index, s.Servers, s.Rank, cli.Counted(s.Trainers, "trainer"))
	})
	if err != nil {
		return err
	}
	c.role(cmd, "server %d of %d is done: %s, %s received, %s sent", place.Index, place.Servers,
		cli.Counted(int(figures.Exchanges), "exchange"), bytesOf(figures.Received), bytesOf(figures.Sent))
	return nil
}

// check resolves the settings and reports every error.
func (c *serverRole) check(cmd *cobra.Command) []error {
	var faults cli.Faults
	if cmd.Flags().Changed("index") { // all servers are started by hand
		c.remote.below = fmt.Sprintf("server-%d/", c.index)
	}
	if faults.Error(c.resolve(cmd, "")); c.Spec == nil {
		return faults
	}
	var err error
	if c.place, c.launched, err = launch.TableFromEnv(os.LookupEnv); err != nil {
		return []error{err}
	}
	placed := c.worker || c.launched
	if c.Sync == job.AllReduce && !c.isGiven("sync") {
		c.Sync, c.Servers.Count = job.Aggregate, max(1, c.Servers.Count)
	} else if c.Sync == job.AllReduce {
		faults.Add("--sync %s has no servers: want aggregate, bsp, ssp, async or geo", c.Sync)
	}
	faults.If(c.Sync == job.Aggregate && cmd.Flags().Changed("http"),
		"--http has no effect on an aggregation server: the ranks of its host serve its metrics")
	if c.Transport == job.TransportMem {
		faults.Error(c.faults(setting.Errorf("job.transport", "mem runs all ranks in one process, without servers")))
	}
	faults.If(placed && cmd.Flags().Changed("index"),
		"--index %d, but a launcher has already placed this process: leave it out", c.index)
	if c.launched {
		c.Servers.Count, c.Ranks = len(c.place.Addrs), c.place.WorldSize
	} else if c.Sync.UsesParameterServers() {
		c.Servers.Count = len(c.Servers.Addresses)
	}
	if !placed {
		faults.Error(c.faults(c.byHand()))
	}
	faults.Error(c.faults(errors.Join(c.ValidateProcesses(), c.awayFault())))
	return faults
}

// byHand reports settings that a server started by hand lacks.
func (c *serverRole) byHand() error {
	switch n := c.Servers.Count; {
	case !c.isGiven("job.ranks"):
		return setting.Errorf("job.ranks", "is missing: a server needs the number of ranks")
	case c.Sync.UsesParameterServers() && n == 0:
		return setting.Errorf("ps.addresses", "is missing: where all servers listen, HOST:PORT,HOST:PORT,...; this one at its own place")
	case !c.Sync.UsesParameterServers() && c.Rendezvous == "":
		return setting.Errorf("job.rendezvous", "is missing: a server needs the address where rank 0 listens")
	case c.Sync.UsesParameterServers() && c.Train.Start.From != "" && c.Train.Model.Name == "":
		return setting.Errorf("training.init-from", "%s: a server needs the model for the names of the tables: --set model=NAME, or the job file of the ranks", c.Train.Start.From)
	case c.index < 0 || c.index >= n:
		return fmt.Errorf("--index %d: want 0 to %d, the job has %d servers", c.index, n-1, n)
	}
	return nil
}
