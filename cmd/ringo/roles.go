package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cluster"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/launch"
	"github.com/ringo-ml/ringo/train"
)

// maxRanks bounds a slip of the finger: each rank is a process and has a
// connection with every other.
const maxRanks = 1024

// jobFlags say which ranks there are and how they talk. Every command that
// needs several ranks has them, and one command line may play three roles: the
// launcher that starts the ranks, one of these ranks, or a rank started by
// hand.
type jobFlags struct {
	np          int
	rank        int
	rendezvous  string
	transport   string
	algorithm   string
	tuning      tuning
	timeout     time.Duration
	joinTimeout time.Duration
	heartbeat   time.Duration
	deadAfter   time.Duration
	threads     int
	progress    string
	network     networkFlags
	mode        string // where gradients are summed: modeCollective or modePS
	servers     int

	byHand bool // --rank was given
	worker bool // this process was started by a launcher
}

func (f *jobFlags) register(fs *pflag.FlagSet) {
	fs.IntVar(&f.np, "np", 1, "number of `ranks` (workers)")
	fs.StringVar(&f.transport, "transport", "auto", "how ranks talk: shm (a process per rank, memory shared by those of one host, tcp between hosts), tcp (a process per rank), mem (goroutines of this process), auto (mem for one rank, else shm; says so where that is not to be had)")
	fs.StringVar(&f.algorithm, "algorithm", autoAlgorithm, "`algorithm` of operations that have it: "+algorithmList()+"; auto: a fixed table's")
	f.tuning.register(fs)
	f.registerMember(fs)
	fs.IntVar(&f.threads, "threads", 0, "compute `threads` per rank; 0 shares this machine's cores among the ranks started here. The result does not depend on it")
	fs.IntVar(&f.rank, "rank", -1, "start only this `rank`, by hand; needs --np, --rendezvous and the ticket in RINGO_TICKET")
	fs.StringVar(&f.progress, "progress", "auto", "progress `style`: auto, bar, plain or none")
}

// registerMember registers the flags of all that are members of a job, ranks and
// servers.
func (f *jobFlags) registerMember(fs *pflag.FlagSet) {
	fs.DurationVar(&f.timeout, "timeout", 10*time.Minute, "longest wait for another rank in an exchange; dead ranks are found within --dead-after, a slow one is only reported until then")
	fs.StringVar(&f.rendezvous, "rendezvous", "", "`HOST:PORT` where rank 0 meets the others, for ranks started by hand")
	fs.DurationVar(&f.joinTimeout, "join-timeout", time.Minute, "how long ranks wait for each other at the start")
	fs.DurationVar(&f.heartbeat, "heartbeat", cluster.DefaultHeartbeat, "time between signs of life of the ranks")
	fs.DurationVar(&f.deadAfter, "dead-after", cluster.DefaultDeadAfter, "a rank without a sign of life for so long is lost; at least twice --heartbeat")
	f.network.register(fs)
}

// Where gradients are summed.
const (
	modeCollective = "collective"
	modePS         = "ps"
)

// registerServers registers the flags of commands whose jobs may have servers.
func (f *jobFlags) registerServers(fs *pflag.FlagSet) {
	fs.StringVar(&f.mode, "mode", modeCollective, "`where` gradients are summed: collective (by the ranks themselves) or ps (on servers; row-sparse tables stay with the ranks)")
	fs.IntVar(&f.servers, "servers", 0, "number of servers with --mode ps; 0: 1. Started by hand they are `ringo server`")
}

