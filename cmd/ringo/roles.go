package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cluster"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/launch"
	"github.com/ringo-ml/ringo/train"
)

// computeThreads is --threads with 0 resolved. What is out of bounds is reported
// elsewhere, once.
func (f *jobFlags) computeThreads() int {
	if f.threads > 0 {
		return min(f.threads, train.MaxThreads)
	}
	if f.byHand {
		return runtime.NumCPU()
	}
	return max(1, runtime.NumCPU()/max(1, f.np))
}

func (f *jobFlags) collective() collective.Config {
	cfg := collective.Config{Algorithm: f.algorithm, Timeout: f.timeout, Profile: f.tuning.loaded.Collectives}
	if f.algorithm == autoAlgorithm {
		cfg.Algorithm = ""
	}
	return cfg
}

// run plays the command's role: body is what a rank does.
func (f *jobFlags) run(cmd *cobra.Command, body func(*ringo.Job) error) error {
	if err := f.slice.apply(cmd, f.worker); err != nil {
		return err
	}
	ctx := cmd.Context()
	body = f.stoppedBySignals(cmd, f.tuning.before(body))
	cfg := f.job()
	cfg.Collective = f.collective()
	switch {
	case f.worker || f.byHand:
		if f.byHand {
			cfg.Size, cfg.Rank, cfg.Rendezvous = f.np, f.rank, f.rendezvous
		}
		cfg.Report = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "ringo:", line) }
		return f.runRank(ctx, cfg, f.roleTold(cmd, body))
	case f.inProcess():
		withThreads(f.np*f.computeThreads(), 0)
		return ringo.Local(ctx, f.np, cfg, body)
	default:
		words := f.words
		if words == nil {
			words = cmd.Flags().Args()
		}
		return f.launchSelf(cmd, words)
	}
}

// stoppedBySignals is body of a job that this process's signals stop. Where its ranks are goroutines,
// rank 0 sees to it; where it has a launcher, that tells of it.
func (f *jobFlags) stoppedBySignals(cmd *cobra.Command, body func(*ringo.Job) error) func(*ringo.Job) error {
	return func(job *ringo.Job) error {
		if job.Rank() == 0 || !f.inProcess() {
			signalsOf(cmd.Context()).stopsJob(job, func(line string) {
				if !f.worker {
					fmt.Fprintln(cmd.ErrOrStderr(), "ringo:", line)
				}
			})
		}
		return body(job)
	}
}

// times are how long members wait for each other.
func (f *jobFlags) times() cluster.Times {
	return cluster.Times{Join: f.joinTimeout, Heartbeat: f.heartbeat, DeadAfter: f.deadAfter}
}

// job is what the flags say of a job.
func (f *jobFlags) job() ringo.Config {
	cfg := ringo.Config{Servers: f.summers, Tables: f.ps.addrs, NoMesh: f.ps.goesOn(), Times: f.times(), Network: f.network.network}
	cfg.Aggregate.Timeout = f.timeout
	if oneOf(f.transport, ringo.TransportSHM, ringo.TransportTCP) {
		cfg.Transport = f.transport
	}
	return cfg
}

// roleTold is body of a job with servers, where each role says when it is up and
// when it is done.
func (f *jobFlags) roleTold(cmd *cobra.Command, body func(*ringo.Job) error) func(*ringo.Job) error {
	if f.summers == 0 && f.keepers == 0 {
		return body
	}
	return func(job *ringo.Job) error {
		fmt.Fprintf(cmd.ErrOrStderr(), "trainer %d of %d is up, with %s\n", job.Rank(), job.Size(), counted(max(job.Servers(), job.Tables()), "server"))
		err := body(job)
		if err == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "trainer %d of %d is done\n", job.Rank(), job.Size())
		}
		return err
	}
}

// runRank is a rank of a job of processes.
func (f *jobFlags) runRank(ctx context.Context, cfg ringo.Config, body func(*ringo.Job) error) error {
	spare := 1
	if f.worker && f.computeThreads() >= runtime.NumCPU() {
		spare = 0 // all ranks are on this host, and no core is left over
	}
	withThreads(f.computeThreads(), spare)
	f.ps.hold()
	return ringo.Run(ctx, cfg, func(job *ringo.Job) error {
		if job.Size() != f.np {
			return fmt.Errorf("--np %d, but %s is %d", f.np, launch.WorldSizeVar, job.Size())
		}
		if f.keepers != job.Tables() {
			return fmt.Errorf("%d servers keep parameters, but %s has %d: say --mode ps, --ps-mode and --servers as the launcher was told", f.keepers, launch.TablesVar, job.Tables())
		}
		return body(job)
	})
}

// withThreads gives the goroutines that communicate threads besides those that
// compute: the kernels cannot be preempted, and a message could wait for a whole
// kernel. Without a core to spare that is what it should do: an exchange that
// cuts into a kernel costs it the contents of its caches.
func withThreads(compute, spare int) {
	n := min(compute+spare, 2*runtime.NumCPU()) // more would only take turns
	if runtime.GOMAXPROCS(0) < n {
		runtime.GOMAXPROCS(n)
	}
}

// launchSelf starts this very command line as np ranks.
func (f *jobFlags) launchSelf(cmd *cobra.Command, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program's own file to start it again: %w", err)
	}
	argv := append([]string{self}, commandLine(cmd, args)...)
	argv = append(argv, "--progress="+f.progress, fmt.Sprintf("--threads=%d", f.computeThreads()))
	ranks := launch.Ranks(f.np, argv...)
	ranks.CoresEach = f.computeThreads()
	cfg := launch.Config{Roles: []launch.Role{ranks}, Times: f.times()}
	if f.summers > 0 {
		cfg.Roles = append(cfg.Roles, launch.Aggregators(f.summers, append([]string{self, serverCommand}, givenFlags(cmd, serverFlags)...)...))
	}
	if f.keepers > 0 {
		f.ps.launched(&cfg, f.keepers, append([]string{self, serverCommand}, givenFlags(cmd, f.ps.tableFlags)...))
		if f.ps.whole.dir != "" {
			resume, err := cmd.Flags().GetBool("resume")
			if err != nil {
				return err
			}
			s, err := beginStart(f.ps.whole.dir, resume)
			if err != nil {
				return err
			}
			ranks, servers := &cfg.Roles[0], &cfg.Roles[1]
			ranks.Command, servers.Command = append(ranks.Command, s.rank()...), append(servers.Command, s.server()...)
		}
	}
	return launchProgram(cmd, cfg)
}

// launchProgram starts a program as cfg says and waits for its ranks.
func launchProgram(cmd *cobra.Command, cfg launch.Config) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program's own file, which guards its workers: %w", err)
	}
	cfg.Env = append(os.Environ(), cfg.Env...) // the last of a name counts
	cfg.Version, cfg.Guard = ringo.Version, []string{self, guardCommand}
	cfg.Stdout, cfg.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	cfg.Columns, cfg.Terminal = terminalOf(cfg.Stdout, cfg.Stderr)
	defer heedSignals(signalsOf(cmd.Context()), &cfg)()
	return launch.Run(cmd.Context(), cfg)
}

// terminalOf says whether both outputs are one terminal, and how wide the
// second's is; 0 when it is none.
func terminalOf(stdout, stderr io.Writer) (columns int, both bool) {
	return columnsOf(stderr), isTerminal(stderr) && isTerminal(stdout)
}
