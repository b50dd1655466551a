package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
)

// allReduceBench is `ringo bench allreduce`.
type allReduceBench struct {
	jobFlags
	floats []int
	json   string
	budget time.Duration
	reduce func(*collective.Group, []float32) error // what is timed and verified
}

// maxFloats bounds --floats: 4 GiB on each rank.
const maxFloats = 1 << 30

// allReduceResult is one size's line of JSON.
type allReduceResult struct {
	Bench     string  `json:"bench"` // "allreduce"
	NP        int     `json:"np"`
	Transport string  `json:"transport"`
	Algorithm string  `json:"algorithm"`
	Floats    int     `json:"floats"`
	MedianUS  float64 `json:"median_us"` // over iterations, each as long as its slowest rank
	MinUS     float64 `json:"min_us"`
	// BytesSentPerRank is the payload one operation makes the busiest rank send.
	BytesSentPerRank int64 `json:"bytes_sent_per_rank"`
	// BusBWGBPerS is nccl-tests' bus bandwidth: bytes/time * 2(np-1)/np.
	BusBWGBPerS float64 `json:"busbw_gb_s"`
	Iterations  int     `json:"iterations"`
}

// newBenchAllReduce returns the command that times reduce, which is to leave the
// sum over all ranks on each.
func newBenchAllReduce(reduce func(*collective.Group, []float32) error) *cobra.Command {
	c := &allReduceBench{reduce: reduce}
	cmd := &cobra.Command{
		Use:     "allreduce",
		Short:   "Time allreduce by size, and verify every sum",
		Example: "  ringo bench allreduce --np 4 --floats 1,256,65536,4194304 --json -",
		Args:    noArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.execute(cmd) },
	}
	c.register(cmd.Flags())
	cmd.Flags().IntSliceVar(&c.floats, "floats", []int{1, 256, 4096, 65536, 1 << 20, 4 << 20}, "`sizes` in float32 values")
	cmd.Flags().DurationVar(&c.budget, "time", 500*time.Millisecond, "about how long to measure each size")
	cmd.Flags().StringVar(&c.json, "json", "", "write one JSON object per size to `FILE`, or to stdout with -")
	return cmd
}

func (c *allReduceBench) execute(cmd *cobra.Command) error {
	errs := c.check(cmd)
	if len(c.floats) == 0 {
		errs = append(errs, errors.New("--floats is empty: name at least one size"))
	}
	for _, n := range c.floats {
		if n < 0 || n > maxFloats {
			errs = append(errs, fmt.Errorf("--floats %d: want 0 to %d", n, maxFloats))
		}
	}
	if c.budget <= 0 {
		errs = append(errs, fmt.Errorf("--time %v: want a positive time", c.budget))
	}
	if err := errors.Join(errs...); err != nil {
		return usageError{err}
	}
	return c.run(cmd, func(job *ringo.Job) error {
		out, err := openBench(cmd, job, c.json)
		if err != nil {
			return err
		}
		for _, n := range c.floats {
			job.SetStatus(fmt.Sprintf("allreduce of %d floats", n))
			r, err := c.measure(job, n)
			if err == nil {
				err = out.result(r, "allreduce %9d floats  median %10.1f us  min %10.1f us  %7.3f GB/s bus  %d bytes sent per rank",
					r.Floats, r.MedianUS, r.MinUS, r.BusBWGBPerS, r.BytesSentPerRank)
			}
			if err != nil {
				return errors.Join(err, out.close())
			}
		}
		return out.close()
	})
}

// measure times one size for about c.budget, 5 to 2,000 times.
func (c *allReduceBench) measure(job *ringo.Job, n int) (allReduceResult, error) {
	g, x := job.Group(), make([]float32, n)
	warm := make([]float64, 3)
	if err := c.timed(job, x, warm); err != nil {
		return allReduceResult{}, err
	}
	count := []int32{int32(min(2000, max(5, c.budget.Seconds()*1e6/max(1, median(warm)))))}
	if err := collective.Broadcast(g, count, 0); err != nil {
		return allReduceResult{}, err
	}
	before := job.Traffic().PayloadSent
	if err := c.reduce(g, x); err != nil {
		return allReduceResult{}, err
	}
	sent := []float64{float64(job.Traffic().PayloadSent - before)}
	times := make([]float64, count[0])
	if err := c.timed(job, x, times); err != nil {
		return allReduceResult{}, err
	}
	all, err := slowest(g, append(times, sent...))
	if err != nil {
		return allReduceResult{}, err
	}
	times, np := all[:len(times)], float64(job.Size())
	most := int64(all[len(times)])
	mid := median(times) // sorts
	r := allReduceResult{
		Bench: "allreduce", NP: job.Size(), Transport: job.Transport(), Algorithm: c.algorithm, Floats: n,
		MedianUS: mid, MinUS: times[0], BytesSentPerRank: most, Iterations: len(times),
	}
	if mid > 0 {
		r.BusBWGBPerS = 4 * float64(n) / (mid * 1e3) * 2 * (np - 1) / np
	}
	return r, nil
}

// timed fills us with the times of single operations in microseconds. Ranks
// start each together; every sum is verified.
func (c *allReduceBench) timed(job *ringo.Job, x []float32, us []float64) error {
	g := job.Group()
	for i := range us {
		if err := context.Cause(job.Context()); err != nil {
			return err // a group of one rank would not notice
		}
		fillRank(x, g.Rank())
		if err := collective.Barrier(g); err != nil {
			return err
		}
		start := time.Now()
		if err := c.reduce(g, x); err != nil {
			return err
		}
		us[i] = float64(time.Since(start).Nanoseconds()) / 1e3
		if err := verifySum(x, g.Size()); err != nil {
			return fmt.Errorf("rank %d, iteration %d: %w", g.Rank(), i, err)
		}
	}
	return nil
}

func sumOfRanks(g *collective.Group, x []float32) error {
	return collective.AllReduce(g, x, collective.Sum)
}

// fillRank gives rank's operand: whole numbers, whose sum is exact.
func fillRank(x []float32, rank int) {
	for i := range x {
		x[i] = float32((rank + 1) * (i%7 + 1))
	}
}

// verifySum reports the first value that is not the sum over all ranks.
func verifySum(x []float32, np int) error {
	sum := np * (np + 1) / 2
	for i := range x {
		if want := float32(sum * (i%7 + 1)); x[i] != want {
			return fmt.Errorf("allreduce of %d floats: value %d is %v, want %v", len(x), i, x[i], want)
		}
	}
	return nil
}
