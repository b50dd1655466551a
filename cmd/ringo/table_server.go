package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cluster"
	"github.com/ringo-ml/ringo/launch"
	"github.com/ringo-ml/ringo/ps/server"
	"github.com/ringo-ml/ringo/ps/store"
	"github.com/ringo-ml/ringo/ps/tables"
	"github.com/ringo-ml/ringo/transport"
)

// serveTables is `ringo server` where servers keep the parameters. A launcher is told of its fault, and tells it.
func (c *serverRole) serveTables(cmd *cobra.Command) error {
	env, launched, err := launch.TableFromEnv(os.LookupEnv)
	if err != nil || !launched {
		return c.keepTables(cmd) // which tells of the fault
	}
	defer env.ShowLife(c.heartbeat)()
	err = c.keepTables(cmd)
	if err != nil && cmd.Context().Err() == nil && env.Tell(cluster.EndOf(-1, err)) {
		return toldError{err}
	}
	return err
}

// toldError is an error that the launcher tells.
type toldError struct{ error }

// Unwrap returns the error.
func (e toldError) Unwrap() error { return e.error }

// keepTables is serveTables in either case.
func (c *serverRole) keepTables(cmd *cobra.Command) error {
	cfg, err := c.tableConfig()
	if err != nil {
		return err
	}
	c.ps.keep.apply(&cfg)
	c.ps.hold()
	if err = c.ps.keep.listen(&cfg); err != nil {
		return errors.Join(err, cfg.Listener.Close())
	}
	cfg.Report = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "ringo:", line) }
	name := fmt.Sprintf("parameter server %d of %d", cfg.Index, cfg.Servers)
	fmt.Fprintf(cmd.ErrOrStderr(), "%s is up at %s, for %s, %s\n", name, cfg.Listener.Addr(), counted(cfg.Trainers, "trainer"), cfg.Mode)
	if cfg.Admin != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s answers at http://%s: GET /health, /stats; POST /save, /shrink\n", name, cfg.Admin.Addr())
		if cfg.AdminToken != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s takes orders: curl -X POST -H \"Authorization: Bearer $%s\" http://%s/save\n", name, launch.OrdersVar, cfg.Admin.Addr())
		}
	}
	figures, err := server.Run(cmd.Context(), cfg)
	end := "is done"
	if err != nil && cmd.Context().Err() != nil && errors.Is(err, context.Cause(cmd.Context())) {
		end = "was told to end"
		if all, ok := err.(interface{ Unwrap() []error }); ok { // the command says only that it was interrupted
			for _, e := range all.Unwrap()[1:] {
				cfg.Report(e.Error())
			}
		}
	} else if err != nil {
		return err
	}
	rows := int64(0)
	for _, t := range figures.Tables.Tables {
		rows += t.Rows + t.StoredRows
	}
	saved := ""
	if n := figures.Tables.Saved; n > 0 {
		saved = fmt.Sprintf(", its newest checkpoint is number %d", n)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s %s: %s, %s pulled, %s pushed, %s received, %s sent%s\n", name, end, counted(int(rows), "row"),
		grouped(int(figures.RowsPulled)), grouped(int(figures.RowsPushed)), mebibytes(figures.BytesRead), mebibytes(figures.BytesWritten), saved)
	return err
}

// tableConfig is what flags and the launcher say.
func (c *serverRole) tableConfig() (server.Config, error) {
	cfg := server.Config{
		Verbose: c.ps.verbose, Version: ringo.Version, Mode: tables.Mode(c.ps.consistency()), Staleness: c.ps.staleness, Sessions: c.ps.threads, Durability: tables.Durability(c.ps.durability),
		Fsync: c.ps.fsync, Dir: c.ps.dir,
		MemoryBytes: int64(c.ps.memory), DiskBytes: int64(c.ps.disk), Store: store.Kind(c.ps.store), Job: c.ps.whole.job, FromStep: uint64(c.ps.whole.step),
	}
	for _, n := range c.ps.whole.numbers {
		cfg.FromNumbers = append(cfg.FromNumbers, uint64(n))
	}
	env, launched, err := launch.TableFromEnv(os.LookupEnv)
	c.losing(&cfg, launched)
	if err != nil {
		return cfg, err
	}
	if launched {
		cfg.Index, cfg.Servers, cfg.Trainers, cfg.Ticket = env.Index, len(env.Addrs), env.WorldSize, env.Ticket
		socket := os.NewFile(uintptr(env.Socket), "socket")
		if cfg.Listener, err = net.FileListener(socket); err != nil {
			return cfg, fmt.Errorf("the socket that the launcher gave: %w", err)
		}
		return cfg, socket.Close()
	}
	text, _ := os.LookupEnv(launch.TicketVar)
	if cfg.Ticket, err = transport.ParseTicket(text); err != nil {
		return cfg, fmt.Errorf("%s: %w", launch.TicketVar, err)
	}
	cfg.Index, cfg.Servers, cfg.Trainers = c.index, len(c.ps.addrs), c.np
	if cfg.Listener, err = net.Listen("tcp", c.ps.addrs[c.index]); err != nil {
		return cfg, fmt.Errorf("parameter server %d cannot listen at its place in --ps-addrs: %w", c.index, err)
	}
	return cfg, nil
}

// checkTables reports faults of the flags of a server that keeps parameters.
func (c *serverRole) checkTables(cmd *cobra.Command, faults *faultList) {
	env, launched, _ := launch.TableFromEnv(os.LookupEnv)
	for _, name := range []string{"index", "np", "ps-addrs"} {
		if launched && cmd.Flags().Changed(name) {
			faults.add("--%s, but %s is set too: a launcher has already placed this process", name, launch.TableVar)
		}
	}
	for _, name := range append([]string{"rendezvous", "servers", "transport"}, networkFlagNames...) {
		if cmd.Flags().Changed(name) {
			faults.add("--%s has no effect with --ps-mode %s: its trainers connect to --ps-addrs", name, c.ps.mode)
		}
	}
	c.ps.keep.check(c.ps.durability, c.ps.dir, max(c.index, env.Index), faults)
	checkBeat(c.heartbeat, faults)
	if launched {
		return
	}
	if c.np < 1 || c.np > maxRanks {
		faults.add("--np %d: want the number of workers, 1 to %d", c.np, maxRanks)
	}
	if len(c.ps.addrs) == 0 {
		faults.add("a server that keeps parameters needs --ps-addrs HOST:PORT,…: where all of them listen")
	} else if c.index < 0 || c.index >= len(c.ps.addrs) {
		faults.add("--index %d: want a server from 0 to %d, as there are addresses", c.index, len(c.ps.addrs)-1)
	}
}
