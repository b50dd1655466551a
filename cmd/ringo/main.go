// Command ringo trains neural networks on many workers.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench/servers"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/blackboxcmd"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/datacmd"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/doctor"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/export"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/mangen"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/plan"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/pscmd"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/remotepath"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/reportcmd"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/status"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/tracecmd"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/snapshot"
	"github.com/ringo-ml/ringo/models"
)

// Exit statuses for shells and schedulers. A signal gives 128 plus its number.
const (
	exitFailed      = cli.Failed
	exitUsage       = cli.UsageError
	exitInterrupted = 130
)

func main() {
	// A steady step allocates no memory, and tensors have no pointers: early collection costs
	// little, and frees the memory of the set-up soon.
	debug.SetGCPercent(20)
	os.Exit(run(withSignals(context.Background()), os.Args[1:], os.Stdout, os.Stderr))
}

// run executes a command line and returns the exit status. An error is a line on stderr, never a
// stack trace.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var out, errs noting
	stdout, stderr = out.under(stdout), errs.under(stderr)
	out.broken = func(err error) { signalsOf(ctx).readerEnded("standard output", err, stderr) }
	errs.broken = func(err error) { signalsOf(ctx).readerEnded("standard error", err, io.Discard) }
	places := launch.OpenPlaces(os.LookupEnv)
	ctx = snapshot.With(ctx, snapshot.Open(os.Getenv(snapshot.FDVar)))
	err := execute(ctx, args, stdout, stderr)
	for continues(err) && ctx.Err() == nil && places.Next() { // another rank is lost, or leaves
		err = execute(ctx, args, stdout, stderr)
	}
	status, text := outcome(ctx, err)
	if err := out.fault(); status == 0 && err != nil {
		status, text = exitFailed, fmt.Sprintf("the output is incomplete: %v", err)
	}
	if told := (reportedError{}); status > 128 && launched() || ringo.Reported(err) || errors.As(err, &told) {
		text = "" // the launcher reports the error, once for all workers
	}
	if text != "" {
		fmt.Fprintln(stderr, "ringo:", remotepath.WithURLs(text))
	}
	return status
}

// continues reports whether a rank that ends with err may have another place.
func continues(err error) bool {
	return cluster.IsVerdict(err) || errors.As(err, new(*cluster.RejoinError))
}

func execute(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root := newRoot(stdout, stderr)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		mangen.Complete(root, map[string][]string{"MODEL": models.Names()}) // never freed by cobra
	}
	root.SetArgs(asWeWrite(args))
	return root.ExecuteContext(ctx)
}

// asWeWrite rewrites flags of MPI launchers: -np to --np, and the flags of asHosts.
func asWeWrite(args []string) []string {
	out := asHosts(args)
	for i, a := range out {
		if a == "--" {
			break
		}
		if a == "-np" || strings.HasPrefix(a, "-np=") {
			out[i] = "-" + a
		}
	}
	return out
}

// noting records the first error of a writer, because few callers check errors of printing: a full
// disk must change the exit status.
type noting struct {
	mu     sync.Mutex
	w      io.Writer
	err    error
	broken func(error) // called once, if the pipe has no reader
}

// under returns the writer for a standard stream: a screen if w is a terminal, because drawing code
// must recognise a terminal; else n, which writes to w.
func (n *noting) under(w io.Writer) io.Writer {
	if cli.IsTerminal(w) {
		return cli.Screen(w)
	}
	n.w = w
	return n
}

// Write writes p and records the error.
func (n *noting) Write(p []byte) (int, error) {
	n.mu.Lock()
	count, err := n.w.Write(p)
	first := n.err == nil && err != nil
	n.err = cmp.Or(n.err, err)
	n.mu.Unlock()
	if first && errors.Is(err, syscall.EPIPE) {
		n.broken(err)
	}
	return count, err
}

func (n *noting) fault() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

func launched() bool {
	_, rank, _ := launch.RankFromEnv(os.LookupEnv)
	_, keeper, _ := launch.TableFromEnv(os.LookupEnv)
	return rank || keeper
}

// outcome returns the exit status and the text to print for err: a line per error in the user's
// input; otherwise a single line, unless a dead rank's last lines are quoted.
func outcome(ctx context.Context, err error) (status int, text string) {
	var death *launch.LostProcessError
	switch name := signalled(ctx, err); {
	case err == nil || ctx.Err() == nil && errors.As(err, new(*cluster.RejoinError)): // it leaves
		return 0, ""
	case name != "":
		return statusOf(name), signalledText(name, err)
	case ctx.Err() != nil:
		return exitInterrupted, "interrupted"
	case cli.IsUsage(err):
		return exitUsage, eachOnALine(err)
	case errors.As(err, &death):
		return exitFailed, err.Error()
	default:
		return exitFailed, oneLine(err)
	}
}

// oneLine joins errors on a line, with settings named by flag.
func oneLine(err error) string {
	return strings.ReplaceAll(strings.Join(setting.Lines(err, flagOf), "\n"), "\n", "; ")
}

// eachOnALine joins errors on separate lines, with the program's name before each line but the
// first.
func eachOnALine(err error) string {
	var lines []string
	for _, fault := range splitErrors(err) {
		lines = append(lines, oneLine(fault))
	}
	return strings.Join(lines, "\nringo: ")
}

// splitErrors returns the errors joined in err, at any depth. Joined errors with added text count
// as a single error.
func splitErrors(err error) (faults []error) {
	if inner := errors.Unwrap(err); inner != nil && inner.Error() == err.Error() {
		return splitErrors(inner)
	}
	all, ok := err.(interface{ Unwrap() []error })
	if !ok || err.Error() != errors.Join(all.Unwrap()...).Error() {
		return []error{err}
	}
	for _, e := range all.Unwrap() {
		faults = append(faults, splitErrors(e)...)
	}
	return faults
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "ringo",
		Short:         "Train neural networks on many processes",
		Version:       versionLine(),
		SilenceErrors: true,
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			if slices.Contains([]string{"train", "run", serverCommand, heterCommand}, cmd.Name()) && !launched() {
				outliveReaders()
			}
		},
		SilenceUsage: true,
		Args:         cli.OnlySubcommands,
		RunE:         func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", cli.HelpColumns(stdout))))
	root.CompletionOptions.DisableDefaultCmd = true // ours is shorter
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(newHelp())
	root.AddCommand(newTrain(), newTune(), newEval(), newPredict(), newServe(), newRun(), newServer(), newHeter(), newTicket(), withServerCheckpoint(pscmd.Command()), plan.Command(), newBench(), datacmd.Command(), newJobs(), readsCheckpoint(export.Command()), mangen.Completion(), mangen.Man(versionLine(), mangen.Section{Command: "train", Title: "MODELS", Text: modelList()}), blackboxcmd.Command(), tracecmd.Command(), reportcmd.Command(), status.Command(), newVersion(), newWatchdog(), newAgent(), doctor.Command(ringo.Version), doctor.Answering(ringo.Version, reachedBySSH), servers.Server())
	root.InitDefaultHelpCmd() // cobra would add it only when a command runs
	return root
}
