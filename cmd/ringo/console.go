package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/console"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// What most files here say by package console.

func counted(n int, noun string) string    { return console.Counted(n, noun) }
func grouped(n int) string                 { return console.Grouped(n) }
func bytesOf(n int64) string               { return quantity.Traffic(float64(n)) }
func inLines(names []string) string        { return console.InLines(names) }
func helpColumns(w io.Writer) int          { return console.HelpColumns(w) }
func isTerminal(w io.Writer) bool          { return console.IsTerminal(w) }
func columnsOf(w io.Writer) int            { return console.Columns(w) }
func usagef(format string, a ...any) error { return console.Usagef(format, a...) }

func noArguments(cmd *cobra.Command, args []string) error { return console.NoArguments(cmd, args) }
func onlySubcommands(cmd *cobra.Command, args []string) error {
	return console.OnlySubcommands(cmd, args)
}
