package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/worker"
	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/train"
)

// heterCommand is the command that launchers start as a heter-trainer.
const heterCommand = "heter"

// heterRole is `ringo heter`, or a training command that a launcher has started as a heter-trainer.
type heterRole struct {
	commandSettings
	model    string // model on the command line; "" for none
	index    int
	launched bool // started by a launcher
}

func newHeter() *cobra.Command {
	c := new(heterRole)
	cmd := &cobra.Command{
		Use:   heterCommand + " --index I",
		Short: "Run a heter-trainer: compute a job's dense layers",
		Long: "Run a heter-trainer. It computes the dense layers of a model for the ranks (trainers) of a job,\n" +
			"and stores the parameters of these layers with --sync bsp; otherwise ranks send them.\n" +
			"A launcher starts heter-trainers automatically: see --heter of `ringo train`. One started by hand\n" +
			"needs the ticket (--ticket-file) and either the job file of the ranks, or --index, --np, the\n" +
			"model and settings of the ranks, and the addresses of all heter-trainers\n" +
			"(--set heter.addresses). It ends when all ranks have left.",
		Example: "  ringo heter --index 0 --set model=ctr-dnn --np 4 --set heter.addresses=host2:6000,host3:6000\n" +
			"  ringo heter --index 1 --job job.yaml",
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.execute(cmd) },
	}
	c.register(cmd.Flags(), setting.Heter)
	cmd.Flags().IntVar(&c.index, "index", -1, "which `heter-trainer` this is, from 0")
	return cmd
}

func (c *heterRole) execute(cmd *cobra.Command) (err error) {
	if c.launched, err = startedAsHeter(); err != nil {
		return cli.Usage(err)
	}
	if err := errors.Join(c.check(cmd)...); err != nil {
		return cli.Usage(err)
	}
	if usesTorch(c.Spec) {
		return c.becomeTorch()
	}
	cfg := ringo.Config{Times: c.Times, Network: c.Network, Collective: c.Collective, Transport: c.transport(), ServersOnly: c.ContinueOnLoss()}
	if !c.launched {
		cfg.HeterTrainer, cfg.Size, cfg.Rank, cfg.Heters, cfg.TicketFile = true, c.Ranks, c.index, c.HeterAddresses, c.TicketFile
	}
	return ringo.Run(cmd.Context(), cfg, func(me *ringo.Job) error { return c.serve(cmd, me) })
}

// transport returns tcp, or "" for memory shared with processes of this host.
func (c *heterRole) transport() string {
	if c.Transport == ringo.TransportTCP {
		return c.Transport
	}
	return ""
}

func startedAsHeter() (launched bool, err error) {
	_, launched, err = launch.RoleFromEnv(os.LookupEnv, launch.Heter)
	return launched, err
}

// check resolves the settings and reports every error.
func (c *heterRole) check(cmd *cobra.Command) []error {
	var faults cli.Faults
	if faults.Error(c.resolve(cmd, c.model)); c.Spec == nil {
		return faults
	}
	if c.launched {
		faults.If(cmd.Flags().Changed("index"),
			"--index %d, but a launcher has already placed this process: leave it out", c.index)
		return faults
	}
	faults.Error(c.faults(c.byHand()))
	faults.Error(c.faults(c.ValidateProcesses()))
	return faults
}

// byHand reports settings that a heter-trainer started by hand lacks.
func (c *heterRole) byHand() error {
	switch n := len(c.HeterAddresses); {
	case !c.isGiven("job.ranks"):
		return setting.Errorf("job.ranks", "is missing: a heter-trainer needs the number of trainers")
	case n == 0:
		return setting.Errorf("heter.addresses", "is missing: where all heter-trainers listen, HOST:PORT,HOST:PORT,...; this one at its own place")
	case c.Train.Model.Name == "":
		return setting.Errorf("model", "is missing: a heter-trainer has the dense layers of the trainers' model: --set model=NAME, or the job file of the ranks")
	case !c.Sync.UsesParameterServers():
		return setting.Errorf("sync", "%s: heter-trainers need parameter servers: use the same value as the servers (%s)", c.Sync, strings.Join(train.Consistencies(), ", "))
	case c.index < 0 || c.index >= n:
		return fmt.Errorf("--index %d: want 0 to %d, the job has %d heter-trainers", c.index, n-1, n)
	}
	return nil
}

func (c *heterRole) serve(cmd *cobra.Command, me *ringo.Job) error {
	training, place := c.Training(0), me.HeterTrainer()
	withThreads(training.Threads + 1)
	name := fmt.Sprintf("heter-trainer %d of %d", place.Index, len(place.Addrs))
	f, err := worker.Serve(cmd.Context(), me, worker.Config{
		Stateless: c.Sync != job.BSP, Sessions: training.Servers.Threads,
		Open: func(about []byte) (*heter.Cut, heter.Device, error) { return c.open(cmd, training, place.Index, about) },
		Up: func(addr net.Addr) {
			c.role(cmd, "%s is up at %s, for %s, on %s", name, addr, cli.Counted(place.Trainers*max(1, training.Servers.Threads), "trainer"), cli.Counted(training.Threads, "thread"))
		},
		Report: tells(cmd),
	})
	if err != nil {
		return err
	}
	c.role(cmd, "%s is done: %s, %s of %s, busy %s, starved %s, agreed and updated %s, %s received, %s sent, %s in shared memory", name,
		cli.Counted(int(f.Steps), "step"), cli.Counted(int(f.MicroBatches), "micro-batch"), cli.Counted(int(f.Samples), "sample"),
		quantity.Duration(f.Busy), quantity.Duration(f.Starved), quantity.Duration(f.Agreed), bytesOf(f.Read), bytesOf(f.Written), bytesOf(f.Shared))
	return nil
}

// open creates the heter-trainer's part of the model. Heter-trainer 0 prints the cut.
func (c *heterRole) open(cmd *cobra.Command, training train.Config, index int, about []byte) (*heter.Cut, heter.Device, error) {
	cut, device, err := train.OpenPart(training, about)
	if err == nil && index == 0 {
		c.role(cmd, "%v", cut)
		if c.Sync != job.BSP {
			c.role(cmd, "  its parameters lie on servers (sync %s): %s there for a step of each trainer, as float32, and their gradients back", c.Sync, bytesOf(4*int64(cut.Values)))
		}
	}
	return cut, device, err
}
