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
		Long: "Create a ticket, the secret shared by the processes of a job: in a new FILE that\n" +
			"only you can read, for --ticket-file or RINGO_TICKET_FILE, or without FILE on stdout,\n" +
			"for RINGO_TICKET.\n" +
			"\n" +
			"Only processes that ringo does not start need a ticket; a job that ringo starts creates\n" +
			"one automatically.",
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
