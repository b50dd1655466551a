package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cluster"
	"github.com/ringo-ml/ringo/cluster/meeting"
	"github.com/ringo-ml/ringo/heter"
	"github.com/ringo-ml/ringo/heter/service"
	"github.com/ringo-ml/ringo/job"
	"github.com/ringo-ml/ringo/launch"
	"github.com/ringo-ml/ringo/setting"
	"github.com/ringo-ml/ringo/train"
)

// heterCommand is the command of a job's heter-trainers, which launchers start.
const heterCommand = "heter"

// heterRole is `ringo heter`.
type heterRole struct {
	given
	index    int
	place    launch.RoleEnv
	launched bool // a launcher has given it its place
}

func newHeter() *cobra.Command {
	c := new(heterRole)
	cmd := &cobra.Command{
		Use:   heterCommand + " --index I",
		Short: "Be a heter-trainer of a job, which computes a model's dense layers",
		Long: "Be a heter-trainer of a job: it computes the dense layers of a model for trainers, and has their\n" +
			"parameters with --sync bsp, else trainers lend it those. Launchers start heter-trainers by\n" +
			"themselves (--heter of ringo train); one that is started by hand needs --index, the trainers'\n" +
			"model, number and settings, where all heter-trainers listen (--set heter.addresses), and the\n" +
			"ticket in RINGO_TICKET; or the job file of the ranks. It ends when all trainers have left.",
		Example: "  ringo heter --index 0 --set model=ctr-dnn --np 4 --set heter.addresses=host2:6000,host3:6000\n" +
			"  ringo heter --index 1 --job job.yaml",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.execute(cmd) },
	}
	c.register(cmd.Flags(), func(setting.Path) bool { return true })
	c.ranks = false // other launchers start ranks
	hideBut(cmd.Flags(), "job", "heter", "network", "output.verbose")
	cmd.Flags().IntVar(&c.index, "index", -1, "which `heter-trainer` this is, from 0")
	return cmd
}

func (c *heterRole) execute(cmd *cobra.Command) (err error) {
	if c.place, c.launched, err = launch.RoleFromEnv(os.LookupEnv, launch.Heter); err != nil {
		return usageError{err}
	}
	if err := errors.Join(c.check(cmd)...); err != nil {
		return usageError{err}
	}
	listener, err := c.listen()
	if err != nil {
		return err
	}
	defer listener.Close()
	if !c.launched {
		return c.serve(cmd, listener)
	}
	defer c.place.ShowLife(c.Times.Heartbeat)()
	if err = c.serve(cmd, listener); err != nil && cmd.Context().Err() == nil && c.place.Tell(cluster.EndOf(-1, err)) {
		return toldError{err}
	}
	return err
}

// check makes the job of what is given and reports every fault.
func (c *heterRole) check(cmd *cobra.Command) []error {
	var faults faultList
	if faults.addAll(c.resolve(cmd, "")); c.Spec == nil {
		return faults
	}
	if c.launched {
		if cmd.Flags().Changed("index") {
			faults.add("--index %d, but a launcher has already placed this process: leave it out", c.index)
		}
		return faults
	}
	faults.addAll(c.faults(c.byHand()))
	faults.addAll(c.faults(c.ValidateProcesses()))
	return faults
}

// byHand reports what a heter-trainer lacks that is started by hand.
func (c *heterRole) byHand() error {
	switch n := len(c.HeterAddresses); {
	case !c.isGiven("job.ranks"):
		return setting.Faultf("job.ranks", "is missing: a heter-trainer waits for so many trainers")
	case n == 0:
		return setting.Faultf("heter.addresses", "is missing: where all heter-trainers listen, HOST:PORT,HOST:PORT,...; this one at its own place")
	case c.Train.Model.Name == "":
		return setting.Faultf("model", "is missing: a heter-trainer has the dense layers of the trainers' model: --set model=NAME, or the job file of the ranks")
	case !c.Sync.Kept():
		return setting.Faultf("sync", "%s: heter-trainers need servers that keep parameters: say what those are told (%s)", c.Sync, strings.Join(train.Consistencies(), ", "))
	case c.index < 0 || c.index >= n:
		return fmt.Errorf("--index %d: want a heter-trainer from 0 to %d, as there are %d", c.index, n-1, n)
	}
	return nil
}

