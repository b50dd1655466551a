package collectives

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/cli"
)

// allReduce is `ringo bench allreduce`.
type allReduce struct {
	bench.Ranks
	floats []int
	json   string
	budget time.Duration
	arrivals
	explain bool
	reduce  func(*collective.Group, []float32) error // function to time and verify
}

// maxFloats limits --floats: 4 GiB per rank.
const maxFloats = 1 << 30

// allReduceResult is the JSON line of a size.
type allReduceResult struct {
	Bench     string  `json:"bench"` // "allreduce"
	NP        int     `json:"np"`
	Transport string  `json:"transport"`
	Algorithm string  `json:"algorithm"`
	Floats    int     `json:"floats"`
	MedianUS  float64 `json:"median_us"` // median over samples of the slowest rank's time
	MinUS     float64 `json:"min_us"`
	// BytesSentPerRank is the payload per operation of the busiest rank.
	BytesSentPerRank int64 `json:"bytes_sent_per_rank"`
	// BusBWGBPerS is nccl-tests' bus bandwidth: bytes/time * 2(np-1)/np.
	BusBWGBPerS float64 `json:"busbw_gb_s"`
	Iterations  int     `json:"iterations"`
	*timeEach
}

// AllReduce is `ringo bench allreduce`, on ranks.
func AllReduce(ranks bench.Ranks) *cobra.Command {
	return allReduceBy(ranks, func(g *collective.Group, x []float32) error { return collective.AllReduce(g, x, collective.Sum) })
}

// allReduceBy returns the command for reduce; reduce must leave the sum on each rank.
func allReduceBy(ranks bench.Ranks, reduce func(*collective.Group, []float32) error) *cobra.Command {
	c := &allReduce{Ranks: ranks, reduce: reduce}
	cmd := &cobra.Command{
		Use:     "allreduce",
		Short:   "Benchmark allreduce by size and verify the sums",
		Example: "  ringo bench allreduce --np 4 --floats 1,256,65536,4194304 --json -",
		Args:    cli.NoArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.execute(cmd) },
	}
	c.Register(cmd)
	cmd.Flags().IntSliceVar(&c.floats, "floats", []int{1, 256, 4096, 65536, 1 << 20, 4 << 20}, "`sizes` in float32 values")
	cmd.Flags().DurationVar(&c.budget, "time", 500*time.Millisecond, "about how long to measure each size")
	cmd.Flags().BoolVar(&c.explain, "explain", false, "show which algorithms are in force, of all operations, and measure nothing")
	c.arrivals.register(cmd)
	cli.JSON(cmd, &c.json, "size")
	return cmd
}

func (c *allReduce) execute(cmd *cobra.Command) error {
	faults := cli.Faults(c.Check(cmd))
	faults.If(len(c.floats) == 0, "--floats is empty: name at least one size")
	for _, n := range c.floats {
		faults.Range("floats", n, 0, maxFloats)
	}
	faults.Budget("time", c.budget)
	c.arrivals.check(cmd, &faults)
	faults.If(c.explain && c.arrivals.on,
		"--gap and --skew have no effect with --explain, which measures nothing: leave them out")
	faults.If(c.explain && c.json != "", "--json has no effect with --explain, which measures nothing: leave it out")
	return run(cmd, c.Ranks, faults, c.json, c.rank)
}

// rank measures all sizes, or only explains.
func (c *allReduce) rank(job *ringo.Job, out *cli.Output) error {
	if c.explain {
		out.Line("%s", strings.TrimSuffix(job.Group().Explain(), "\n"))
		return nil
	}
	memory, err := newOperandMemory(job, "auto", 4*slices.Max(c.floats))
	if err != nil {
		return err
	}
	watch := &stopwatch{job: job, budget: c.budget, arrivals: c.arrivals}
	for _, n := range c.floats {
		job.SetStatus(fmt.Sprintf("allreduce of %d floats", n))
		r, err := c.measure(watch, memory, n)
		if err != nil {
			return err
		}
		if err := out.Result(r, "allreduce %9d floats  median %10.1f us  min %10.1f us  %7.3f GB/s bus  %d bytes sent per rank",
			r.Floats, r.MedianUS, r.MinUS, r.BusBWGBPerS, r.BytesSentPerRank); err != nil {
			return err
		}
	}
	return nil
}

// measure times a size for about c.budget.
func (c *allReduce) measure(watch *stopwatch, memory operandMemory, n int) (allReduceResult, error) {
	job := watch.job
	t := newTrial(spec{g: job.Group(), op: "allreduce", typ: "float32", count: n, dst: memory.dst}, float32s)
	x := bytesview.As[float32](memory.dst)[:n]
	t.call = func() error { return c.reduce(job.Group(), x) }
	found, err := watch.measure(t)
	if err == nil {
		err = watch.fault(found)
	}
	if err != nil {
		return allReduceResult{}, err
	}
	np := float64(job.Size())
	r := allReduceResult{
		Bench: "allreduce", NP: job.Size(), Transport: job.Transport(), Algorithm: job.Group().Choice("allreduce", t.bytes), Floats: n,
		MedianUS: found.median(), MinUS: found.us[0], BytesSentPerRank: found.sent, Iterations: len(found.us), timeEach: c.arrivals.result(found),
	}
	if r.MedianUS > 0 {
		r.BusBWGBPerS = 4 * float64(n) / (r.MedianUS * 1e3) * twice(np)
	}
	return r, nil
}
