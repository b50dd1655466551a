// Package codecs is `meters codec`: it times the stages of codecs on one thread.
package codecs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/median"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/simd"
)

// command is `meters codec`.
type command struct {
	values []int
	ratios []float64
	data   []string
	only   []string
	time   time.Duration // per measurement
	arena  int
	json   string
}

// result is one stage's line of JSON.
type result struct {
	Bench   string  `json:"bench"`           // "codec"
	Codec   string  `json:"codec"`           // "dlgs", "payload", "int8"
	Stage   string  `json:"stage"`           // "reuse", "exact", "encode"
	Data    string  `json:"data"`            // what the gradients are drawn from
	Values  int     `json:"values"`          // of the group
	Arena   int     `json:"arena"`           // of the values that calls go through, group after group
	Ratio   float64 `json:"ratio,omitempty"` // of the values that shall be sent; none: all are
	Density float64 `json:"density"`         // of those that were
	// MedianUS is the time of one call, GBPerS what it must read and write: of a
	// selection the gradient once and the residual twice, of a code values and bytes.
	MedianUS float64 `json:"median_us"`
	GBPerS   float64 `json:"gb_s"`
	// StreamUS is one streaming pass over gradient and residual, which adds the one
	// to the other, measured in turns with the stage; Streams is the median of the
	// quotients.
	StreamUS      float64 `json:"stream_us"`
	StreamGBPerS  float64 `json:"stream_gb_s"`
	Streams       float64 `json:"streams"`
	BytesPerEntry float64 `json:"bytes_per_entry,omitempty"` // of payloads, headers included
	Kernels       string  `json:"kernels"`
	Iterations    int     `json:"iterations"`
}

// mostValues bounds the memory that a measurement takes: 4 GiB.
const mostValues = 1 << 28

// Command is `meters codec`.
func Command() *cobra.Command {
	c := &command{data: []string{"normal", "heavy"}}
	cmd := &cobra.Command{
		Use:   "codec",
		Short: "Benchmark the codecs on one thread",
		Long: "Time each stage of the codecs on one thread, in turns with one streaming pass over\n" +
			"gradient and residual. Every call gets another gradient; residuals and thresholds\nare as after many steps. One group alone stays in the caches that it fits; with\n" +
			"--arena, calls go through many groups, as a step does, and find residuals where the\nstep before has left them.\n\n" +
			"Codecs and stages:\n" + cli.InLines(stageNames()),
		Example: "  go run ./bench/meters codec\n  go run ./bench/meters codec --only dlgs,payload --values 4096,65536 --ratio 0.01 --json -",
		Args:    cli.NoArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.execute(cmd) },
	}
	fs := cmd.Flags()
	fs.IntSliceVar(&c.values, "values", []int{1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}, "`lengths` of groups")
	fs.Float64SliceVar(&c.ratios, "ratio", []float64{0.001, 0.01, 0.1}, "`shares` of the values that are sent")
	cli.ChosenFrom(cmd, &c.data, "data", "`distributions` of gradients: normal, or heavy, with tails like those of real ones", "normal", "heavy")
	cli.ChosenFrom(cmd, &c.only, "only", "stages with one of these `words` in codec/stage; none: all", stageNames()...)
	fs.DurationVar(&c.time, "time", 20*time.Millisecond, "about how long to measure each stage")
	fs.IntVar(&c.arena, "arena", 0, "selections and passes go through groups of so many `values` together; 0: one group alone")
	cli.JSON(cmd, &c.json, "measurement")
	return cmd
}

func (c *command) execute(cmd *cobra.Command) error {
	var faults cli.Faults
	for _, n := range c.values {
		faults.Range("values", n, 1, mostValues)
	}
	faults.Range("arena", c.arena, 0, mostValues)
	for _, r := range c.ratios {
		if !(r > 0 && r <= 1) {
			faults.Add("--ratio %s: want more than 0 and at most 1", quantity.Exact(r))
		}
	}
	if len(c.data) == 0 {
		faults.Add("--data is empty: name normal or heavy")
	}
	for _, d := range c.data {
		faults.Known("data", d, "normal", "heavy")
	}
	faults.Budget("time", c.time)
	if !slices.ContainsFunc(stageNames(), c.chosen) {
		faults.Add("--only %s: no stage's name has it; there are %s", strings.Join(c.only, ","), strings.Join(stageNames(), ", "))
	}
	if err := faults.Usage(); err != nil {
		return err
	}
	return cli.WithOutput(cmd, c.json, func(out *cli.Output) error { return c.run(cmd.Context(), out) })
}

