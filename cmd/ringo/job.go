package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/dashboard"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/placement"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/timeslice"
)

// jobFlags holds the settings of a command that runs ranks. The process has one of three roles: a
// launcher that starts ranks, a launched rank, or a rank started by hand.
type jobFlags struct {
	commandSettings
	tuning   tuning
	progress string               // auto resolved
	hub      *dashboard.Collector // nil in a worker
	answers  metricsServer
	sight    *launch.ProcessTable
	spent    string // stage times of this rank, for the final line
}

// check resolves the settings and reports every error of the job's processes.
func (f *jobFlags) check(cmd *cobra.Command, model string) []error {
	var faults cli.Faults
	if faults.Error(f.resolve(cmd, model)); f.Spec == nil {
		return faults
	}
	if f.worker && f.Transport == job.TransportMem {
		faults.Error(f.faults(setting.Errorf("job.transport", "mem is for all ranks in one process, not for a single rank")))
	}
	faults.If(f.worker && f.ByHand(),
		"--rank %d, but %s is set too: a launcher has already placed this process", f.Rank, launch.RankVar)
	if !f.worker {
		faults.Error(f.idleFaults())
		faults.Error(f.faults(errors.Join(f.atHand(), f.restartFault())))
	}
	faults.If(f.worker && len(f.env.Tables) > 0 && !f.Sync.UsesParameterServers() && f.accepts("sync"),
		"the launcher has started %d parameter servers: give the same --sync as the launcher, bsp, ssp, async or geo", len(f.env.Tables))
	faults.Error(f.faults(errors.Join(f.ValidateProcesses(), f.orders(), f.partFault())))
	faults.Error(f.faults(f.tuning.load(f.Spec)))
	f.progress, _ = cli.StyleFor(f.Output.Progress, cmd.ErrOrStderr()) // a known style; workers write to pipes and get the launcher's
	return faults
}

// atHand reports settings that only processes started by hand may have, if this is a launcher.
func (f *jobFlags) atHand() error {
	var errs []error
	if f.isGiven("job.rank") && !f.ByHand() {
		errs = append(errs, setting.Errorf("job.rank", "%d: want a rank from 0 on", f.Rank))
	}
	for _, p := range []setting.Path{"job.rendezvous", "job.ticket-file", "ps.addresses", "heter.addresses"} {
		if f.isGiven(p) && !inFile(f.table.Origin(p)) && !f.ByHand() && (p != "job.rendezvous" || f.Hosts == "") {
			errs = append(errs, setting.Errorf(p, "is for ranks started by hand: give %v too", setting.Path("job.rank")))
		}
	}
	return errors.Join(errs...)
}

// partFault reports settings that are invalid if several processes start the ranks.
func (g *commandSettings) partFault() error {
	switch {
	case g.part == nil:
		return nil
	case g.Hosts != "":
		return setting.Errorf("job.hosts", "starts all ranks, and %s starts ranks as well: choose one", g.externalLauncher)
	case g.Transport == job.TransportMem:
		return setting.Errorf("job.transport", "mem runs all ranks in one process, but %s starts several processes", g.externalLauncher)
	case g.Sync != job.AllReduce:
		return setting.Errorf("sync", "%s needs servers, which %s does not start: start the servers by hand, and one rank per process", g.Sync, g.externalLauncher)
	}
	return nil
}

// orders reports an invalid token for commands to servers.
func (g *commandSettings) orders() error {
	if g.Output.HTTP == "" {
		return nil
	}
	_, err := launch.AdminTokenFromEnv(os.LookupEnv)
	return err
}

// shortenSlices requests short time slices for this process and its children; launched processes
// inherit the launcher's. Errors are harmless: Linux before 6.12 and other systems reject the
// request.
func (g *commandSettings) shortenSlices() {
	if _, launched := launch.JobSpecFromEnv(os.LookupEnv); !launched && !g.worker {
		_ = timeslice.Set(timeslice.Short)
	}
}

// run runs the command in its role. body is the work of a rank, words are the words of the command
// line.
func (f *jobFlags) run(cmd *cobra.Command, words []string, body func(*ringo.Job) error) error {
	f.shortenSlices()
	return f.watched(cmd, func() error { return f.play(cmd, words, body) })
}

