package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/console"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/spelling"
)

// collectiveBench is `ringo bench collective`.
type collectiveBench struct {
	jobFlags
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
}

// maxBytes bounds --bytes and --floats: 4 GiB on each rank.
const maxBytes = 4 << 30

// collectiveResult is the line of JSON of one operation and size.
type collectiveResult struct {
	Bench     string `json:"bench"` // "collective"
	Op        string `json:"op"`
	NP        int    `json:"np"`
	Transport string `json:"transport"`
	Algorithm string `json:"algorithm"` // in force for this size; empty where there is no choice
	Buffer    string `json:"buffer"`
	Type      string `json:"type"`
	Redop     string `json:"redop"` // "none" where nothing is reduced
	Root      int    `json:"root"`  // -1 where there is none
	Bytes     int    `json:"bytes"` // of the larger operand
	Count     int    `json:"count"` // its values
	// Times are over samples, each as long as its slowest rank.
	MedianUS float64 `json:"median_us"`
	MinUS    float64 `json:"min_us"`
	// AlgBWGBPerS is bytes over time; BusBWGBPerS what a link carries for it, by
	// nccl-tests' factors.
	AlgBWGBPerS      float64 `json:"algbw_gb_s"`
	BusBWGBPerS      float64 `json:"busbw_gb_s"`
	BytesSentPerRank int64   `json:"bytes_sent_per_rank"` // payload, of the busiest rank
	Wrong            int64   `json:"wrong"`               // values
	Iterations       int     `json:"iterations"`
}

func newBenchCollective() *cobra.Command {
	c := &collectiveBench{}
	cmd := &cobra.Command{
		Use:   "collective",
		Short: "Time collective operations by size, type and algorithm, and verify every result",
		Long: "Time collective operations by size, type and algorithm, in the columns of nccl-tests.\n" +
			"Operands are rewritten before every call. Calls of more than 4 KiB are timed one by\n" +
			"one after a barrier, shorter ones 100 in a row, the rewriting included; a sample is\n" +
			"as long as its slowest rank, time the median of samples. Results are compared bit by bit.",
		Example: "  ringo bench collective --np 2 --op all --bytes 4096,1048576\n" +
			"  ringo bench collective --np 4 --op allreduce --type bfloat16 --redop mean --json -",
		Args: console.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.execute(cmd) },
	}
	fs := cmd.Flags()
	c.register(fs)
	fs.StringSliceVar(&c.ops, "op", []string{"allreduce"}, "`operations`: "+strings.Join(operations(), ", ")+", or all")
	fs.StringVar(&c.typ, "type", "float32", "of the values: "+strings.Join(typeNames(), ", "))
	fs.StringVar(&c.redop, "redop", "sum", "`reduction`, of operations that reduce: sum, mean, min, max, prod")
	fs.IntVar(&c.root, "root", 0, "`rank` that operations with a root have as root")
	fs.StringVar(&c.buffer, "buffer", "auto", "where operands lie: arena (memory that the ranks share), private, or auto (arena where there is one)")
	fs.IntSliceVar(&c.floats, "floats", []int{1, 256, 4096, 65536, 1 << 20, 4 << 20}, "`sizes` of the larger operand, in units of 4 bytes")
	fs.IntSliceVar(&c.bytes, "bytes", nil, "`sizes` in bytes instead")
	fs.BoolVar(&c.limit, "limit", false, "measure what bounds allreduce in shared memory instead: one pass that reads and writes all ranks' operands, the ranks not waiting for each other")
	fs.DurationVar(&c.budget, "time", 500*time.Millisecond, "about how long to measure each size: in 5 to 2,000 samples")
	fs.StringVar(&c.json, "json", "", "write one JSON object per operation and size to `FILE`, or to stdout with -")
	return cmd
}

func (c *collectiveBench) execute(cmd *cobra.Command) error {
	errs := c.check(cmd)
	errs = append(errs, c.checkWhat(cmd)...)
	if c.budget <= 0 {
		errs = append(errs, fmt.Errorf("--time %v: want a positive time", c.budget))
	}
	if err := errors.Join(errs...); err != nil {
		return usageError{err}
	}
	if err := c.checkOutputs(c.json, ""); err != nil {
		return err
	}
	return c.run(cmd, func(job *ringo.Job) error { return c.rank(cmd, job) })
}

