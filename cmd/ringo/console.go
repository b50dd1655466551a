package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/cli"
)

// hasColours reports whether text on w has colours: on a terminal, unless NO_COLOR is set
// (no-color.org).
func hasColours(w io.Writer, env func(string) (string, bool)) bool {
	no, _ := env("NO_COLOR")
	term, _ := env("TERM")
	return cli.IsTerminal(w) && no == "" && term != "dumb"
}

// role prints a line about the start or the end of a process, unless its launcher is quiet.
func (g *commandSettings) role(cmd *cobra.Command, format string, a ...any) {
	if !g.quiet {
		fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", a...)
	}
}