// check finds the role and reports every fault of the flags.
func (f *jobFlags) check(cmd *cobra.Command) []error {
	env, launched, err := launch.FromEnv(os.LookupEnv)
	f.worker, f.byHand = launched, cmd.Flags().Changed("rank")
	if launched && err == nil && !cmd.Flags().Changed("np") {
		f.np = env.WorldSize // under `ringo run`
	}
	var faults faultList
	if launched && err == nil && env.Servers > 0 && cmd.Flags().Lookup("mode") != nil && !cmd.Flags().Changed("mode") {
		f.mode, f.servers = modePS, env.Servers
	}
	f.checkServers(&faults)
	f.checkPlace(&faults)
	f.network.check(&faults, !(f.transport == "mem" || f.transport == "auto" && f.np == 1), cmd.Flags().Changed)
	if !oneOf(f.transport, "auto", ringo.TransportSHM, ringo.TransportTCP, "mem") {
		faults.add("--transport %q is not known: use auto, shm, tcp or mem", f.transport)
	}
	if f.algorithm != autoAlgorithm && !oneOf(f.algorithm, collective.Algorithms()...) {
		faults.add("--algorithm %q is not known: use auto or %s", f.algorithm, algorithmList())
	}
	if f.algorithm == collective.Exchange && f.np > 2 {
		faults.add("--algorithm exchange is for two ranks, --np is %d", f.np)
	}
	f.tuning.check(cmd, &faults)
	f.checkTimes(&faults)
	if f.threads < 0 || f.threads > train.MaxThreads {
		faults.add("--threads %d: want 0 to %d", f.threads, train.MaxThreads)
	}
	style, err := progressStyle(f.progress, cmd.ErrOrStderr())
	if err != nil {
		faults = append(faults, err)
	}
	f.progress = style
	return faults
}

// checkTimes reports faults of the times that all members know.
func (f *jobFlags) checkTimes(faults *faultList) {
	if f.timeout <= 0 {
		faults.add("--timeout %v: want a positive time, such as 30s", f.timeout)
	}
	if f.joinTimeout <= 0 {
		faults.add("--join-timeout %v: want a positive time, such as 30s", f.joinTimeout)
	}
	if f.heartbeat <= 0 || f.deadAfter < 2*f.heartbeat {
		faults.add("--heartbeat %v, --dead-after %v: want a positive time and at least twice that", f.heartbeat, f.deadAfter)
	}
}

// checkServers reports faults of what says which servers there are.
func (f *jobFlags) checkServers(faults *faultList) {
	switch {
	case f.mode == modePS && f.servers == 0:
		f.servers = 1
	case !oneOf(f.mode, "", modeCollective, modePS):
		faults.add("--mode %q is not known: use collective or ps", f.mode)
	case f.mode != modePS && f.servers != 0:
		faults.add("--servers %d has no effect without --mode ps", f.servers)
	}
	if f.servers < 0 || f.servers > maxRanks {
		faults.add("--servers %d: want 1 to %d", f.servers, maxRanks)
	}
}

// checkExchange reports settings that servers would leave without effect.
func (f *jobFlags) checkExchange(c distopt.Config) error {
	switch {
	case f.mode != modePS:
	case c.Strategy == distopt.PartialUpdate:
		return fmt.Errorf("--strategy %s with --mode ps: it averages parameters among the ranks and has nothing for servers", c.Strategy)
	case c.BoundSum:
		return fmt.Errorf("--%s has no effect with --mode ps: servers keep all entries of a sum", distopt.SettingBound)
	case c.SparseAlgorithm != "":
		return fmt.Errorf("--%s %s has no effect with --mode ps: servers sum entries", distopt.SettingAlgorithm, c.SparseAlgorithm)
	}
	return nil
}

// checkPlace reports faults of what says which ranks there are, and where.
func (f *jobFlags) checkPlace(faults *faultList) {
	if f.np < 1 || f.np > maxRanks {
		faults.add("--np %d: want 1 to %d", f.np, maxRanks)
	}
	if f.byHand && (f.rank < 0 || f.rank >= f.np) {
		faults.add("--rank %d: want a rank from 0 to %d, since --np is %d", f.rank, f.np-1, f.np)
	}
	if f.byHand && f.worker {
		faults.add("--rank %d, but %s is set too: a launcher has already placed this process", f.rank, launch.RankVar)
	}
	if f.transport == "mem" && (f.byHand || f.worker) {
		faults.add("--transport mem keeps all ranks in one process: it cannot be used by a single rank")
	}
	switch {
	case f.byHand && f.rendezvous == "":
		faults.add("--rank needs --rendezvous HOST:PORT, the address where rank 0 listens")
	case f.rendezvous == "":
	case !f.byHand && !f.worker:
		faults.add("--rendezvous is for ranks started by hand: give --rank too")
	default:
		f.checkRendezvous(faults)
	}
}

func (f *jobFlags) checkRendezvous(faults *faultList) {
	_, port, err := net.SplitHostPort(f.rendezvous)
	if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 1 || n > 65535 {
		faults.add("--rendezvous %q: want HOST:PORT with a port from 1 to 65535", f.rendezvous)
	}
}

