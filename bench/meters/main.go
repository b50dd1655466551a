// Command meters times single parts of ringo against the limits of the machine: vector kernels,
// matrix products, the operations of a model's step, codecs, and reading click logs. `go run
// ./bench/meters --help` lists them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/bench/meters/codecs"
	"github.com/ringo-ml/ringo/bench/meters/kernels"
	"github.com/ringo-ml/ringo/bench/meters/operations"
	"github.com/ringo-ml/ringo/bench/meters/reading"
	"github.com/ringo-ml/ringo/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	root := cli.Group(&cobra.Command{Use: "meters", Short: "Time parts of ringo against the limits of this machine", SilenceErrors: true, SilenceUsage: true},
		kernels.Command(), kernels.Gemm(), operations.Command(), codecs.Command(), reading.Command())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.Usage(err) })
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "meters:", err)
		if cli.IsUsage(err) {
			os.Exit(cli.UsageError)
		}
		os.Exit(cli.Failed)
	}
}