// run measures gradients of all kinds and lengths.
func (c *command) run(ctx context.Context, out *cli.Output) error {
	out.Line("%-10s %-8s %-7s %10s %7s %8s %11s %8s %9s %12s", "codec", "stage", "data", "values", "ratio", "density", "us", "GB/s", "streams", "bytes/entry")
	for _, data := range c.data {
		for _, n := range c.values {
			if err := c.measure(ctx, newScene(data, n, max(1, c.arena/n)), out); err != nil {
				return err
			}
		}
	}
	return nil
}

// chosen tells whether --only names a stage, "codec/stage".
func (c *command) chosen(stage string) bool { return cli.HasAny(stage, c.only) }

// measure times all stages with gradients of one kind and length.
func (c *command) measure(ctx context.Context, scene *scene, out *cli.Output) error {
	one := func(ratio float64, stages []stage) error {
		for _, s := range stages {
			if !c.chosen(s.name()) {
				continue
			}
			if err := context.Cause(ctx); err != nil {
				return err
			}
			r, err := scene.measure(s, ratio, c.time)
			if errors.Is(err, errNeverHolds) {
				out.Line("%-10s %-8s %-7s %10d %7v %8s  not measured: %v", s.codec, s.part, scene.data, scene.n, ratio, "-", err)
				continue
			}
			if err != nil {
				return fmt.Errorf("%s of %d values: %w", s.name(), scene.n, err)
			}
			if err := out.Result(r, "%s", r.line()); err != nil {
				return err
			}
		}
		return nil
	}
	for _, ratio := range c.ratios {
		if err := one(ratio, sparseStages()); err != nil {
			return err
		}
	}
	return one(0, denseStages())
}

// line is the result for a person.
func (r result) line() string {
	ratio, entry := "-", "-"
	if r.Ratio > 0 {
		ratio = fmt.Sprint(r.Ratio)
	}
	if r.BytesPerEntry > 0 {
		entry = fmt.Sprintf("%.2f", r.BytesPerEntry)
	}
	return fmt.Sprintf("%-10s %-8s %-7s %10d %7s %8.4f %11.2f %8.1f %9.2f %12s",
		r.Codec, r.Stage, r.Data, r.Values, ratio, r.Density, r.MedianUS, r.GBPerS, r.Streams, entry)
}

// errNeverHolds says that no batch of calls was without an exact selection: of a handful
// of entries a threshold lets through none every few steps.
var errNeverHolds = errors.New("thresholds of so few entries do not hold")

// measure times a stage and the streaming pass in turns.
func (s *scene) measure(of stage, ratio float64, budget time.Duration) (result, error) {
	run, err := of.make(s, ratio)
	if err != nil {
		return result{}, err
	}
	stream, runs := call{call: s.stream}, *run
	passes, calls := s.calls(stream.call), s.calls(runs.call)
	var us, streams, quotients []float64
	for begun := time.Now(); len(us) < 3 || time.Since(begun) < budget; {
		a, err := stream.timed(passes)
		if err != nil {
			return result{}, err
		}
		b, err := runs.timed(calls)
		if err != nil {
			return result{}, err
		}
		if b == 0 { // it did something else
			if time.Since(begun) > budget+time.Second {
				return result{}, errNeverHolds
			}
			continue
		}
		us, streams, quotients = append(us, b), append(streams, a), append(quotients, b/a)
	}
	r := result{
		Bench: "codec", Codec: of.codec, Stage: of.part, Data: s.data, Values: s.n, Arena: s.n * s.groups, Ratio: ratio, Density: runs.density(),
		MedianUS: median.Of(us), StreamUS: median.Of(streams), Streams: median.Of(quotients), Kernels: simd.Host().Name(), Iterations: len(us) * calls,
	}
	r.GBPerS = run.bytes() / r.MedianUS / 1e3
	r.StreamGBPerS = 12 * float64(s.n) / r.StreamUS / 1e3
	if run.perEntry != nil {
		r.BytesPerEntry = run.perEntry()
	}
	return r, nil
}

// leastBatch is how long a batch of calls takes at least: long against looking at
// the clock.
const leastBatch = 20 * time.Microsecond

// calls is how many calls make a batch.
func (s *scene) calls(call func() error) int {
	for n := 1; ; n *= 2 {
		start := time.Now()
		for range n {
			if call() != nil {
				return 1 // timed says why
			}
		}
		if time.Since(start) >= leastBatch {
			return n
		}
	}
}

// call is something that is timed.
type call struct {
	call     func() error
	other    func() bool // whether the last call did something else, and does not count
	density  func() float64
	bytes    func() float64
	perEntry func() float64
}

// timed returns the microseconds of one call of a batch, 0 if any does not count.
func (c *call) timed(calls int) (float64, error) {
	other := false
	start := time.Now()
	for range calls {
		if err := c.call(); err != nil {
			return 0, err
		}
		if c.other != nil && c.other() {
			other = true
		}
	}
	took := time.Since(start)
	if other {
		return 0, nil
	}
	return float64(took.Nanoseconds()) / 1e3 / float64(calls), nil
}
