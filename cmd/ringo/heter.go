package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cluster"
	"github.com/ringo-ml/ringo/heter"
	"github.com/ringo-ml/ringo/heter/service"
	"github.com/ringo-ml/ringo/launch"
	"github.com/ringo-ml/ringo/setting"
	"github.com/ringo-ml/ringo/train"
)

// heterCommand is the command of a job's heter-trainers, which launchers start.
const heterCommand = "heter"

// heterRole is `ringo heter`.
type heterRole struct {
	given
	place launch.RoleEnv
}

func newHeter() *cobra.Command {
	c := new(heterRole)
	cmd := &cobra.Command{
		Use:    heterCommand,
		Short:  "Be a heter-trainer of a job, which its launcher starts",
		Args:   noArguments,
		Hidden: true,
		RunE:   func(cmd *cobra.Command, _ []string) error { return c.execute(cmd) },
	}
	c.register(cmd.Flags(), func(setting.Path) bool { return true })
	c.ranks = false // other launchers start ranks
	return cmd
}

func (c *heterRole) execute(cmd *cobra.Command) (err error) {
	var launched bool
	if c.place, launched, err = launch.RoleFromEnv(os.LookupEnv, launch.Heter); err != nil || !launched {
		return errors.Join(err, usagef("`%s` is what `ringo train MODEL --servers 1 --sync bsp --heter 1` starts", cmd.CommandPath()))
	}
	if err := c.resolve(cmd, ""); err != nil {
		return err
	}
	defer c.place.ShowLife(c.Times.Heartbeat)()
	if err = c.serve(cmd); err != nil && cmd.Context().Err() == nil && c.place.Tell(cluster.EndOf(-1, err)) {
		return toldError{err}
	}
	return err
}

// serve is a heter-trainer's life.
func (c *heterRole) serve(cmd *cobra.Command) error {
	socket := os.NewFile(uintptr(c.place.Socket), "socket")
	listener, err := net.FileListener(socket)
	if err != nil {
		return fmt.Errorf("the socket that the launcher gave: %w", err)
	}
	defer listener.Close()
	if err := socket.Close(); err != nil {
		return err
	}
	training := c.Training(0)
	withThreads(training.Threads + 1)
	cfg := service.Config{
		Ticket: c.place.Ticket.Under(c.Network.TLS), Version: ringo.Version, Index: c.place.Index, Count: len(c.place.Addrs), Trainers: c.place.WorldSize, Times: c.Times,
		Open:   func(about []byte) (*heter.Cut, heter.Device, error) { return c.open(cmd, training, about) },
		Report: func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "ringo:", line) },
	}
	if cfg.Count > 1 {
		cfg.Meet = c.meet
	}
	s, err := service.New(cfg)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("heter-trainer %d of %d", cfg.Index, cfg.Count)
	fmt.Fprintf(cmd.ErrOrStderr(), "%s is up at %s, for %s, on %s\n", name, listener.Addr(), counted(cfg.Trainers, "trainer"), counted(training.Threads, "thread"))
	f, err := s.Serve(cmd.Context(), listener)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s is done: %s, %s of %s, busy %s, starved %s, agreed and updated %s, %s received, %s sent\n", name,
		counted(int(f.Steps), "step"), counted(int(f.Micros), "micro-batch"), counted(int(f.Samples), "sample"),
		rounded(f.Busy), rounded(f.Starved), rounded(f.Agreed), mebibytes(f.Read), mebibytes(f.Written))
	return nil
}

// open makes the part, and the first heter-trainer tells what crosses.
func (c *heterRole) open(cmd *cobra.Command, training train.Config, about []byte) (*heter.Cut, heter.Device, error) {
	cut, device, err := train.OpenPart(training, about)
	if err == nil && c.place.Index == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), cut)
	}
	return cut, device, err
}

func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// meet forms a job of some heter-trainers alone, which agree on gradients. They find each other by a file that only who has the job's
// ticket can name.
func (c *heterRole) meet(ctx context.Context, m service.Meeting) (service.Group, error) {
	ticket := c.place.Ticket.String()
	name := sha256.Sum256(fmt.Append(nil, ticket, c.place.Addrs, m))
	cfg := ringo.Config{
		Size: len(m.Members), Rank: slices.Index(m.Members, c.place.Index), Times: c.Times, Collective: c.Collective, Network: c.Network, Bind: launch.BindNone,
		Rendezvous: filepath.Join(os.TempDir(), fmt.Sprintf("ringo-heter-%x", name[:8])),
		Lookup: func(name string) (string, bool) {
			if name == launch.TicketVar {
				return ticket, true
			}
			return "", false
		},
	}
	j, err := ringo.Join(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("heter-trainer %d, meeting %v: %w", c.place.Index, m.Members, err)
	}
	return service.Over(j.Group(), j.Close), nil
}
