// Package collectives is `ringo bench collective` and `ringo bench allreduce`: timing and
// verification of collective operations.
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
	"github.com/ringo-ml/ringo/internal/cli"
)

// command is `ringo bench collective`.
type command struct {
	bench.Ranks
	ops    []string
	typ    string
	redop  string
	root   int
	buffer string
	floats []int
	bytes  []int
	limit  bool
	json   string
	budget time.Duration
	arrivals
}

// reductions returns all reductions, in the order of the help.
func reductions() []collective.ReduceOp {
	return []collective.ReduceOp{collective.Sum, collective.Mean, collective.Min, collective.Max, collective.Prod}
}

func reductionNames() (names []string) {
	for _, op := range reductions() {
		names = append(names, op.String())
	}
	return names
}

// buffers returns the possible locations of operands.
func buffers() []string { return []string{"auto", "arena", "private"} }

// maxBytes limits --bytes and --floats: 4 GiB per rank.
const maxBytes = 4 << 30

// result is the JSON line of an operation and size.
type result struct {
	Bench     string `json:"bench"` // "collective"
	Op        string `json:"op"`
	NP        int    `json:"np"`
	Transport string `json:"transport"`
	Algorithm string `json:"algorithm"` // algorithm for this size; empty without a choice
	Buffer    string `json:"buffer"`
	Type      string `json:"type"`
	Redop     string `json:"redop"` // "none" without a reduction
	Root      int    `json:"root"`  // value -1 without a root
	Bytes     int    `json:"bytes"` // bytes of the larger operand
	Count     int    `json:"count"` // values of the larger operand
	// MedianUS and the other times are over samples of the slowest rank's time.
	MedianUS float64 `json:"median_us"`
	MinUS    float64 `json:"min_us"`
	// AlgBWGBPerS is bytes over time; BusBWGBPerS is the link bandwidth by nccl-tests' factors.
	AlgBWGBPerS      float64 `json:"algbw_gb_s"`
	BusBWGBPerS      float64 `json:"busbw_gb_s"`
	BytesSentPerRank int64   `json:"bytes_sent_per_rank"` // payload of the busiest rank
	Wrong            int64   `json:"wrong"`               // wrong values
	Iterations       int     `json:"iterations"`
	*timeEach
}

// Command is `ringo bench collective`, on ranks.
func Command(ranks bench.Ranks) *cobra.Command {
	c := &command{Ranks: ranks, ops: []string{"allreduce"}, typ: "float32", redop: "sum", buffer: "auto"}
	cmd := &cobra.Command{
		Use:   "collective",
		Short: "Benchmark collectives by size, type and algorithm",
		Long: "Time collective operations by size, type and algorithm, in the columns of nccl-tests.\n" +
			"Operands are rewritten before every call. Calls of more than 4 KiB are timed individually,\n" +
			"after a barrier; shorter calls 100 in a row, with the rewriting. A sample is the time of its\n" +
			"slowest rank, and the result is the median of the samples. Results are compared bit by bit.\n" +
			"With --gap or --skew the ranks compute between calls; the time of a call is then from the\n" +
			"arrival of the last rank until the last rank has finished.",
		Example: "  ringo bench collective --np 2 --op all --bytes 4096,1048576\n" +
			"  ringo bench collective --np 4 --op allreduce --type bfloat16 --redop mean --json -",
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.execute(cmd) },
	}
	fs := cmd.Flags()
	c.Register(cmd)
	cli.ChosenFrom(cmd, &c.ops, "op", "`operations`: "+strings.Join(operations(), ", ")+", or all", append(operations(), "all")...)
	cli.Choice(cmd, &c.typ, "type", "type of the values: "+strings.Join(typeNames(), ", "), typeNames()...)
	cli.Choice(cmd, &c.redop, "redop", "`reduction` of operations that reduce: sum, mean, min, max, prod", reductionNames()...)
	fs.IntVar(&c.root, "root", 0, "root `rank` of operations with a root")
	cli.Choice(cmd, &c.buffer, "buffer", "memory of the operands: arena (memory shared by the ranks), private, or auto (arena if available)", buffers()...)
	fs.IntSliceVar(&c.floats, "floats", []int{1, 256, 4096, 65536, 1 << 20, 4 << 20}, "`sizes` of the larger operand, in units of 4 bytes")
	fs.IntSliceVar(&c.bytes, "bytes", nil, "`sizes` in bytes instead")
	fs.BoolVar(&c.limit, "limit", false, "measure the bound of allreduce in shared memory instead: one pass that reads and writes all ranks' operands, without waits between ranks")
	fs.DurationVar(&c.budget, "time", 500*time.Millisecond, "approximate time of measurement per size, in 5 to 2,000 samples")
	c.arrivals.register(cmd)
	cli.JSON(cmd, &c.json, "operation and size")
	return cmd
}

