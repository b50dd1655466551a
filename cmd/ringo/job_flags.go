package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cluster"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/spelling"
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
	slice       sliceFlag
	mode        string // where gradients are summed: modeCollective or modePS
	servers     int    // with modePS
	summers     int    // of them, those that sum: all or none
	keepers     int    // and those that keep parameters
	ps          psFlags

	words  []string // of the command line: the model, where it is given otherwise, too
	byHand bool     // --rank was given
	worker bool     // this process was started by a launcher
}

func (f *jobFlags) register(fs *pflag.FlagSet) {
	fs.IntVar(&f.np, "np", 1, "number of `ranks` (workers)")
	fs.StringVar(&f.transport, "transport", "auto", "how ranks talk: shm (a process per rank, memory shared by those of one host, tcp between hosts), tcp (a process per rank), mem (goroutines of this process), auto (mem for one rank, else shm; says so where that is not to be had)")
	fs.StringVar(&f.algorithm, "algorithm", autoAlgorithm, "`algorithm` of operations that have it: "+algorithmList()+"; auto: chosen by the number of ranks and bytes")
	f.tuning.register(fs)
	f.registerMember(fs)
	fs.IntVar(&f.threads, "threads", 0, "compute `threads` per rank; 0 shares this machine's cores among the ranks started here. The result does not depend on it")
	fs.IntVar(&f.rank, "rank", -1, "start only this `rank`, by hand; needs --np, --rendezvous and the ticket in RINGO_TICKET")
	fs.StringVar(&f.progress, "progress", "auto", "progress `style`: auto, bar, plain or none")
}

// registerMember registers the flags of all that are members of a job, ranks and
// servers.
func (f *jobFlags) registerMember(fs *pflag.FlagSet) {
	fs.DurationVar(&f.timeout, "timeout", 10*time.Minute, "longest wait for another rank in an exchange, or for a server; dead ones are found within --dead-after, a slow one is only reported until then")
	fs.StringVar(&f.rendezvous, "rendezvous", "", "`HOST:PORT` where rank 0 meets the others, for ranks started by hand")
	times := cluster.Times{}.WithDefaults()
	fs.DurationVar(&f.joinTimeout, "join-timeout", times.Join, "how long ranks wait for each other at the start")
	fs.DurationVar(&f.heartbeat, "heartbeat", times.Heartbeat, "time between signs of life of ranks and servers")
	fs.DurationVar(&f.deadAfter, "dead-after", times.DeadAfter, "a rank or server without a sign of life for so long is lost, four times as long if its process is seen to use the processor; at least twice --heartbeat")
	f.network.register(fs)
	f.slice.register(fs)
}

// Where gradients are summed.
const (
	modeCollective = "collective"
	modePS         = "ps"
)

// registerServers registers the flags of commands whose jobs may have servers.
func (f *jobFlags) registerServers(fs *pflag.FlagSet) {
	fs.StringVar(&f.mode, "mode", modeCollective, "`where` gradients go: collective (to the ranks themselves) or ps (to servers, see --ps-mode)")
	fs.IntVar(&f.servers, "servers", 0, "number of `servers` with --mode ps; 0: 1. Started by hand they are ringo server")
}