// checkWhat reports faults of what is to be measured, and completes it.
func (c *collectiveBench) checkWhat(cmd *cobra.Command) []error {
	var faults faultList
	if slices.Contains(c.ops, "all") {
		c.ops = operations()
	}
	for _, op := range c.ops {
		if _, ok := shapes[op]; !ok {
			faults.add("--op %q is not known%s: use %s, or all", op, spelling.Hint(op, operations()...), strings.Join(operations(), ", "))
		}
	}
	typ, ok := elementTypes()[c.typ]
	if !ok {
		faults.add("--type %q is not known%s: use %s", c.typ, spelling.Hint(c.typ, typeNames()...), strings.Join(typeNames(), ", "))
	}
	switch _, known := reductionOf(c.redop); {
	case !known:
		faults.add("--redop %q is not known%s: use sum, mean, min, max or prod", c.redop, spelling.Hint(c.redop, "sum", "mean", "min", "max", "prod"))
	case ok && c.redop == "mean" && !typ.means:
		faults.add("--redop mean is not defined for --type %s: use sum", c.typ)
	}
	if c.root < 0 || c.root >= c.np {
		faults.add("--root %d: want a rank from 0 to %d, since --np is %d", c.root, c.np-1, c.np)
	}
	if !oneOf(c.buffer, "auto", "arena", "private") {
		faults.add("--buffer %q is not known%s: use auto, arena or private", c.buffer, spelling.Hint(c.buffer, "auto", "arena", "private"))
	}
	if (c.limit || c.buffer == "arena") && c.np > 1 && oneOf(c.transport, ringo.TransportTCP, "mem") {
		faults.add("--buffer arena, and --limit, need memory that the ranks share, which those of --transport %s do not: use --transport shm, or --buffer private", c.transport)
	}
	if c.limit && (c.buffer == "private" || c.typ != "float32" || !slices.Equal(c.ops, []string{"allreduce"})) {
		faults.add("--limit is of allreduce, of float32 in arenas: leave the other operations, types and buffers out")
	}
	return append(faults, c.checkSizes(cmd, typ.size)...)
}

// checkSizes turns the sizes into bytes, for values of so many.
func (c *collectiveBench) checkSizes(cmd *cobra.Command, value int) []error {
	var faults faultList
	sizes, unit := c.bytes, 1
	switch {
	case !cmd.Flags().Changed("bytes"):
		sizes, unit = c.floats, 4
	case cmd.Flags().Changed("floats"):
		faults.add("--bytes and --floats both give sizes: leave one out")
	}
	if len(sizes) == 0 {
		faults.add("no sizes: name at least one with --floats or --bytes")
	}
	c.bytes = nil
	for _, n := range sizes {
		if n < 0 || n > maxBytes/unit {
			faults.add("size %d: want 0 to %d", n, maxBytes/unit)
		}
		n *= unit
		if value > 0 && n%value != 0 {
			if cmd.Flags().Changed("bytes") || cmd.Flags().Changed("floats") {
				faults.add("size of %d bytes: want whole values of --type %s, %d bytes each", n, c.typ, value)
			}
			n += value - n%value // of the default sizes
		}
		c.bytes = append(c.bytes, n)
	}
	return faults
}

// reductionOf finds a reduction by its name.
func reductionOf(name string) (collective.Op, bool) {
	for _, op := range []collective.Op{collective.Sum, collective.Mean, collective.Min, collective.Max, collective.Prod} {
		if op.String() == name {
			return op, true
		}
	}
	return 0, false
}

// rank is what each rank does.
func (c *collectiveBench) rank(cmd *cobra.Command, job *ringo.Job) error {
	out, err := openBench(cmd, job, c.json)
	if err != nil {
		return err
	}
	err = c.measureAll(job, &out)
	return errors.Join(err, out.Close())
}

func (c *collectiveBench) measureAll(job *ringo.Job, out *console.Output) error {
	kind := c.buffer
	if c.limit {
		kind = "arena"
	}
	memory, err := newOperandMemory(job, kind, slices.Max(c.bytes))
	if err != nil {
		return err
	}
	out.Line("# %d ranks, %s, %s buffers, algorithm %s; time is the slowest rank's, median of samples",
		job.Size(), job.Transport(), memory.kind, c.algorithm)
	out.Line("#%11s %12s  %-14s %-8s %5s %5s %12s %8s %8s %7s", "size", "count", "operation", "type", "redop", "root", "time", "algbw", "busbw", "#wrong")
	out.Line("#%11s %12s  %-14s %-8s %5s %5s %12s %8s %8s %7s", "(B)", "(values)", "", "", "", "", "(us)", "(GB/s)", "(GB/s)", "")
	watch := &stopwatch{job: job, budget: c.budget}
	for _, op := range c.ops {
		for _, size := range c.sizesOf(op) {
			if err := c.one(watch, memory, out, op, size); err != nil {
				return err
			}
		}
	}
	return nil
}

// sizesOf are the sizes of an operation in bytes.
func (c *collectiveBench) sizesOf(op string) []int {
	if op == "barrier" {
		return []int{0}
	}
	return c.bytes
}

// one measures an operation of one size.
func (c *collectiveBench) one(watch *stopwatch, memory operandMemory, out *console.Output, op string, bytes int) error {
	job, typ, shape := watch.job, elementTypes()[c.typ], shapes[op]
	s := spec{g: job.Group(), op: op, typ: c.typ, count: bytes / typ.size, dst: memory.dst, src: memory.src}
	if shape.reduces {
		s.redop, _ = reductionOf(c.redop)
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

func (c *collectiveBench) result(job *ringo.Job, s spec, shape shape, t trial, found timing) collectiveResult {
	r := collectiveResult{
		Bench: "collective", Op: s.op, NP: job.Size(), Transport: job.Transport(), Algorithm: job.Group().Choice(strings.ReplaceAll(s.op, "-", ""), t.bytes),
		Type: s.typ, Redop: "none", Root: -1, Bytes: t.bytes, Count: s.count,
		MedianUS: found.median(), MinUS: found.us[0], BytesSentPerRank: found.sent, Wrong: found.wrong, Iterations: len(found.us),
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
