// Package cli is the common output and input of `ringo` commands: text lines, JSON lines, progress,
// formatted numbers, and errors of the command line.
package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/spelling"
)

// Exit statuses, for shells and schedulers.
const (
	Failed     = 1
	UsageError = 2 // error of the command line, found before any work
)

type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage makes err a command-line error, for exit status UsageError; nil stays nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// Usagef returns a formatted command-line error.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// IsUsage reports whether err is or wraps a command-line error.
func IsUsage(err error) bool { return errors.As(err, new(usageError)) }

// Faults collects a command line's errors, to report all together. Flags are named without hyphens.
type Faults []error

// Add adds an error, formatted by fmt.Errorf.
func (f *Faults) Add(format string, args ...any) { *f = append(*f, fmt.Errorf(format, args...)) }

// If adds an error if wrong is true.
func (f *Faults) If(wrong bool, format string, args ...any) {
	if wrong {
		f.Add(format, args...)
	}
}

// Error adds err unless nil.
func (f *Faults) Error(err error) {
	if err != nil {
		*f = append(*f, err)
	}
}

// Range adds an error for a number outside [least, most].
func (f *Faults) Range(flag string, n, least, most int) {
	f.If(n < least || n > most, "--%s %d: want %d to %d", flag, n, least, most)
}

// Budget adds an error for a measuring time outside (0, 1 h].
func (f *Faults) Budget(flag string, d time.Duration) {
	f.If(d <= 0 || d > time.Hour, "--%s %v: want more than 0 and at most 1h", flag, d)
}

// Known adds an error for a word not in words, with the nearest word.
func (f *Faults) Known(flag, word string, words ...string) {
	f.If(!slices.Contains(words, word),
		"--%s %q is not known%s: use %s", flag, word, spelling.Hint(word, words...), or(words))
}

// Disk adds errors of --ps-disk, which limits the disk space for rows beyond --ps-memory and must
// be at least least bytes; 0 means no limit.
func (f *Faults) Disk(memory, disk Size, least int64) {
	if disk > 0 && memory == 0 {
		f.Add("--ps-disk %s has no effect without --ps-memory", disk.String())
	} else if least := Size(least); disk > 0 && disk < least {
		f.Add("--ps-disk %s: want at least %s, or 0 for no limit", disk.String(), least.String())
	}
}

func or(words []string) string {
	if n := len(words) - 1; n > 0 {
		return strings.Join(words[:n], ", ") + " or " + words[n]
	}
	return strings.Join(words, "")
}

// Usage returns all errors as one command-line error, or nil.
func (f Faults) Usage() error { return Usage(errors.Join(f...)) }

// NoArguments rejects arguments after the flags.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("`%s` takes no argument, got %q", cmd.CommandPath(), args)
	}
	return nil
}

// OneArgument requires one argument, called noun, such as "a model", in errors with an example.
func OneArgument(noun, example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return Usagef("`%s` needs %s, for instance `%s %s`; see `%s --help`", cmd.CommandPath(), noun, cmd.CommandPath(), example, cmd.CommandPath())
		case 1:
			return nil
		}
		return Usagef("`%s` takes one %s, got %q", cmd.CommandPath(), noun[strings.Index(noun, " ")+1:], args)
	}
}

// Group returns a command with subcommands only; errors name similar ones.
func Group(cmd *cobra.Command, below ...*cobra.Command) *cobra.Command {
	cmd.Args = OnlySubcommands
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(below...)
	return cmd
}

// OnlySubcommands rejects unknown subcommands, with similar names.
func OnlySubcommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			known = append(known, sub.Name())
		}
	}
	hint := ""
	if near := spelling.Near(args[0], known...); len(near) > 0 {
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return Usagef("%q is not a command of `%s`%s; see `%s --help`", args[0], cmd.CommandPath(), hint, cmd.CommandPath())
}