// check finds the role and reports every fault of the flags.
func (f *jobFlags) check(cmd *cobra.Command) []error {
	env, launched, err := launch.FromEnv(os.LookupEnv)
	f.worker, f.byHand = launched, cmd.Flags().Changed("rank")
	if launched && err == nil && !cmd.Flags().Changed("np") {
		f.np = env.WorldSize // under `ringo run`
	}
	var faults faultList
	if !f.byHand {
		faults.addOther(cmd, err)
	}
	if launched && err == nil && env.Servers > 0 && cmd.Flags().Lookup("mode") != nil && !cmd.Flags().Changed("mode") {
		f.mode, f.servers = modePS, env.Servers
	}
	if launched && err == nil && len(env.Tables) > 0 && cmd.Flags().Lookup("ps-mode") != nil {
		f.besideKeepers(len(env.Tables), cmd.Flags().Changed, &faults)
	}
	f.checkServers(&faults)
	if cmd.Flags().Lookup("ps-mode") != nil {
		f.ps.checkWhole(cmd, f.byHand, &faults)
		f.ps.check(cmd, f.mode, &faults)
		f.checkKeepers(cmd, &faults)
		f.checkApart(cmd, &faults)
	}
	f.checkPlace(&faults)
	f.network.check(&faults, !f.inProcess(), cmd.Flags().Changed)
	if !oneOf(f.transport, "auto", ringo.TransportSHM, ringo.TransportTCP, "mem") {
		faults.add("--transport %q is not known%s: use auto, shm, tcp or mem", f.transport, spelling.Hint(f.transport, "auto", "shm", "tcp", "mem"))
	}
	if !oneOf(f.algorithm, append(collective.Algorithms(), autoAlgorithm)...) {
		faults.add("--algorithm %q is not known%s: use auto or %s", f.algorithm, spelling.Hint(f.algorithm, append(collective.Algorithms(), autoAlgorithm)...), algorithmList())
	}
	if f.algorithm == collective.Exchange && f.np > 2 {
		faults.add("--algorithm exchange is for two ranks, --np is %d", f.np)
	}
	f.tuning.check(cmd, f.np == 1, &faults)
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

// besideKeepers is a rank of a job whose launcher has started servers that keep parameters.
func (f *jobFlags) besideKeepers(n int, changed func(string) bool, faults *faultList) {
	if !changed("mode") {
		f.mode = modePS
	}
	if f.mode == modePS && !changed("servers") {
		f.servers = n
	}
	if f.mode == modePS && !changed("ps-mode") {
		faults.add("the launcher has started servers that keep parameters, %d of them: say what it was told, --ps-mode %s", n, strings.Join(consistencies(), "|"))
	}
}

// checkTimes reports faults of the times that all members know.
func (f *jobFlags) checkTimes(faults *faultList) {
	f.slice.check(faults)
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
		faults.add("--mode %q is not known%s: use collective or ps", f.mode, spelling.Hint(f.mode, modeCollective, modePS))
	case f.mode != modePS && f.servers != 0:
		faults.add("--servers %d has no effect without --mode ps", f.servers)
	}
	if f.servers < 0 || f.servers > maxRanks {
		faults.add("--servers %d: want 1 to %d", f.servers, maxRanks)
	}
	f.summers = f.servers
}

// checkExchange reports settings that servers would leave without effect.
func (f *jobFlags) checkExchange(c distopt.Config) error {
	switch {
	case f.mode != modePS:
	case c.Strategy == distopt.PartialUpdate:
		return fmt.Errorf("--strategy %s with --mode ps: it averages parameters among the ranks and has nothing for servers", c.Strategy)
	case c.BoundSum:
		return fmt.Errorf("--%s has no effect with --mode ps: servers keep all entries of a sum", "bound-sum")
	case c.SparseAlgorithm != "":
		return fmt.Errorf("--%s %s has no effect with --mode ps: servers sum entries", "sparse-algorithm", c.SparseAlgorithm)
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
	case f.byHand && f.rendezvous == "" && !f.ps.goesOn():
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
		return "", fmt.Errorf("--progress %q is not known%s: use auto, bar, plain or none", style, spelling.Hint(style, "auto", "bar", "plain", "none"))
	}
	if style != "auto" {
		return style, nil
	}
	if isTerminal(to) {
		return "bar", nil
	}
	return "plain", nil
}

func oneOf(s string, known ...string) bool { return slices.Contains(known, s) }

// autoAlgorithm leaves the choice to the table of collective.
const autoAlgorithm = "auto"

func algorithmList() string { return strings.Join(collective.Algorithms(), ", ") }

// inProcess tells whether all ranks are goroutines of this process.
func (f *jobFlags) inProcess() bool {
	return f.transport == "mem" || f.transport == "auto" && f.np == 1 && !f.ps.keeps()
}
