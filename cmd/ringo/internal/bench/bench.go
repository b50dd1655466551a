// Package bench is the common part of `ringo bench`, with a package below for each program.
package bench

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/train"
)

// Ranks are the ranks that a command starts according to its flags.
type Ranks interface {
	// Register adds the flags for the number of ranks and their transport.
	Register(cmd *cobra.Command)
	// Check returns all errors of the flags. Call Check before the methods below.
	Check(cmd *cobra.Command) []error
	// Place returns the values of the flags.
	Place() Place
	// CheckOutputs reports files, including --json's, that cannot be written, before the start.
	CheckOutputs(json string) error
	// Run starts the ranks and waits or, in a process that is a rank, calls body.
	Run(cmd *cobra.Command, body func(*ringo.Job) error) error
}

// Place is the number of ranks and their transport.
type Place struct {
	// Ranks is the world size.
	Ranks int
	// Transport is the transport as given, possibly "auto".
	Transport string
	// Algorithm is the collective algorithm, or "auto".
	Algorithm string
}

// Trainers are ranks that train a model, with flags for batch size, exchange and timeline.
type Trainers interface {
	// Register adds all flags.
	Register(cmd *cobra.Command)
	// Check creates the training of a model on synthetic data, with the settings in usual as
	// defaults, and returns all errors. Call Check before the methods below.
	Check(cmd *cobra.Command, model string, usual ...setting.Assignment) []error
	// CheckOutputs and Run are as in Ranks.
	CheckOutputs(json string) error
	Run(cmd *cobra.Command, body func(*ringo.Job) error) error
	// Config returns the training.
	Config() train.Config
	// Traced calls body, and reports whether a timeline is drawn. A collective call.
	Traced(cmd *cobra.Command, job *ringo.Job, body func(traced bool) error) error
}

// WithOutput calls do with rank 0's output as in cli.WithOutput, discarded on other ranks.
func WithOutput(cmd *cobra.Command, job *ringo.Job, path string, do func(out *cli.Output) error) error {
	if job.Rank() != 0 {
		return do(new(cli.Output))
	}
	return cli.WithOutput(cmd, path, func(out *cli.Output) error {
		if where := job.Placement(); where != "" {
			out.Line("# ranks are %s", where)
		}
		return do(out)
	})
}

// Slowest returns the slowest rank's time of each measurement. A collective call.
func Slowest(g *collective.Group, own []float64) ([]float64, error) {
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

// Mean returns the mean of x, which must not be empty.
func Mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}
