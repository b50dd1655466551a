package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/transport"
)

func newTicket() *cobra.Command {
	return &cobra.Command{
		Use:   "ticket [FILE]",
		Short: "Create a job's secret ticket",
		Long: "Create a ticket, the secret that the processes of one job share: in a new\n" +
			"FILE that only you may read, for --ticket-file or RINGO_TICKET_FILE, or as a line of\n" +
			"output, for RINGO_TICKET.\n\n" +
			"Only processes that ringo does not start need one. A job of its own makes its ticket itself.",
		Example: "  ringo ticket ~/.ringo-ticket\n" +
			"  srun -n 8 ringo train mnist --data mnist --ticket-file ~/.ringo-ticket",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), transport.NewTicket())
				return err
			}
			return rendezvous.NewTicket(args[0])
		},
	}
}
