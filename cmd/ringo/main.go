// Command ringo trains neural networks on many workers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit statuses, as shells and schedulers read them.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process: it executes one command line and returns
// the exit status. An error is one line on stderr, never a stack trace.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "ringo: interrupted")
		return exitInterrupted
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "ringo: %v\n", err)
		return exitUsage
	default:
		fmt.Fprintf(stderr, "ringo: %v\n", err)
		return exitFailed
	}
}

// usageError is a fault of the command line, found before anything started.
type usageError struct{ error }

// Unwrap returns the fault itself.
func (e usageError) Unwrap() error { return e.error }

// usagef returns a usageError.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use: "ringo",
		// typing errors of up to two letters are recognised
		SuggestionsMinimumDistance: 2,
		Short:                      "Train neural networks on many workers",
		SilenceErrors:              true,
		SilenceUsage:               true,
		Args:                       onlySubcommands,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see `%s --help`", err, cmd.CommandPath())
	})
	root.AddCommand(newTrain(), newRun(), newBench(), newData(), newVersion(), newGuard())
	return root
}

// onlySubcommands refuses a word that is not a subcommand, naming near ones.
func onlySubcommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("%q is not a command of `%s`%s; see `%s --help`", args[0], cmd.CommandPath(), hint, cmd.CommandPath())
}