// listen returns the socket of a heter-trainer, and completes the place of one that was started by hand.
func (c *heterRole) listen() (net.Listener, error) {
	if c.launched {
		socket := os.NewFile(uintptr(c.place.Socket), "socket")
		listener, err := net.FileListener(socket)
		if err != nil {
			return nil, fmt.Errorf("the socket that the launcher gave: %w", err)
		}
		return listener, socket.Close()
	}
	ticket, err := c.ticket()
	if err != nil {
		return nil, err
	}
	c.place = launch.RoleEnv{Role: launch.Heter, Index: c.index, Addrs: c.HeterAddresses, WorldSize: c.Ranks, Ticket: ticket}
	listener, err := net.Listen("tcp", c.HeterAddresses[c.index])
	if err != nil {
		return nil, setting.Faultf("heter.addresses", "has the place of heter-trainer %d, where it cannot listen: %w", c.index, err)
	}
	return listener, nil
}

// serve is a heter-trainer's life.
func (c *heterRole) serve(cmd *cobra.Command, listener net.Listener) error {
	training := c.Training(0)
	withThreads(training.Threads + 1)
	cfg := service.Config{
		Ticket: c.place.Ticket.Under(c.Network.TLS), Version: ringo.Version, Index: c.place.Index, Count: len(c.place.Addrs), Trainers: c.place.WorldSize * max(1, training.Servers.Threads), Times: c.Times,
		Lent: c.Sync != job.BSP, GoesOn: c.GoesOn(),
		Open:   func(about []byte) (*heter.Cut, heter.Device, error) { return c.open(cmd, training, about) },
		Report: func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "ringo:", line) }, LinkOnly: c.Transport == ringo.TransportTCP,
	}
	if cfg.Count > 1 && !cfg.Lent {
		cfg.Addrs = c.place.Addrs
		cfg.Meet = func(ctx context.Context, m service.Meeting) (service.Group, error) {
			return c.meet(ctx, m, interfaceOf(listener.Addr()))
		}
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
	fmt.Fprintf(cmd.ErrOrStderr(), "%s is done: %s, %s of %s, busy %s, starved %s, agreed and updated %s, %s received, %s sent, %s in shared memory\n", name,
		counted(int(f.Steps), "step"), counted(int(f.Micros), "micro-batch"), counted(int(f.Samples), "sample"),
		rounded(f.Busy), rounded(f.Starved), rounded(f.Agreed), mebibytes(f.Read), mebibytes(f.Written), mebibytes(f.Shared))
	return nil
}

// open makes the part, and the first heter-trainer tells what crosses.
func (c *heterRole) open(cmd *cobra.Command, training train.Config, about []byte) (*heter.Cut, heter.Device, error) {
	cut, device, err := train.OpenPart(training, about)
	if err == nil && c.place.Index == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), cut)
		if c.Sync != job.BSP {
			fmt.Fprintf(cmd.ErrOrStderr(), "  its parameters lie on servers (sync %s): %s there for a step of each trainer, as float32, and their gradients back\n", c.Sync, mebibytes(4*int64(cut.Values)))
		}
	}
	return cut, device, err
}

func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// meet forms a job of some heter-trainers alone, which agree on gradients, over a network interface. The first of them says at its own port
// where it listens for the others.
func (c *heterRole) meet(ctx context.Context, m service.Meeting, over string) (service.Group, error) {
	ticket := c.place.Ticket.String()
	cfg := ringo.Config{
		Size: len(m.Members), Rank: slices.Index(m.Members, c.place.Index), Times: c.Times, Collective: c.Collective, Network: c.Network, Bind: launch.BindNone,
		Rendezvous: fmt.Sprintf("/heter-trainer-%d", m.Members[0]), OpenPlace: func(string) (meeting.Place, error) { return m.Place, nil },
		Lookup: func(name string) (string, bool) {
			if name == launch.TicketVar {
				return ticket, true
			}
			return "", false
		},
	}
	cfg.Network.Interface = cmp.Or(cfg.Network.Interface, over)
	j, err := ringo.Join(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("heter-trainer %d, meeting %v: %w", c.place.Index, m.Members, err)
	}
	return service.Over(j.Group(), j.Close), nil
}

// interfaceOf names the network interface that has an address: trainers reach this process by it, and so do other heter-trainers. "": none.
func interfaceOf(addr net.Addr) string {
	mine, ok := addr.(*net.TCPAddr)
	all, err := net.Interfaces()
	if !ok || err != nil {
		return ""
	}
	for _, one := range all {
		addrs, _ := one.Addrs() // of one that has just gone there are none
		if slices.ContainsFunc(addrs, func(a net.Addr) bool { n, is := a.(*net.IPNet); return is && n.IP.Equal(mine.IP) }) {
			return one.Name
		}
	}
	return ""
}
