package main

import (
	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/launch"
)

// guardCommand is the hidden command that outlives a killed launcher and ends
// its workers.
const guardCommand = "guard-workers"

func newWatchdog() *cobra.Command {
	return &cobra.Command{
		Use:    guardCommand,
		Hidden: true,
		Args:   noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return launch.Watchdog(cmd.InOrStdin())
		},
	}
}
