package main

import (
	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/launch"
)

// guardCommand is the hidden command of the watchdog, which ends the workers of a killed launcher.
const guardCommand = "guard-workers"

func newWatchdog() *cobra.Command {
	return &cobra.Command{
		Use:    guardCommand,
		Hidden: true,
		Args:   cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return launch.Watchdog(cmd.InOrStdin())
		},
	}
}