func (c *command) execute(cmd *cobra.Command) error {
	faults := cli.Faults(c.Check(cmd))
	c.checkWhat(cmd, &faults)
	faults.Budget("time", c.budget)
	c.arrivals.check(cmd, &faults)
	faults.If(c.limit && c.arrivals.on,
		"--gap and --skew have no effect with --limit, in which no rank waits: remove them")
	return run(cmd, c.Ranks, faults, c.json, c.rank)
}

// run starts the ranks, unless the flags have faults, and calls rank on each.
func run(cmd *cobra.Command, ranks bench.Ranks, faults cli.Faults, json string, rank func(*ringo.Job, *cli.Output) error) error {
	if err := faults.Usage(); err != nil {
		return err
	}
	if err := ranks.CheckOutputs(json); err != nil {
		return err
	}
	return ranks.Run(cmd, func(job *ringo.Job) error {
		return bench.WithOutput(cmd, job, json, func(out *cli.Output) error { return rank(job, out) })
	})
}

// checkWhat checks the operations to measure, and completes the flags.
func (c *command) checkWhat(cmd *cobra.Command, faults *cli.Faults) {
	if slices.Contains(c.ops, "all") {
		c.ops = operations()
	}
	for _, op := range c.ops {
		faults.Known("op", op, append(operations(), "all")...)
	}
	typ, ok := elementTypes()[c.typ]
	faults.Known("type", c.typ, typeNames()...)
	faults.Known("redop", c.redop, reductionNames()...)
	faults.If(ok && c.redop == "mean" && !typ.means, "--redop mean is not defined for --type %s: use sum", c.typ)
	at := c.Place()
	faults.If(c.root < 0 || c.root >= at.Ranks,
		"--root %d: want a rank from 0 to %d, since --np is %d", c.root, at.Ranks-1, at.Ranks)
	faults.Known("buffer", c.buffer, buffers()...)
	if (c.limit || c.buffer == "arena") && at.Ranks > 1 && slices.Contains([]string{ringo.TransportTCP, "mem"}, at.Transport) {
		faults.Add("--buffer arena, and --limit, need memory that the ranks share, which those of --transport %s do not: use --transport shm, or --buffer private", at.Transport)
	}
	if c.limit && (c.buffer == "private" || c.typ != "float32" || !slices.Equal(c.ops, []string{"allreduce"})) {
		faults.Add("--limit is of allreduce, of float32 in arenas: leave the other operations, types and buffers out")
	}
	c.checkSizes(cmd, typ.size, faults)
}

// checkSizes converts the sizes to bytes, for values of the given size.
func (c *command) checkSizes(cmd *cobra.Command, value int, faults *cli.Faults) {
	sizes, unit := c.bytes, 1
	switch {
	case !cmd.Flags().Changed("bytes"):
		sizes, unit = c.floats, 4
	case cmd.Flags().Changed("floats"):
		faults.Add("--bytes and --floats both give sizes: leave one out")
	}
	faults.If(len(sizes) == 0, "no sizes: name at least one with --floats or --bytes")
	c.bytes = nil
	for _, n := range sizes {
		faults.If(n < 0 || n > maxBytes/unit, "size %d: want 0 to %d", n, maxBytes/unit)
		n *= unit
		if value > 0 && n%value != 0 {
			faults.If(cmd.Flags().Changed("bytes") || cmd.Flags().Changed("floats"),
				"size of %d bytes: want whole values of --type %s, %d bytes each", n, c.typ, value)
			n += value - n%value // rounds default sizes up
		}
		c.bytes = append(c.bytes, n)
	}
}

