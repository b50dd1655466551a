// Package cli is how the programs behind `ringo` speak: lines for a person, who may watch on a
// terminal, lines of JSON for machines, progress, numbers as words, and faults of the command line.
// It knows nothing of what they do.
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

// Exit statuses, as shells and schedulers read them.
const (
	Failed     = 1
	UsageError = 2 // of the command line, found before anything started
)

// usageError is a fault of the command line.
type usageError struct{ error }

// Unwrap returns the fault itself.
func (e usageError) Unwrap() error { return e.error }

// Usage makes err a fault of the command line, for which the command ends with status UsageError;
// nil stays nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// Usagef is a fault of the command line.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// IsUsage tells whether an error is a fault of the command line, or wraps one.
func IsUsage(err error) bool { return errors.As(err, new(usageError)) }

// Faults collects all that is wrong with a command line, to be told together. Flags are named without hyphens.
type Faults []error

// Add adds one, by a format of fmt.Errorf.
func (f *Faults) Add(format string, args ...any) { *f = append(*f, fmt.Errorf(format, args...)) }

// Error adds err unless it is nil.
func (f *Faults) Error(err error) {
	if err != nil {
		*f = append(*f, err)
	}
}

// Range adds a fault of a number that is not in [least, most].
func (f *Faults) Range(flag string, n, least, most int) {
	if n < least || n > most {
		f.Add("--%s %d: want %d to %d", flag, n, least, most)
	}
}

// Budget adds a fault of a time to measure that is not above 0, or more than an hour.
func (f *Faults) Budget(flag string, d time.Duration) {
	if d <= 0 || d > time.Hour {
		f.Add("--%s %v: want more than 0 and at most 1h", flag, d)
	}
}

// Known adds a fault of a word that is none of some, with the nearest of these.
func (f *Faults) Known(flag, word string, words ...string) {
	if !slices.Contains(words, word) {
		f.Add("--%s %q is not known%s: use %s", flag, word, spelling.Hint(word, words...), or(words))
	}
}

// Disk adds faults of --ps-disk, which bounds by at least so many bytes what --ps-memory leaves to a disk; 0: no limit.
func (f *Faults) Disk(memory, disk Size, least int64) {
	if disk > 0 && memory == 0 {
		f.Add("--ps-disk %s has no effect without --ps-memory", disk.String())
	} else if least := Size(least); disk > 0 && disk < least {
		f.Add("--ps-disk %s: want at least %s, or 0 for no limit", disk.String(), least.String())
	}
}

// or joins words as a choice.
func or(words []string) string {
	if n := len(words) - 1; n > 0 {
		return strings.Join(words[:n], ", ") + " or " + words[n]
	}
	return strings.Join(words, "")
}

// Usage is all of them as one fault of the command line; nil without any.
func (f Faults) Usage() error { return Usage(errors.Join(f...)) }

// NoArguments refuses words after the flags.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("`%s` takes no argument, got %q", cmd.CommandPath(), args)
	}
	return nil
}

// OneArgument wants exactly one word, which is a noun such as "a model" and looks like example.
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

// Group is a command that only has others below it. A word that is none of these is refused, with near ones.
func Group(cmd *cobra.Command, below ...*cobra.Command) *cobra.Command {
	cmd.Args = OnlySubcommands
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(below...)
	return cmd
}

// OnlySubcommands refuses a word that is not a subcommand, naming near ones.
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
