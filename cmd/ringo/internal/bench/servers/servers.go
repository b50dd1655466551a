// Package servers is `ringo bench ps`: timing of pulls and pushes against a parameter server in a
// separate process, with verification of every row.
package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/server/loadgen"
	"github.com/ringo-ml/ringo/internal/server/store"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/schema"
)

// command is `ringo bench ps`.
type command struct {
	settings
	keys      int64
	dim       int
	optimizer string
	batches   []int
	dists     []string
	ops       []string
	insert    float64
	inFlight  int
	time      time.Duration
	repeat    int
	seed      uint64
	json      string

	drawn []loadgen.Dist // parsed dists
}

// Command is `ringo bench ps`.
func Command() *cobra.Command {
	c := &command{keys: 1_000_000, optimizer: "adagrad", ops: []string{"pull", "push"}}
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "Benchmark parameter-server pulls and pushes",
		Long: `Time pulls and pushes of rows of a table on a parameter server, a separate process that is
reached over loopback. First a push of each key creates all rows, while the server's memory
is measured. Then each operation is timed in two ways: with several batches in flight
(rows/s), and one batch at a time (p50, p99 and p99.9). A batch has no key twice, as in
training.

About a thousand rows are compared with their expected values, to the last bit. In the same
run, one thread copies (pull) or updates (push) rows of a plain array as large as the table,
at most 1 GiB, at precomputed places and with the same distribution as the keys: "of memory"
is rows/s as a share of that rate. "of latency" is a share of the rate of dependent copies:
each row has the place of the next one, anywhere in the array.`,
		Example: "  ringo bench ps --batch 1024,4096,16384 --dist uniform,zipf:0.99,zipf:1.2\n" +
			"  ringo bench ps --keys 10M --ps-memory 128MiB --ps-dir /ssd --dist zipf:0.99\n" +
			"  ringo bench ps --keys 50M --optimizer adagrad-rowwise --op pull --insert 0.1 --json -",
		Args: cli.NoArguments,
	}
	fs := cmd.Flags()
	fs.Var((*cli.Count)(&c.keys), "keys", "number of keys with rows before the timed operations, `N`, such as 10M or 500k (default 1M)")
	fs.IntVar(&c.dim, "dim", 16, "number of weights per row")
	cli.Choice(cmd, &c.optimizer, "optimizer", "optimizer of the server: "+strings.Join(optim.RowRules(), ", "), optim.RowRules()...)
	fs.IntSliceVar(&c.batches, "batch", []int{4096}, "rows per batch, a `list`")
	fs.StringSliceVar(&c.dists, "dist", []string{"uniform"}, "distribution of the keys, a `list` of uniform and zipf:S, such as zipf:0.99,zipf:1.2")
	cli.ChosenFrom(cmd, &c.ops, "op", "`operations`: pull, push, both (a pull and a push of the same keys)", "pull", "push", "both")
	fs.Float64Var(&c.insert, "insert", 0, "`share` of new keys in each batch, for which the server creates rows")
	fs.IntVar(&c.inFlight, "ahead", 3, "number of pulls in flight per client")
	fs.DurationVar(&c.time, "time", time.Second, "time of measurement, for each operation in each of the two ways")
	fs.IntVar(&c.repeat, "repeat", 3, "number of measurements, alternating between operations; rates are medians")
	fs.Uint64Var(&c.seed, "seed", 1, "seed of the drawn keys")
	c.register(cmd)
	progress := cli.ProgressFlag(cmd, "rows")
	cli.JSON(cmd, &c.json, "operation")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		bar, fault := progress()
		if err := errors.Join(c.check(cmd.Flags().Changed), fault); err != nil {
			return cli.Usage(err)
		}
		return cli.WithOutput(cmd, c.json, func(out *cli.Output) error { return c.run(cmd.Context(), out, bar) })
	}
	return cmd
}

