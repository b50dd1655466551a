// Package kernels is `meters kernels` and `meters gemm`: it times vector kernels, and compares with
// what limits them.
package kernels

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/median"
	"github.com/ringo-ml/ringo/internal/simd"
)

// command is `meters kernels`.
type command struct {
	only  []string
	level string
	time  time.Duration // per kernel
	json  string
}

// result is one kernel's line of JSON.
type result struct {
	Bench    string  `json:"bench"` // "kernels"
	Kernel   string  `json:"kernel"`
	Shape    string  `json:"shape"`
	Kernels  string  `json:"kernels"` // the instruction-set level
	MedianUS float64 `json:"median_us"`
	// What a kernel computes, or moves: values read plus values written, each
	// counted once. Only the one that limits it is given.
	GFlops float64 `json:"gflop_s,omitempty"`
	GBPerS float64 `json:"gb_s,omitempty"`
	// Limit is what Share is a share of: "fma", multiply-adds on registers alone,
	// or "memory", the fastest way to read and write arrays larger than the
	// caches, a copy or a pass in place. Both are measured in turns with the
	// kernel. One that reads more than it writes may exceed that.
	Limit       string  `json:"limit"`
	LimitGFlops float64 `json:"limit_gflop_s,omitempty"`
	LimitGBPerS float64 `json:"limit_gb_s,omitempty"`
	Share       float64 `json:"share_of_limit"` // 0: the level has no multiply-adds
	Iterations  int     `json:"iterations"`
}

// Command is `meters kernels`.
func Command() *cobra.Command {
	c := &command{}
	cmd := &cobra.Command{
		Use:   "kernels",
		Short: "Benchmark the vector kernels on one thread",
		Long: "Time each kernel on one thread, in turns with what limits it: passes over memory for\n" +
			"those that move it, multiply-adds on registers for those that compute.",
		Example: "  go run ./bench/meters kernels\n  go run ./bench/meters kernels --only conv,gemm --json -",
		Args:    cli.NoArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.execute(cmd) },
	}
	fs := cmd.Flags()
	cli.ChosenFrom(cmd, &c.only, "only", "kernels with one of these `words` in their name; none: all", names()...)
	levelFlag(cmd, &c.level)
	fs.DurationVar(&c.time, "time", 300*time.Millisecond, "about how long to measure each kernel")
	cli.JSON(cmd, &c.json, "kernel")
	return cmd
}

func (c *command) execute(cmd *cobra.Command) error {
	var faults cli.Faults
	level, err := simd.Lookup(c.level)
	if err != nil {
		faults.Add("--kernels: %w", err)
	}
	faults.Budget("time", c.time)
	chosen := c.chosen()
	if len(chosen) == 0 {
		faults.Add("--only %s: no kernel's name has it; there are %s", strings.Join(c.only, ","), strings.Join(names(), ", "))
	}
	if err := faults.Usage(); err != nil {
		return err
	}
	return cli.WithOutput(cmd, c.json, func(out *cli.Output) error {
		limits := newLimits(level)
		for _, k := range chosen {
			if err := context.Cause(cmd.Context()); err != nil {
				return err
			}
			r := limits.measure(k, c.time)
			if err := out.Result(r, "%s", r.line()); err != nil {
				return err
			}
		}
		return nil
	})
}

// chosen are the kernels that --only names.
func (c *command) chosen() []kernel {
	return slices.DeleteFunc(list(), func(k kernel) bool { return !cli.HasAny(k.name, c.only) })
}

// names are those of all kernels, each once.
func names() (names []string) {
	for _, k := range list() {
		if !slices.Contains(names, k.name) { // of other shapes
			names = append(names, k.name)
		}
	}
	return names
}

// levelFlag adds the flag that names an instruction set.
func levelFlag(cmd *cobra.Command, level *string) {
	*level = simd.Host().Name()
	var levels []string
	for _, k := range simd.Levels() {
		levels = append(levels, k.Name())
	}
	cli.Choice(cmd, level, "kernels", "instruction-set `level` to use", levels...)
}

// line is the result for a person.
func (r result) line() string {
	text := fmt.Sprintf("%-22s %-26s %10.1f us", r.Kernel, r.Shape, r.MedianUS)
	if r.Limit == "fma" {
		text += fmt.Sprintf("  %7.1f GFLOP/s", r.GFlops)
		if r.Share > 0 {
			text += fmt.Sprintf("  %3.0f%% of %.1f", 100*r.Share, r.LimitGFlops)
		}
		return text
	}
	return text + fmt.Sprintf("  %7.1f GB/s     %3.0f%% of %.1f", r.GBPerS, 100*r.Share, r.LimitGBPerS)
}

// limits measures what limits kernels.
type limits struct {
	level    *simd.Kernels
	dst, src []float32
}

// streamed is how many values an operand of a kernel that moves memory has: 64
// MiB, more than caches hold.
const streamed = 16 << 20

// peakFlops is how much is computed to measure the peak once: about 1 ms.
const peakFlops = 100_000_000

func newLimits(level *simd.Kernels) *limits {
	return &limits{level: level, dst: noise(streamed, 1), src: noise(streamed, 2)}
}

// measure times a kernel and its limit in turns.
func (l *limits) measure(k kernel, budget time.Duration) result {
	run, ways := k.make(l.level), l.memory()
	if k.flops > 0 {
		ways = []func() float64{l.peak}
	}
	run() // memory is faulted in, caches are as they will be
	var times []float64
	limits := make([][]float64, len(ways))
	for begun := time.Now(); len(times) < 3 || time.Since(begun) < budget; {
		way := len(times) % len(ways)
		limits[way] = append(limits[way], ways[way]())
		start := time.Now()
		run()
		times = append(times, time.Since(start).Seconds())
	}
	limit := 0.0
	for _, rates := range limits {
		limit = max(limit, median.Of(rates))
	}
	return k.result(l.level.Name(), times, limit)
}

// result sums up the times of a kernel with a limit in GFLOP/s or GB/s.
func (k kernel) result(level string, times []float64, limit float64) result {
	median := median.Of(times)
	r := result{
		Bench: "kernels", Kernel: k.name, Shape: k.shape, Kernels: level, MedianUS: 1e6 * median, Iterations: len(times),
	}
	rate := (k.flops + k.bytes) / median / 1e9
	if limit > 0 {
		r.Share = rate / limit
	}
	if k.flops > 0 {
		r.Limit, r.GFlops, r.LimitGFlops = "fma", rate, limit
	} else {
		r.Limit, r.GBPerS, r.LimitGBPerS = "memory", rate, limit
	}
	return r
}

// peak is the rate of multiply-adds on registers, in GFLOP/s.
func (l *limits) peak() float64 {
	start := time.Now()
	done := l.level.Peak(peakFlops)
	return float64(done) / time.Since(start).Seconds() / 1e9
}

// memory are ways to pass over memory, of which the fastest is the limit, in
// GB/s: the library's copy, the vector kernels' copy, and a pass in place.
func (l *limits) memory() []func() float64 {
	const row = 4096
	timed := func(pass func()) func() float64 {
		return func() float64 {
			start := time.Now()
			pass()
			return 8 * float64(len(l.src)) / time.Since(start).Seconds() / 1e9
		}
	}
	return []func() float64{
		timed(func() { copy(l.dst, l.src) }),
		timed(func() { l.level.CopyRows(l.dst, row, l.src, row, len(l.src)/row, row) }),
		timed(func() { l.level.Scale(l.src, 1) }),
	}
}
