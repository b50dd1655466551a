package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/spelling"
	"github.com/ringo-ml/ringo/launch"
)

// serverCommand is the command of a job's servers, which launchers start.
const serverCommand = "server"

// serverFlags tells which flags of other commands a server takes over.
func serverFlags(name string) bool {
	return oneOf(name, append([]string{"transport", "timeout", "join-timeout", "heartbeat", "dead-after"}, networkFlagNames...)...)
}

// serverRole is `ringo server`.
type serverRole struct {
	jobFlags
	index int
}

func newServer() *cobra.Command {
	c := &serverRole{}
	cmd := &cobra.Command{
		Use:   serverCommand + " --index I",
		Short: "Be a server of a job, which sums gradients or keeps parameters",
		Long: "Be a server of a job (--mode ps), which sums gradients for its workers or, with\n" +
			"--ps-mode sync, async or ssp, keeps their parameters. Launchers start servers by\n" +
			"themselves; one that is started by hand needs --index, --np and the ticket in\n" +
			"RINGO_TICKET, and to sum --servers and --rendezvous, to keep --ps-addrs. It ends\n" +
			"when all workers have left.",
		Example: "  ringo server --index 0 --servers 2 --np 4 --rendezvous host0:4000\n" +
			"  ringo server --index 0 --np 4 --ps-mode async --ps-addrs host0:5000,host1:5000",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.execute(cmd) },
	}
	fs := cmd.Flags()
	c.registerMember(fs)
	fs.StringVar(&c.transport, "transport", "auto", "how the job's ranks talk: shm, tcp or auto, as they were told")
	fs.IntVar(&c.np, "np", 0, "number of `ranks` (workers)")
	fs.IntVar(&c.servers, "servers", 0, "number of servers")
	fs.IntVar(&c.index, "index", -1, "which `server` this is, from 0")
	c.ps.registerTables(fs)
	c.ps.whole.registerServer(fs)
	fs.StringSliceVar(&c.ps.addrs, "ps-addrs", nil, "`HOST:PORT,…` of all servers that keep parameters: this one listens at its own")
	return cmd
}

func (c *serverRole) execute(cmd *cobra.Command) error {
	if err := errors.Join(c.check(cmd)...); err != nil {
		return usageError{err}
	}
	if err := c.slice.apply(cmd, c.worker); err != nil {
		return err
	}
	if c.ps.keeps() {
		return c.serveTables(cmd)
	}
	cfg := c.job()
	if !c.worker {
		cfg.Size, cfg.Rank, cfg.Rendezvous = c.np, c.index, c.rendezvous
	}
	place := ringo.Serving{Index: max(0, c.index)}
	figures, err := ringo.Serve(cmd.Context(), cfg, func(s ringo.Serving) {
		place = s
		fmt.Fprintf(cmd.ErrOrStderr(), "server %d of %d is up (rank %d), for %s\n", s.Index, s.Servers, s.Rank, counted(s.Trainers, "trainer"))
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "server %d of %d is done: %s, %s received, %s sent\n", place.Index, place.Servers,
		counted(int(figures.Exchanges), "exchange"), mebibytes(figures.Received), mebibytes(figures.Sent))
	return nil
}

// check reports every fault of the flags.
func (c *serverRole) check(cmd *cobra.Command) []error {
	_, c.worker, _ = launch.FromEnv(os.LookupEnv)
	var faults faultList
	if !oneOf(c.transport, "auto", ringo.TransportSHM, ringo.TransportTCP) {
		faults.add("--transport %q is not known%s: use auto, shm or tcp", c.transport, spelling.Hint(c.transport, "auto", "shm", "tcp"))
	}
	c.checkTimes(&faults)
	c.ps.check(cmd, modePS, &faults)
	if c.ps.keeps() {
		c.checkTables(cmd, &faults)
		return faults
	}
	c.network.check(&faults, true, cmd.Flags().Changed)
	if c.worker {
		for _, name := range []string{"index", "np", "servers", "rendezvous"} {
			if cmd.Flags().Changed(name) {
				faults.add("--%s, but %s is set too: a launcher has already placed this process", name, launch.RankVar)
			}
		}
		return faults
	}
	if c.np < 1 || c.np > maxRanks {
		faults.add("--np %d: want the number of workers, 1 to %d", c.np, maxRanks)
	}
	c.summers = c.servers
	if c.servers < 1 || c.servers > maxRanks {
		faults.add("--servers %d: want the number of servers, 1 to %d", c.servers, maxRanks)
	} else if c.index < 0 || c.index >= c.servers {
		faults.add("--index %d: want a server from 0 to %d, since --servers is %d", c.index, c.servers-1, c.servers)
	}
	if c.rendezvous == "" {
		faults.add("a server needs --rendezvous HOST:PORT, the address where rank 0 listens")
	} else {
		c.checkRendezvous(&faults)
	}
	return faults
}
