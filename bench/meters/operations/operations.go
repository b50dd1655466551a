// Package operations is `meters operations`: it times each operation of a model's step on one
// thread and on several.
package operations

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/median"
	"github.com/ringo-ml/ringo/internal/randbatch"
	"github.com/ringo-ml/ringo/models"
)

// command is `meters operations MODEL`.
type command struct {
	batch, threads, rounds int
	eval                   bool
	json                   string
}

// result is a line of JSON: one pass of one operation, a sum over all of a kind and pass, or the whole.
type result struct {
	Bench   string `json:"bench"` // "operations"
	Model   string `json:"model"`
	Batch   int    `json:"batch"`
	Threads int    `json:"threads"`
	Of      string `json:"of"`               // "operation", "kind" or "all"
	Op      string `json:"op,omitempty"`     // such as "conv2d"
	Layer   string `json:"layer,omitempty"`  // its first parameter, if it has any
	Pass    string `json:"pass,omitempty"`   // "forward", "backward", "weights" or "input"
	Output  []int  `json:"output,omitempty"` // the result's shape
	times
	// HandoverUS is how long a word takes from one core to another and back: how far from each other the cores are that share. 0
	// where there is one.
	HandoverUS float64 `json:"handover_us,omitempty"`
	Rounds     int     `json:"rounds"`
}

// times are medians over rounds, in microseconds.
type times struct {
	// AloneUS is on one thread of one core, BesideUS with a copy of the model at the same on every other core: what cores
	// do to each other that share caches, memory and power, whoever computes on them.
	AloneUS  float64 `json:"alone_us"`
	BesideUS float64 `json:"beside_us"`
	// SharedUS is on all threads together, SerialUS what of it one thread did while the others had no part.
	SharedUS float64 `json:"shared_us"`
	SerialUS float64 `json:"serial_us"`
	// Speedup is alone over shared, OfLinear beside over threads x shared: 1 where threads that share the work get as much of
	// it done as if each had work of its own.
	Speedup  float64 `json:"speedup"`
	OfLinear float64 `json:"of_linear"`
}

// Command is `meters operations`.
func Command() *cobra.Command {
	c := &command{}
	cmd := &cobra.Command{
		Use:   "operations MODEL",
		Short: "Benchmark a model's operations on one and several threads",
		Long: `Times each operation of a model's step, forward and backward, in turns: on one thread,
with a copy of the model computing on every other core, and on several threads that
share each operation. Linear is what copies get done that have nothing to share. Operations
of less than a hundredth of the step are told in JSON alone; the update is not
timed.`,
		Example: "  go run ./bench/meters operations cifar-resnet20 --threads 2\n  go run ./bench/meters operations resnet50 --batch 1 --eval --json -",
		Args:    cli.OneArgument("a model", "mnist"),
		RunE:    func(cmd *cobra.Command, args []string) error { return c.execute(cmd, args[0]) },
	}
	fs := cmd.Flags()
	fs.IntVar(&c.batch, "batch", 0, "samples of a batch; 0: the model's own")
	fs.IntVar(&c.threads, "threads", 0, "`threads` that share an operation; 0: all cores")
	fs.IntVar(&c.rounds, "rounds", 15, "how often to measure each")
	fs.BoolVar(&c.eval, "eval", false, "time an evaluation: forward alone, of which nothing is kept")
	cli.JSON(cmd, &c.json, "operation")
	return cmd
}

func (c *command) execute(cmd *cobra.Command, model string) error {
	spec, err := models.Lookup(model)
	if err != nil {
		return cli.Usage(err)
	}
	cores := runtime.GOMAXPROCS(0)
	var faults cli.Faults
	faults.Range("batch", c.batch, 0, randbatch.MostSamples)
	faults.Range("threads", c.threads, 0, cores)
	faults.Range("rounds", c.rounds, 1, cli.MostTurns)
	if err := faults.Usage(); err != nil {
		return err
	}
	c.batch, c.threads = cmp.Or(c.batch, spec.Defaults.Batch), cmp.Or(c.threads, cores)
	return cli.WithOutput(cmd, c.json, func(out *cli.Output) error {
		m, err := newMeasure(spec, c.batch, c.threads, c.eval)
		if err != nil {
			return err
		}
		defer m.close()
		for round := range c.rounds {
			if err := context.Cause(cmd.Context()); err != nil {
				return err
			}
			m.round(round)
		}
		return c.report(spec.Name, m, out)
	})
}

// report tells of operations, kinds of them and the whole.
func (c *command) report(model string, m *measure, out *cli.Output) error {
	all := m.whole.median(c.threads)
	apart := 0.0
	if c.threads > 1 {
		apart = median.Of(m.handovers)
		out.Line("# a word takes %.2f us from one core to another and back", apart)
	}
	out.Line("%-52s %10s %10s %10s %9s %8s %6s", "us", "alone", "beside", "shared", "serial", "speedup", "linear")
	tell := func(r result, shown bool) error {
		r.Bench, r.Model, r.Batch, r.Threads, r.Rounds, r.HandoverUS = "operations", model, c.batch, c.threads, c.rounds, apart
		if !shown {
			return out.Object(r)
		}
		return out.Result(r, "%s", r.line())
	}
	var kinds []result
	for _, p := range m.passes {
		t := p.median(c.threads)
		r := result{Of: "operation", Op: p.op, Layer: p.layer, Pass: p.pass, Output: p.output, times: t}
		if err := tell(r, t.AloneUS >= all.AloneUS/100); err != nil {
			return err
		}
		kinds = addKind(kinds, r)
	}
	for _, k := range kinds {
		k.times.rate(c.threads)
		if err := tell(k, true); err != nil {
			return err
		}
	}
	return tell(result{Of: "all", times: all}, true)
}

// addKind adds an operation's times to those of its kind and pass.
func addKind(kinds []result, r result) []result {
	i := slices.IndexFunc(kinds, func(k result) bool { return k.Op == r.Op && k.Pass == r.Pass })
	if i < 0 {
		return append(kinds, result{Of: "kind", Op: r.Op, Pass: r.Pass, times: r.times})
	}
	k := &kinds[i].times
	k.AloneUS += r.AloneUS
	k.BesideUS += r.BesideUS
	k.SharedUS += r.SharedUS
	k.SerialUS += r.SerialUS
	return kinds
}

// line is the result for a person.
func (r result) line() string {
	name := r.Op + " " + r.Pass
	switch r.Of {
	case "operation":
		name = fmt.Sprintf("%s %s %v", name, r.Layer, r.Output)
	case "kind":
		name = "all " + name
	default:
		name = "all"
	}
	return fmt.Sprintf("%-52s %10.1f %10.1f %10.1f %9.1f %8.2f %6.2f", name, r.AloneUS, r.BesideUS, r.SharedUS, r.SerialUS, r.Speedup, r.OfLinear)
}

// rate compares the times.
func (t *times) rate(threads int) {
	if t.SharedUS > 0 {
		t.Speedup, t.OfLinear = t.AloneUS/t.SharedUS, t.BesideUS/t.SharedUS/float64(threads)
	}
}
