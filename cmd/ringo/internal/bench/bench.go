// Package bench is what the measuring programs behind `ringo bench` share. Each is a package below this one.
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

// Ranks are the ranks that a command starts as its flags say.
type Ranks interface {
	// Register adds the flags that say which ranks there are and how they talk.
	Register(cmd *cobra.Command)
	// Check reports every fault of those flags. It comes before all below.
	Check(cmd *cobra.Command) []error
	// Place is what they say.
	Place() Place
	// CheckOutputs reports files that cannot be written, that of --json among them, before ranks are started.
	CheckOutputs(json string) error
	// Run plays the role of this process: it starts the ranks and waits for them, or is one; body is what a rank does.
	Run(cmd *cobra.Command, body func(*ringo.Job) error) error
}

// Place says which ranks there are, and how they talk.
type Place struct {
	// Ranks is the world size.
	Ranks int
	// Transport is as it was given: "auto", perhaps.
	Transport string
	// Algorithm is that of operations that have it, or "auto".
	Algorithm string
}

// Trainers are ranks that train a model. Their flags say besides how large batches are, how gradients travel, by what
// that is chosen, and whether a timeline is drawn.
type Trainers interface {
	// Register adds all flags.
	Register(cmd *cobra.Command)
	// Check makes the training of a model on synthetic data, with usual settings where nothing else is given, and reports
	// every fault. It comes before all below.
	Check(cmd *cobra.Command, model string, usual ...setting.Assignment) []error
	// CheckOutputs and Run are those of Ranks.
	CheckOutputs(json string) error
	Run(cmd *cobra.Command, body func(*ringo.Job) error) error
	// Config is the training.
	Config() train.Config
	// Traced has a rank do body, and says whether a timeline is drawn of it. It is a collective call.
	Traced(cmd *cobra.Command, job *ringo.Job, body func(traced bool) error) error
}

// WithOutput has a rank do what it tells of: rank 0 as cli.WithOutput, the others without writing.
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

// Slowest returns, for each measurement, the time of the slowest rank. It is a collective call.
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

// Mean of x, which is not empty.
func Mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}