// faultList collects what is wrong with a command line.
type faultList []error

func (l *faultList) add(format string, args ...any) { *l = append(*l, fmt.Errorf(format, args...)) }

// progressStyle turns auto into a bar where a person watches and into plain
// lines elsewhere. A launcher decides for its workers, who write to pipes.
func progressStyle(style string, to io.Writer) (string, error) {
	if !oneOf(style, "auto", "bar", "plain", "none") {
		return "", fmt.Errorf("--progress %q is not known: use auto, bar, plain or none", style)
	}
	if style != "auto" {
		return style, nil
	}
	if file, ok := to.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return "bar", nil
	}
	return "plain", nil
}

func oneOf(s string, known ...string) bool {
	for _, k := range known {
		if s == k {
			return true
		}
	}
	return false
}

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

// autoAlgorithm leaves the choice to the table of collective.
const autoAlgorithm = "auto"

func algorithmList() string { return strings.Join(collective.Algorithms(), ", ") }

func (f *jobFlags) collective() collective.Config {
	cfg := collective.Config{Algorithm: f.algorithm, Timeout: f.timeout, Profile: f.tuning.loaded.Collectives}
	if f.algorithm == autoAlgorithm {
		cfg.Algorithm = ""
	}
	return cfg
}

// run plays the command's role: body is what a rank does.
func (f *jobFlags) run(cmd *cobra.Command, body func(*ringo.Job) error) error {
	ctx := cmd.Context()
	body = f.tuning.before(body)
	cfg := f.job()
	cfg.Collective = f.collective()
	switch {
	case f.worker || f.byHand:
		if f.byHand {
			cfg.Size, cfg.Rank, cfg.Rendezvous = f.np, f.rank, f.rendezvous
		}
		cfg.Report = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "ringo:", line) }
		return f.runRank(ctx, cfg, f.roleTold(cmd, body))
	case f.transport == "mem" || f.transport == "auto" && f.np == 1:
		withThreads(f.np*f.computeThreads(), 0)
		return ringo.Local(ctx, f.np, cfg, body)
	default:
		return f.launchSelf(cmd, cmd.Flags().Args())
	}
}

// job is what the flags say of a job.
func (f *jobFlags) job() ringo.Config {
	cfg := ringo.Config{Servers: f.servers, JoinTimeout: f.joinTimeout, Heartbeat: f.heartbeat, DeadAfter: f.deadAfter, Network: f.network.network}
	cfg.PS.Timeout = f.timeout
	if oneOf(f.transport, ringo.TransportSHM, ringo.TransportTCP) {
		cfg.Transport = f.transport
	}
	return cfg
}

// roleTold is body of a job with servers, where each role says when it is up and
// when it is done.
func (f *jobFlags) roleTold(cmd *cobra.Command, body func(*ringo.Job) error) func(*ringo.Job) error {
	if f.servers == 0 {
		return body
	}
	return func(job *ringo.Job) error {
		fmt.Fprintf(cmd.ErrOrStderr(), "trainer %d of %d is up, with %s\n", job.Rank(), job.Size(), counted(job.Servers(), "server"))
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
	return ringo.Run(ctx, cfg, func(job *ringo.Job) error {
		if job.Size() != f.np {
			return fmt.Errorf("--np %d, but %s is %d", f.np, launch.WorldSizeVar, job.Size())
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
	cfg := launch.Config{N: f.np, Command: argv, JoinTimeout: f.joinTimeout, Heartbeat: f.heartbeat, DeadAfter: f.deadAfter, CoresEach: f.computeThreads()}
	if cfg.Servers = f.servers; f.servers > 0 {
		cfg.ServerCommand = append([]string{self, serverCommand}, givenFlags(cmd, serverFlags)...)
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
	return launch.Run(cmd.Context(), cfg)
}

// terminalOf says whether both outputs are one terminal, and how wide the
// second's is; 0 when it is none.
func terminalOf(stdout, stderr io.Writer) (columns int, both bool) {
	errFile, ok := stderr.(*os.File)
	if !ok || !term.IsTerminal(int(errFile.Fd())) {
		return 0, false
	}
	columns, _, _ = term.GetSize(int(errFile.Fd())) // 0 when it does not say
	outFile, ok := stdout.(*os.File)
	return columns, ok && term.IsTerminal(int(outFile.Fd()))
}