// play is run without the dashboard.
func (f *jobFlags) play(cmd *cobra.Command, words []string, body func(*ringo.Job) error) error {
	body = f.trackRank(f.stoppedBySignals(cmd, f.tuning.before(body)))
	cfg := f.Run(f.table)
	cfg.Collective.Profile = f.tuning.loaded.Collectives
	if !f.worker && (f.ByHand() || f.InProcess()) {
		folder, err := f.blackBox()
		if err != nil {
			return err
		}
		cfg.BlackBox = folder
		cfg.Metrics = f.answers.board
	}
	switch {
	case f.worker || f.ByHand():
		cfg.Report = tells(cmd)
		if f.externalLauncher != "" && f.Rank == 0 {
			cfg.Report(fmt.Sprintf("%s, placed by %s", cli.Counted(f.Ranks, "rank"), f.externalLauncher))
		}
		return f.runRank(cmd.Context(), cfg, f.roleTold(cmd, body))
	case f.InProcess():
		withThreads(f.Ranks * f.Threads())
		return ringo.Local(cmd.Context(), f.Ranks, cfg, body)
	}
	return f.launchSelf(cmd, words)
}

// stoppedBySignals wraps body: signals of this process stop the job. Rank 0 handles signals if
// ranks are goroutines; a launcher reports them for its ranks.
func (f *jobFlags) stoppedBySignals(cmd *cobra.Command, body func(*ringo.Job) error) func(*ringo.Job) error {
	return func(job *ringo.Job) error {
		if job.Rank() == 0 || !f.InProcess() {
			signalsOf(cmd.Context()).stopsJob(job, func(line string) {
				if !f.worker {
					fmt.Fprintln(cmd.ErrOrStderr(), "ringo:", line)
				}
			})
		}
		return body(job)
	}
}

// roleTold wraps body in a job with servers: each trainer prints its start and end.
func (f *jobFlags) roleTold(cmd *cobra.Command, body func(*ringo.Job) error) func(*ringo.Job) error {
	if f.Sync == job.AllReduce {
		return body
	}
	return func(job *ringo.Job) error {
		f.role(cmd, "trainer %d of %d is up, with %s", job.Rank(), job.Size(), cli.Counted(max(job.Servers(), job.ParameterServers()), "server"))
		err := body(job)
		if err == nil {
			f.role(cmd, "trainer %d of %d is done%s", job.Rank(), job.Size(), f.spent)
		}
		return err
	}
}

func (f *jobFlags) runRank(ctx context.Context, cfg ringo.Config, body func(*ringo.Job) error) error {
	if f.worker && f.Hosts == "" {
		f.withThreads(placement.Usable(), 1)
	}
	f.hold()
	return ringo.Run(ctx, cfg, func(job *ringo.Job) error {
		if f.Cores = job.Cores(); !f.worker || f.Hosts != "" {
			f.withThreads(f.Cores, job.Group().Hosts())
		}
		if job.Size() != f.Ranks {
			return fmt.Errorf("--np %d, but %s is %d", f.Ranks, launch.WorldSizeVar, job.Size())
		}
		if f.ParameterServers() != job.ParameterServers() {
			return fmt.Errorf("%d parameter servers, but %s has %d: give the same --sync and --servers as the launcher", f.ParameterServers(), launch.ParameterServersVar, job.ParameterServers())
		}
		return body(job)
	})
}

// hold locks the program in memory if rows are read from SSD.
func (g *commandSettings) hold() {
	if g.ParameterServer.MemoryBytes > 0 {
		_ = holdProgram()
	}
}

// spareThread reports whether a rank has a thread for communication, so that no message waits for a
// compute kernel. If all cores compute, this thread would evict kernels' data from caches: only
// ranks of several hosts have it then, because their links are slower.
func spareThread(threads, cores, hosts int) bool { return hosts > 1 || threads < cores }

func (f *jobFlags) withThreads(cores, hosts int) {
	n := f.Threads()
	if spareThread(n, cores, hosts) {
		n++
	}
	withThreads(n)
}

// withThreads raises GOMAXPROCS to n, but to at most two threads per core.
func withThreads(n int) {
	runtime.GOMAXPROCS(max(min(n, 2*runtime.NumCPU()), runtime.GOMAXPROCS(0)))
}

// launchSelf starts this command as the job's ranks and servers. This process passes on the
// settings, the words of the command line and the other flags.
func (f *jobFlags) launchSelf(cmd *cobra.Command, words []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program's own file to start it again: %w", err)
	}
	command := slices.Concat([]string{self}, strings.Fields(cmd.CommandPath())[1:], words, otherFlags(cmd))
	ranks := func() launch.Role {
		r := launch.Ranks(f.Ranks, command...)
		r.Bind, r.CoresEach = f.Bind, f.coresEach()
		return r
	}
	cfg := f.roles(ranks(), self)
	if f.MinRanks > 0 {
		limited := f.continueOnLoss(cmd, &cfg, ranks)
		return limited(f.launch(cmd, cfg, self))
	}
	if f.Sync.UsesParameterServers() && f.Train.Checkpoint.Dir != "" {
		end, err := f.findStart()
		if err != nil {
			return err
		}
		return errors.Join(f.launch(cmd, cfg, self), end())
	}
	return f.launch(cmd, cfg, self)
}

