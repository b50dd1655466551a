package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// Short names of functions in package cli.

func counted(n int, noun string) string    { return cli.Counted(n, noun) }
func grouped(n int) string                 { return cli.Grouped(n) }
func bytesOf(n int64) string               { return quantity.Traffic(float64(n)) }
func inLines(names []string) string        { return cli.InLines(names) }
func helpColumns(w io.Writer) int          { return cli.HelpColumns(w) }
func isTerminal(w io.Writer) bool          { return cli.IsTerminal(w) }
func columnsOf(w io.Writer) int            { return cli.Columns(w) }
func usagef(format string, a ...any) error { return cli.Usagef(format, a...) }

func noArguments(cmd *cobra.Command, args []string) error { return cli.NoArguments(cmd, args) }
func onlySubcommands(cmd *cobra.Command, args []string) error {
	return cli.OnlySubcommands(cmd, args)
}