func reductionOf(name string) collective.ReduceOp {
	i := slices.Index(reductionNames(), name)
	return reductions()[i]
}

func (c *command) rank(job *ringo.Job, out *cli.Output) error {
	kind := c.buffer
	if c.limit {
		kind = "arena"
	}
	memory, err := newOperandMemory(job, kind, slices.Max(c.bytes))
	if err != nil {
		return err
	}
	out.Line("# %d ranks, %s, %s buffers, algorithm %s; time is %s, median of samples",
		job.Size(), job.Transport(), memory.kind, c.Place().Algorithm, c.arrivals.timed())
	out.Line("#%11s %12s  %-14s %-8s %5s %5s %12s %8s %8s %7s", "size", "count", "operation", "type", "redop", "root", "time", "algbw", "busbw", "#wrong")
	out.Line("#%11s %12s  %-14s %-8s %5s %5s %12s %8s %8s %7s", "(B)", "(values)", "", "", "", "", "(us)", "(GB/s)", "(GB/s)", "")
	watch := &stopwatch{job: job, budget: c.budget, arrivals: c.arrivals}
	for _, op := range c.ops {
		for _, size := range c.sizesOf(op) {
			if err := c.one(watch, memory, out, op, size); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *command) sizesOf(op string) []int {
	if op == "barrier" {
		return []int{0}
	}
	return c.bytes
}

func (c *command) one(watch *stopwatch, memory operandMemory, out *cli.Output, op string, bytes int) error {
	job, typ, shape := watch.job, elementTypes()[c.typ], shapes[op]
	s := spec{g: job.Group(), op: op, typ: c.typ, count: bytes / typ.size, dst: memory.dst, src: memory.src}
	if shape.reduces {
		s.redop = reductionOf(c.redop)
	}
	if shape.rooted {
		s.root = c.root
	}
	if shape.chunked {
		s.count -= s.count % job.Size()
	}
	job.SetStatus(fmt.Sprintf("%s of %d values", op, s.count))
	t := typ.trial(s)
	if c.limit {
		t = memory.onePass(s.g, t, s.count)
	}
	found, err := watch.measure(t)
	if err != nil {
		return err
	}
	r := c.result(job, s, shape, t, found)
	r.Buffer = memory.kind
	redop, root := r.Redop, fmt.Sprint(r.Root)
	if err := out.Result(r, "%12d %12d  %-14s %-8s %5s %5s %12.2f %8.2f %8.2f %7d",
		r.Bytes, r.Count, r.Op, r.Type, redop, root, r.MedianUS, r.AlgBWGBPerS, r.BusBWGBPerS, r.Wrong); err != nil {
		return err
	}
	return watch.fault(found)
}

func (c *command) result(job *ringo.Job, s spec, shape shape, t trial, found timing) result {
	r := result{
		Bench: "collective", Op: s.op, NP: job.Size(), Transport: job.Transport(), Algorithm: job.Group().Choice(strings.ReplaceAll(s.op, "-", ""), t.bytes),
		Type: s.typ, Redop: "none", Root: -1, Bytes: t.bytes, Count: s.count,
		MedianUS: found.median(), MinUS: found.us[0], BytesSentPerRank: found.sent, Wrong: found.wrong, Iterations: len(found.us), timeEach: c.arrivals.result(found),
	}
	if c.limit {
		r.Algorithm = "limit"
	}
	if shape.reduces {
		r.Redop = s.redop.String()
	}
	if shape.rooted {
		r.Root = s.root
	}
	if r.MedianUS > 0 {
		r.AlgBWGBPerS = float64(t.bytes) / (r.MedianUS * 1e3)
		r.BusBWGBPerS = r.AlgBWGBPerS * shape.bus(float64(r.NP))
	}
	return r
}