// coresEach returns the number of cores that a rank keeps busy. 0 means the rank's share of its
// host.
func (f *jobFlags) coresEach() int {
	if f.part != nil {
		return cmp.Or(f.Train.Threads, max(1, placement.Usable()/f.each))
	} else if f.Hosts != "" {
		return f.Train.Threads
	}
	return f.Threads()
}

func (g *commandSettings) roles(ranks launch.Role, self string) launch.Config {
	cfg := launch.Config{Roles: []launch.Role{ranks}, Times: g.Times, TLS: g.Network.TLS}
	if g.part != nil {
		cfg.Part, cfg.Roles[0].Count, cfg.Roles[0].Mesh = g.part, g.each, false
		return cfg
	}
	if n := g.AggregationServers(); n > 0 {
		cfg.Roles = append(cfg.Roles, launch.Aggregators(n, self, serverCommand))
	}
	if n := g.ParameterServers(); n > 0 {
		servers := launch.ParameterServers(n, self, serverCommand)
		servers.Grace, servers.Stateless = g.SaveGrace(), g.ParameterServer.Durability == engine.None
		if g.ParameterServer.Durability.Logged() {
			servers.Restarts = g.MaxRestarts
		}
		cfg.Roles[0].Mesh, cfg.Roles[0].ContinueWithout = !g.ContinueOnLoss(), g.ContinueOnLoss()
		cfg.Roles = append(cfg.Roles, servers)
	}
	if n := g.Train.Heter.Count; n > 0 {
		heters := launch.HeterTrainers(n, self, heterCommand)
		heters.Restarts = g.MaxRestarts
		cfg.Roles = append(cfg.Roles, heters)
	}
	return cfg
}

// otherFlags returns the given flags that are not settings, as on a command line.
func otherFlags(cmd *cobra.Command) (out []string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if _, is := f.Value.(*settingFlag); !is && !oneOf(f.Name, "job", "set") {
			out = append(out, "--"+f.Name+"="+flagText(f))
		}
	})
	return out
}

func flagText(f *pflag.Flag) string {
	if s, ok := f.Value.(pflag.SliceValue); ok {
		return strings.Join(s.GetSlice(), ",")
	}
	return f.Value.String()
}

// launch starts the roles of cfg with this job's settings and waits for the ranks.
func (f *jobFlags) launch(cmd *cobra.Command, cfg launch.Config, self string) (err error) {
	if f.part != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "ringo: ranks %d to %d of %d, placed by %s\n", f.part.Rank, f.part.Rank+f.each-1, f.part.WorldSize, f.externalLauncher)
	}
	if cfg.JobSpec, err = f.handed(cmd, f.progress); err != nil {
		return err
	}
	if cfg.BlackBox, err = f.blackBox(); err != nil {
		return err
	}
	if err := f.span(&cfg, self); err != nil {
		return f.faults(err)
	}
	if err := f.checkFolder("--log-dir", f.Output.LogDir); err != nil {
		return err
	}
	cfg.LogDir = f.Output.LogDir
	f.connectDashboard(&cfg)
	cfg.Metrics = f.answers.path()
	return launchProgram(cmd, cfg)
}

// launchProgram starts the roles of cfg and waits for the ranks.
func launchProgram(cmd *cobra.Command, cfg launch.Config) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program's own file, which guards its workers: %w", err)
	}
	cfg.Env = append(os.Environ(), cfg.Env...) // the last value of a name counts
	cfg.HostEnv = hostEnv(cfg.Env)
	cfg.Version, cfg.Guard = ringo.Version, []string{self, guardCommand}
	cfg.Stdout, cfg.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	cfg.Columns, cfg.Terminal = terminalOf(cfg.Stdout, cfg.Stderr)
	defer heedSignals(signalsOf(cmd.Context()), &cfg)()
	return launch.Run(cmd.Context(), cfg)
}

// terminalOf returns the width of stderr, 0 without a terminal, and whether both outputs are
// terminals.
func terminalOf(stdout, stderr io.Writer) (columns int, both bool) {
	return cli.Columns(stderr), cli.IsTerminal(stderr) && cli.IsTerminal(stdout)
}

func oneOf(s string, known ...string) bool { return slices.Contains(known, s) }
