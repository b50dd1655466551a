package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/dashboard"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/server"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/transport"
)

// serveTables is `ringo server` for a parameter server. A launcher prints the error of a launched
// server.
func (c *serverRole) serveTables(cmd *cobra.Command) error {
	if !c.launched {
		return c.keepByHand(cmd)
	}
	defer c.place.SendHeartbeats(c.Times.Heartbeat)()
	cfg, err := c.tableConfig(cmd)
	if err == nil {
		cfg.Record = c.place.Recorder()
		withdraw := c.publish(cmd)
		err = c.keepTables(cmd, cfg)
		withdraw()
	}
	if err != nil && cmd.Context().Err() == nil && c.place.ReportExit(cluster.EndOf(-1, err)) {
		return reportedError{err}
	}
	return err
}

// publish lets `ringo serve --live` find the servers of a job with a checkpoint folder.
func (c *serverRole) publish(cmd *cobra.Command) (withdraw func()) {
	if c.start == nil || c.place.Index != 0 {
		return func() {}
	}
	withdraw, err := job.LiveServers{Addresses: c.place.Addrs, Ticket: c.place.Ticket.String()}.Publish(c.start.Dir)
	if err != nil {
		tells(cmd)(fmt.Sprintf("ringo serve --live cannot find these servers: %v", err))
	}
	return withdraw
}

// reportedError is an error that the launcher prints.
type reportedError struct{ error }

func (e reportedError) Unwrap() error { return e.error }

// keepByHand is serveTables without a launcher: a record file remains if the server is killed or
// fails.
func (c *serverRole) keepByHand(cmd *cobra.Command) error {
	folder, err := c.blackBox()
	if err != nil {
		return err
	}
	cfg, err := c.tableConfig(cmd)
	if err != nil {
		return err
	}
	left := launch.NewRecordFiles(folder, cfg.Ticket)
	cfg.Record = left.Recorder(record.Identity{Role: record.ParameterServer, Number: cfg.Index})
	if err = c.keepTables(cmd, cfg); err != nil && cmd.Context().Err() == nil {
		return left.WithRecords(err)
	}
	left.Remove(cfg.Record)
	return err
}

func (c *serverRole) keepTables(cmd *cobra.Command, cfg server.Config) error {
	c.hold()
	var err error
	if err = c.answerPeople(&cfg); err != nil {
		return errors.Join(err, cfg.Listener.Close())
	}
	cfg.Report = tells(cmd)
	name := fmt.Sprintf("parameter server %d of %d", cfg.Index, cfg.Servers)
	c.role(cmd, "%s is up at %s, for %s, %s", name, cfg.Listener.Addr(), cli.Counted(cfg.Trainers, "trainer"), cfg.Mode)
	if cfg.Admin != nil && cfg.Admin.Addr().Network() != "unix" {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s answers at http://%s: GET /healthz, /stats, /metrics; POST /save, /shrink\n", name, cfg.Admin.Addr())
		if cfg.AdminToken != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s takes orders: curl -X POST -H \"Authorization: Bearer $%s\" http://%s/save\n", name, launch.AdminTokenVar, cfg.Admin.Addr())
		}
	}
	figures, err := server.Run(cmd.Context(), cfg)
	end := "is done"
	if err != nil && cmd.Context().Err() != nil && errors.Is(err, context.Cause(cmd.Context())) {
		end = "was told to end"
		if all, ok := err.(interface{ Unwrap() []error }); ok { // the command prints only the interruption
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
	c.role(cmd, "%s %s: %s, %s pulled, %s pushed, %s received, %s sent%s", name, end, cli.Counted(int(rows), "row"),
		cli.Grouped(int(figures.RowsPulled)), cli.Grouped(int(figures.RowsPushed)), bytesOf(figures.BytesRead), bytesOf(figures.BytesWritten), saved)
	return err
}

func (c *serverRole) tableConfig(cmd *cobra.Command) (server.Config, error) {
	index := c.index
	if c.launched {
		index = c.place.Index
	}
	cfg := c.Server(c.table, index, c.launched)
	cfg.TLS = c.Network.TLS
	if s := c.start; s != nil {
		cfg.Dir, cfg.Job, cfg.From, cfg.FromStep, cfg.FromNumbers = s.Dir, s.Name, s.From, uint64(s.Step), s.Parts
	}
	var err error
	if c.launched {
		cfg.Ticket = c.place.Ticket
		socket := os.NewFile(uintptr(c.place.Socket), "socket")
		if cfg.Listener, err = net.FileListener(socket); err != nil {
			return cfg, fmt.Errorf("the socket that the launcher gave: %w", err)
		}
		return cfg, socket.Close()
	}
	if cfg.Ticket, err = c.ticket(); err != nil {
		return cfg, err
	}
	if cfg.Listener, err = cluster.Listen(cmd.Context(), c.Servers.Addresses[index], c.Times.Join, tells(cmd)); err != nil {
		return cfg, setting.Errorf("ps.addresses", "has the place of parameter server %d, where it cannot listen: %w", index, err)
	}
	return cfg, nil
}

// ticket returns the job's secret for processes that ringo does not start, from --ticket-file,
// RINGO_TICKET or RINGO_TICKET_FILE.
func (g *commandSettings) ticket() (transport.Ticket, error) {
	text, _ := os.LookupEnv(launch.TicketVar)
	file, _ := os.LookupEnv(launch.TicketFileVar)
	switch {
	case g.TicketFile != "":
		return rendezvous.Ticket(g.TicketFile)
	case text != "" && file != "":
		return nil, fmt.Errorf("%s and %s are both set: want one of them", launch.TicketVar, launch.TicketFileVar)
	case file != "":
		return rendezvous.Ticket(file)
	}
	ticket, err := transport.ParseTicket(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", launch.TicketVar, err)
	}
	return ticket, nil
}

// answerPeople opens the server's HTTP address, if set.
func (c *serverRole) answerPeople(cfg *server.Config) error {
	var err error
	if cfg.AdminToken, err = launch.AdminTokenFromEnv(os.LookupEnv); err != nil || cfg.HTTP == "" {
		return err
	}
	if address, _ := os.LookupEnv(pageVar); c.launched && address != "" { // the launcher of this host forwards
		cfg.Admin, err = dashboard.ListenAs(address, "server", cfg.Index)
		return err
	}
	return cfg.ListenHTTP()
}