// check returns all errors of the flags.
func (c *command) check(changed func(string) bool) error {
	var faults cli.Faults
	for _, d := range c.dists {
		dist, err := loadgen.ParseDist(d)
		faults.If(err != nil, "--dist %w", err)
		c.drawn = append(c.drawn, dist)
	}
	faults.If(len(c.batches) == 0 || len(c.dists) == 0 || len(c.ops) == 0,
		"--batch, --dist and --op: want at least one each")
	faults.Budget("time", c.time)
	faults.Range("repeat", c.repeat, 1, cli.MostTurns)
	faults.If(c.inFlight < 1, "--ahead %d: want at least 1", c.inFlight)
	faults.If(c.clients < 1, "--clients %d: want at least 1", c.clients)
	faults.If((c.memory > 0) != (c.dir != "") || c.disk > 0 && c.memory == 0,
		"--ps-memory %s and --ps-disk %s with --ps-dir %q: want a folder with a limit of memory, and none without", c.memory.String(), c.disk.String(), c.dir)
	faults.Disk(c.memory, c.disk, store.MinLimitBytes)
	cfg := loadgen.Config{Servers: []string{""}, Table: c.table(), Keys: uint64(c.keys), Clients: c.clients}
	if err := cfg.Validate(); err != nil {
		faults = append(faults, err)
	}
	for _, w := range c.works() {
		err := w.Validate(uint64(c.keys))
		told := func(fault error) bool { return fault.Error() == err.Error() } // error of another operation
		if err != nil && !slices.ContainsFunc(faults, told) {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

func (c *command) table() schema.Sparse {
	return schema.Sparse{
		Name: "bench", Dim: c.dim, Rule: schema.Rule{Name: c.optimizer, LR: 0.05}, Init: schema.Init{Name: "uniform", Value: 0.05},
	}
}

// works returns all cases in order, alternating between operations.
func (c *command) works() (out []loadgen.Work) {
	for _, d := range c.drawn {
		for _, batch := range c.batches {
			for _, op := range c.ops {
				out = append(out, loadgen.Work{Op: loadgen.Op(op), Dist: d, Batch: batch, Insert: c.insert, InFlight: c.inFlight})
			}
		}
	}
	return out
}

// errServerEnded is replaced by the reason of the server's end.
var errServerEnded = errors.New("the server has ended")

func (c *command) run(ctx context.Context, out *cli.Output, bar *cli.Progress) error {
	p, err := c.start(ctx)
	if err != nil {
		return err
	}
	watched, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	go func() {
		<-p.ended
		lost(errServerEnded)
	}()
	err = c.against(watched, p, out, bar)
	end := p.close(ctx, err == nil)
	if err == errServerEnded && end != nil {
		return end
	}
	return errors.Join(err, end)
}

// against measures a server until the trainers have left.
func (c *command) against(ctx context.Context, p *serverProcess, out *cli.Output, bar *cli.Progress) (err error) {
	m := &measurement{c: c, server: p, out: out}
	if m.empty, err = p.figures(ctx); err == nil {
		m.load, err = loadgen.Dial(ctx, loadgen.Config{
			Servers: []string{p.Addr}, Ticket: p.ticket, Version: ringo.Version, Table: c.table(), Keys: uint64(c.keys), Clients: c.clients, Seed: c.seed,
		})
	}
	if err != nil {
		return err
	}
	defer m.load.Close()
	if err := m.measure(ctx, bar); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startLimit) // the server may end from now on
	defer cancel()
	if err := m.load.Leave(ctx); err != nil {
		return fmt.Errorf("leaving the server: %w", err)
	}
	return nil
}

// measurement is one run against a server.
type measurement struct {
	c      *command
	server *serverProcess
	load   *loadgen.Load
	out    *cli.Output
	empty  serverFigures // metrics before the first row
	memory *loadgen.Memory
}

type work struct {
	work          loadgen.Work
	rates         []float64 // rows per second, by repetition
	us            []float64 // batches sent one at a time, ascending
	limits        []loadgen.Rates
	rows          int64
	sent, read    int64
	seconds       float64
	pulled, found int64 // keys looked up by the server, and keys found in memory
	cpu, gc       float64
	allocs        uint64
	batches       int64
	after         serverFigures
	keys          uint64 // number of keys afterwards
	checked       int
}

func (m *measurement) measure(ctx context.Context, bar *cli.Progress) error {
	if err := m.fill(ctx, bar); err != nil {
		return err
	}
	works := m.c.works()
	for len(works) > 0 { // operations of one batch size and distribution
		cases := make([]*work, len(m.c.ops))
		for i := range cases {
			cases[i] = &work{work: works[i]}
		}
		works = works[len(cases):]
		for range m.c.repeat {
			for _, k := range cases {
				if err := m.turn(ctx, k); err != nil {
					return err
				}
			}
		}
		for _, k := range cases {
			if err := m.report(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// turn measures a case once more.
func (m *measurement) turn(ctx context.Context, k *work) error {
	if err := m.limit(ctx, k); err != nil {
		return err
	}
	before, err := m.server.figures(ctx)
	if err != nil {
		return err
	}
	stream, err := m.load.Stream(ctx, k.work, m.c.time)
	if err != nil {
		return fmt.Errorf("%s of batches of %d: %w", k.work.Op, k.work.Batch, err)
	}
	single, err := m.load.Single(ctx, k.work, m.c.time)
	if err != nil {
		return fmt.Errorf("%s of single batches of %d: %w", k.work.Op, k.work.Batch, err)
	}
	if k.after, err = m.server.figures(ctx); err != nil {
		return err
	}
	k.add(stream, single, before, k.after)
	k.keys = m.load.Keys()
	k.checked, err = m.load.Check(ctx)
	return err
}

func (m *measurement) limit(ctx context.Context, k *work) error {
	if m.memory == nil {
		var err error
		if m.memory, err = loadgen.NewMemory(m.c.table(), uint64(m.c.keys)); err != nil {
			return err
		}
	}
	if err := m.memory.Draw(k.work.Dist, k.work.Batch); err != nil {
		return err
	}
	const time = 50 * time.Millisecond // duration of each measurement
	r, err := m.memory.Measure(ctx, time)
	k.limits = append(k.limits, r)
	return err
}

func (k *work) add(stream, single loadgen.Result, before, after serverFigures) {
	k.rates = append(k.rates, float64(stream.Rows)/stream.Seconds)
	k.us = append(k.us, single.MicrosecondsEachSorted...)
	slices.Sort(k.us)
	k.rows += stream.Rows
	k.sent += stream.SentBytes
	k.read += stream.ReadBytes
	k.seconds += stream.Seconds
	k.batches += stream.Batches + single.Batches
	was, is := before.table(), after.table()
	k.pulled += is.Pulled + is.Pushed - was.Pulled - was.Pushed
	k.found += is.Pulled + is.Pushed - is.Missed - (was.Pulled + was.Pushed - was.Missed)
	k.cpu += after.Process.CPUSeconds - before.Process.CPUSeconds
	k.gc += after.Process.GCSeconds - before.Process.GCSeconds
	k.allocs += after.Process.Allocs - before.Process.Allocs
}
