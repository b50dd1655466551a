package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/setting"
)

type runRole struct{ jobFlags }

func newRun() *cobra.Command { return new(runRole).command() }

func (c *runRole) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run --np N -- PROGRAM ARGS…",
		Short: "Run a program as the N ranks of a job",

		DisableFlagsInUseLine: true, // "[flags]" would follow the program's
		Long: "Start PROGRAM, which uses the Go library, as the N ranks of a job. Each process receives\n" +
			"its rank and the job's address in RINGO_RANK, RINGO_WORLD_SIZE, RINGO_LOCAL_RANK,\n" +
			"RINGO_RENDEZVOUS and RINGO_TICKET, which ringo.Join reads.\n" +
			"--servers also starts servers: aggregation servers, which sum gradients for the Reducer of\n" +
			"ringo.Job, or with --sync bsp, ssp, async or geo parameter servers, to which\n" +
			"DialParameterServers connects. --heter also starts PROGRAM as heter-trainers, in which\n" +
			"train.Run computes the marked stage of the model.\n" +
			"With --min-np a program that calls ringo.torch.reform continues after the loss of a rank.\n" +
			"With parameter servers, --checkpoint saves the servers and ranks of a program that calls\n" +
			"train.Run or train.NewLoop, and --resume continues from the last checkpoint.",
		Example: "  ringo run --np 2 -- ./my-trainer --epochs 3\n" +
			"  ringo run --np 4 --servers 2 -- ./my-trainer\n" +
			"  ringo run --np 4 --servers 2 --sync async -- ./my-tables\n" +
			"  ringo run --np 4 --servers 2 --heter 1 -- ./my-click-model\n" +
			"  ringo run --np 4 --servers 2 --sync bsp --checkpoint RUN --resume -- ./my-click-model",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("`ringo run` needs a program: ringo run --np N -- PROGRAM ARGS…")
			}
			return nil
		},
		RunE: c.execute,
	}
	c.register(cmd.Flags(), setting.Run)
	c.starts, c.anyProgram = true, true
	cmd.Flags().SetInterspersed(false) // later flags belong to the program
	return cmd
}

func (c *runRole) execute(cmd *cobra.Command, program []string) error {
	if err := errors.Join(c.check(cmd)...); err != nil {
		return cli.Usage(err)
	}
	c.shortenSlices()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program's own file, which is its servers: %w", err)
	}
	ranks := func() launch.Role {
		r := launch.Ranks(c.Ranks, program...)
		r.Bind, r.CoresEach = c.Bind, launch.ThreadsFromEnv(os.LookupEnv)
		return r
	}
	cfg := c.roles(ranks(), self)
	for i, r := range cfg.Roles {
		if r.Name == launch.Heter { // heter-trainers need the program's code
			cfg.Roles[i].Command = program
		}
	}
	cfg.OnPlace = func(role, placed string) { fmt.Fprintf(cmd.ErrOrStderr(), "ringo: %ss are %s\n", role, placed) }
	if !c.Sync.UsesParameterServers() {
		cfg.Times = cluster.Times{Join: c.Times.Join} // the program sets the other times
	}
	if c.isGiven("job.transport") {
		cfg.Env = append(cfg.Env, launch.TransportVar+"="+c.Transport)
	}
	if c.isGiven("job.collective-algorithm") {
		cfg.Env = append(cfg.Env, launch.AlgorithmVar+"="+c.Collective.Algorithm)
	}
	if err := c.saving(&cfg); err != nil {
		return err
	}
	c.progress = c.Output.Progress
	explained := func(err error) error { return err }
	if c.MinRanks > 0 {
		explained = c.continueProgram(cmd, &cfg, ranks)
	}
	return c.watched(cmd, func() error { return explained(c.launch(cmd, cfg, self)) })
}

// saving creates the folder of this attempt's server checkpoints, and passes its path to the ranks.
func (c *runRole) saving(cfg *launch.Config) error {
	var said launch.CheckpointEnv
	if dir := c.Train.Checkpoint.Dir; dir != "" {
		if _, err := c.findStart(); err != nil {
			return err
		}
		whole, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		said = launch.CheckpointEnv{Dir: whole, Attempt: c.start.Number, Resume: c.Train.Checkpoint.Resume}
	}
	cfg.Env = append(cfg.Env, said.String())
	return nil
}

// check resolves the flags and reports every error.
func (c *runRole) check(cmd *cobra.Command) []error {
	var faults cli.Faults
	if faults.Error(c.resolve(cmd, "")); c.Spec == nil {
		return faults
	}
	faults.Error(launch.CheckSingle(os.LookupEnv))
	if c.Servers.Count > 0 && !c.isGiven("sync") {
		c.Sync = job.Aggregate
	}
	faults.Error(c.idleFaults())
	var errs []error
	if c.isGiven("job.transport") && !oneOf(c.Transport, "shm", "tcp") {
		errs = append(errs, setting.Errorf("job.transport", "%s: want shm or tcp: the program's ranks are processes", c.Transport))
	}
	if c.Sync.UsesParameterServers() && !c.isGiven("servers.count") {
		errs = append(errs, setting.Errorf("sync", "%s needs parameter servers: set %v", c.Sync, setting.Path("servers.count")))
	}
	if dir := c.Train.Checkpoint.Dir; dir != "" && !c.Sync.UsesParameterServers() {
		errs = append(errs, setting.Errorf("checkpoint.dir", "%s: is for parameter servers (%v), which save together with the program; without them the program saves its own checkpoints", dir, setting.Path("sync")))
	}
	for _, p := range []setting.Path{"job.heartbeat-timeout"} {
		if c.isGiven(p) && !c.Sync.UsesParameterServers() {
			errs = append(errs, setting.Errorf(p, "has no effect without parameter servers (%v): the program itself handles lost ranks", setting.Path("sync")))
		}
	}
	if c.ContinueOnLoss() && c.isGiven("job.transport") {
		errs = append(errs, setting.Errorf("job.transport", "%s is not for %v continue: ranks are connected to servers, and not to each other", c.Transport, setting.Path("ps.failure-policy")))
	}
	if c.isGiven("job.rendezvous") && c.Hosts == "" {
		errs = append(errs, setting.Errorf("job.rendezvous", "is the address of this launcher for other hosts: set %v as well", setting.Path("job.hosts")))
	}
	if c.MinRanks > 0 && (c.Servers.Count > 0 || c.Train.Heter.Count > 0) {
		errs = append(errs, setting.Errorf("job.min-ranks", "%d: is for ranks alone: leave %v and %v out", c.MinRanks, setting.Path("servers.count"), setting.Path("heter.count")))
	}
	given := c.Transport
	c.Transport = "shm" // ranks are always processes
	faults.Error(c.faults(errors.Join(append(errs, c.restartFault(), c.ValidateProcesses(), c.orders(), c.partFault())...)))
	c.Transport = given
	return faults
}
