package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/console"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/launch"
)

func newBench() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure this machine: exchanges, steps, products, kernels, codecs, files, servers",
		Args:  console.OnlySubcommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Lookup("rank") != nil {
				return nil // it looks itself, beside what else is wrong
			}
			_, _, err := launch.FromEnv(os.LookupEnv)
			var faults faultList
			if faults.addOther(cmd, err); len(faults) > 0 {
				return usageError{faults[0]}
			}
			return nil
		},
	}
	cmd.AddCommand(newBenchAllReduce(sumOfRanks), newBenchCollective(), newBenchStep(), newBenchGemm(), newBenchKernels(), newBenchCodec(), newBenchRead(), newBenchPS())
	return cmd
}

// openBench is openOutput on rank 0; the others write nothing.
func openBench(cmd *cobra.Command, job *ringo.Job, path string) (console.Output, error) {
	if job.Rank() != 0 {
		return console.Output{}, nil
	}
	return console.Open(cmd, path)
}

// slowest returns, for each measurement, the time of the slowest rank.
func slowest(g *collective.Group, own []float64) ([]float64, error) {
	all := make([]float64, len(own)*g.Size())
	if err := collective.AllGather(g, all, own); err != nil {
		return nil, fmt.Errorf("gathering the times: %w", err)
	}
	out := slices.Clone(all[:len(own)])
	for i, v := range all {
		out[i%len(own)] = max(out[i%len(own)], v)
	}
	return out, nil
}

// median of x, which is not empty and gets sorted.
func median(x []float64) float64 {
	slices.Sort(x)
	if n := len(x); n%2 == 0 {
		return (x[n/2-1] + x[n/2]) / 2
	}
	return x[len(x)/2]
}
