// Package plan is `ringo plan`: predictions of the gradient exchange and step time on a cluster.
package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/heter/costmodel"
	"github.com/ringo-ml/ringo/internal/placement"
	"github.com/ringo-ml/ringo/internal/tune"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/train"
)

// command is `ringo plan MODEL`.
type command struct {
	np, hosts             int       // np: ranks
	ranks, servers, heter processes // processes of a job with servers and heter-trainers
	costs                 costmodel.Costs
	inter, intra          string
	latency               time.Duration
	computeMS             float64
	measure               bool
	threads               int
	profile, save, html   string
	schema                string
	batch                 int
	strategy              string
	spars                 float64
	every                 int
	rule                  string
	memory                string
	algorithm             string
	plan                  string
	bucketBytes           int
	json                  string
	changed               func(flag string) bool
	cluster               cluster
	memoryRate            float64 // bytes per second
	chosen                strategyCost
	planners              []bucket.Named
	loaded                bucket.Profile // profile from --cost-profile
	computeFrom, linkFrom string         // sources of the costs, for the report
	codecFrom             string
}

// linksMeasured is the source of link costs from a profile.
const linksMeasured = "of the profile"

// Values of --plan in addition to the planners' names.
const (
	allPlans  = "all"   // compares the planners
	savedPlan = "saved" // plan in the profile
)

// strategyCost is a strategy's cost on the wire and in computation.
type strategyCost struct {
	name   string
	about  string
	unit   float64 // bytes per value; for entries dependent on the density
	sparse bool
	// exact and reuse are memory traffic in bytes per value. reuse is 0 if every step is exact.
	exact, reuse float64
	plan         string // only supported plan; "": any
	algorithm    string // only supported algorithm; "": any
}

// Memory traffic in bytes per value. Error feedback reads a gradient and a residual and writes one;
// exact selection first makes up to four passes over magnitudes; a cast reads four and writes two.
const (
	feedbackBytes  = 12
	selectionBytes = 4*4 + feedbackBytes
	castBytes      = 6
)

func strategyCosts() []strategyCost {
	return []strategyCost{
		{name: "fp32", about: "all values", unit: 4},
		{name: "fp16", about: "all values in half precision", unit: 2, exact: castBytes},
		{name: "bf16", about: "all values in bfloat16", unit: 2, exact: castBytes},
		{name: "sparseTopK", about: "the largest of each group", sparse: true, exact: selectionBytes},
		{name: "topk", about: "the largest of the whole model", sparse: true, exact: selectionBytes, plan: "one"},
		{name: "lags", about: "the largest of each layer", sparse: true, exact: selectionBytes, plan: "per-layer"},
		{name: "dlgs", about: "the largest of each group, by a threshold that is reused", sparse: true, exact: selectionBytes, reuse: feedbackBytes},
		{name: "naive", about: "all values, to rank 0 and back", unit: 4, algorithm: collective.Naive},
	}
}

// Command is `ringo plan`.
func Command() *cobra.Command {
	c := &command{ranks: some(2), servers: some(1), heter: some(0), strategy: "fp32", rule: string(compress.RuleCorrected)}
	cmd := &cobra.Command{
		Use:   "plan MODEL",
		Short: "Predict a training step's time on a cluster you describe",
		Long: "Predict the time of a training step, and of its gradient exchanges, on a cluster that the flags\ndescribe. The time of one worker's forward and backward is given (--compute-ms), and divided\n" +
			"among the layers by their work, or measured here (--measure), or read from a profile.\nWith --heter, plan predicts the samples per second of a click model with its dense layers on\nheter-trainers, the best numbers of machines of each kind, and whether the split pays.\n\nStrategies (sparse ones send a share --spars of the values):\n" + strategyHelp() + "\nPlans:\n" + planHelp(),
		Example: "  ringo plan lstm-300m --np 40 --hosts 5 --inter 6GB/s --intra 10GB/s \\\n    --latency 10us --compute-ms 370 --batch 32 --plan all\n" +
			"  ringo plan resnet50 --np 8 --hosts 8 --inter 1Gbit/s --measure --strategy dlgs\n" +
			"  ringo plan ctr-dnn --np 4x2 --servers 2 --heter 1x16 --hosts 8 --cost-profile FILE",
		Args: cli.OneArgument("a model", "mnist"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.execute(cmd, args[0]) },
	}
	fs := cmd.Flags()
	fs.Var(&c.ranks, "np", "number of `ranks` (workers)")
	fs.Var(&c.servers, "servers", "number of parameter `servers` of a job with --heter")
	fs.Var(&c.heter, "heter", "number of `heter-trainers`, to predict samples/s of a model split between ranks and heter-trainers, and the best ratio k:m; here, in --np and in --servers COUNTxPROCESSORS also sets the processors of each, such as 4x0.5 or 1x16,2x8; 0: no split")
	fs.IntVar(&c.hosts, "hosts", 1, "number of `hosts` that run the ranks")
	fs.StringVar(&c.inter, "inter", "1.25GB/s", "`rate` of a host's link to other hosts, in each direction, such as 6GB/s or 25Gbit/s")
	fs.StringVar(&c.intra, "intra", "10GB/s", "`rate` between two ranks of a host")
	fs.DurationVar(&c.latency, "latency", 10*time.Microsecond, "`time` of a message in addition to the time for its bytes")
	fs.Float64Var(&c.computeMS, "compute-ms", 0, "`ms` of forward and backward of one worker; or --measure, or --cost-profile")
	fs.BoolVar(&c.measure, "measure", false, "measure forward and backward here")
	fs.IntVar(&c.threads, "threads", 0, "compute `threads` of --measure; 0: this machine's cores")
	fs.StringVar(&c.profile, "cost-profile", "", "read layers, their times, and costs of codecs and links from `FILE`")
	fs.StringVar(&c.save, "save", "", "save a profile with the plan in `FILE`")
	fs.StringVar(&c.html, "html", "", "draw the predicted steps as a page in `FILE`")
	fs.StringVar(&c.schema, "layout", "", "`FILE` or name of the layout of a click model's samples, as for train (default: Criteo's)")
	cli.Former(fs, "profile", "cost-profile")
	cli.Former(fs, "schema", "layout")
	fs.IntVar(&c.batch, "batch", 0, "samples per rank (default: the model's)")
	cli.Choice(cmd, &c.strategy, "strategy", "strategy of the gradient exchange; see above", strategyNames()...)
	fs.Float64Var(&c.spars, "spars", distopt.DefaultSpars, "the `share` of values that sparse strategies send")
	fs.IntVar(&c.every, "dlgs-every", compress.DefaultEvery, "number of `steps` between two exact selections of dlgs")
	cli.Choice(cmd, &c.rule, "dlgs-rule", "`rule` of dlgs between two exact selections, corrected or paper; its costs are measured, or read from the profile", string(compress.RuleCorrected), string(compress.RulePaper))
	fs.StringVar(&c.memory, "memory", "10GB/s", "memory `rate` of a codec without measured costs (--measure, or a profile): a cast moves 6 bytes per value, an exact selection 28, a selection by a reused threshold 12")
	fs.StringVar(&c.algorithm, "algorithm", auto, "algorithm of the exchange of groups: ring, doubling, hierarchical or naive; for sparse entries allgather, tree, split, or dense-ring and so on; auto: the fastest for each group's size")
	cli.Choice(cmd, &c.plan, "plan", "`name` of a plan, see above (default: exact, or the only one that the strategy has)", planNames()...)
	fs.IntVar(&c.bucketBytes, "bucket-bytes", 0, "bytes of a group with --plan fixed; 0: 8 MiB, halved until a model has four groups")
	cli.JSON(cmd, &c.json, "plan")
	return cmd
}

func planNames() []string {
	return append(names(bucket.Planners(), func(p bucket.Named) string { return p.Name }), allPlans, savedPlan)
}

func strategyHelp() string {
	var b strings.Builder
	for _, s := range strategyCosts() {
		fmt.Fprintf(&b, "  %-12s %s\n", s.name, s.about)
	}
	return b.String()
}

func planHelp() string {
	var b strings.Builder
	for _, p := range bucket.Planners() {
		fmt.Fprintf(&b, "  %-12s %s\n", p.Name, p.About)
	}
	return b.String() + "  all          compare these, and show the one with the shortest step\n" +
		"  saved        what the profile has\n"
}

func (c *command) payload() bucket.Payload {
	if c.chosen.sparse {
		return bucket.Payload{Density: c.spars, Unit: entryBytes(c.spars)}
	}
	return bucket.Payload{Unit: c.chosen.unit}
}

// described returns the exchanges on the described cluster.
func (c *command) described() []way {
	if c.chosen.sparse {
		return c.cluster.sparse(c.payload(), bucket.Payload{Unit: 4})
	}
	return c.cluster.dense(c.payload())
}

func (c *command) execute(cmd *cobra.Command, model string) error {
	c.changed = cmd.Flags().Changed
	spec, err := models.Lookup(model)
	if err != nil {
		return cli.Usage(err)
	}
	if spec, err = c.shaped(spec); err != nil {
		return cli.Usage(err)
	}
	if c.np = c.ranks.count(); c.split() {
		return c.executeSplit(cmd, spec)
	}
	if err := c.check(spec); err != nil {
		return err
	}
	return cli.WithOutput(cmd, c.json, func(out *cli.Output) error {
		profile, err := c.profileFor(cmd, spec)
		if err != nil {
			return err
		}
		return c.report(out, spec, profile)
	})
}

// profileFor returns the model's profile from the source named by the flags.
func (c *command) profileFor(cmd *cobra.Command, spec model.Spec) (bucket.Profile, error) {
	batch := cmp.Or(c.batch, spec.Defaults.Batch)
	switch {
	case c.profile != "":
		c.computeFrom = "of the profile"
		return c.loaded, nil
	case c.measure:
		f, err := measuredProfile(spec, batch, c.measuring(), func() error { return context.Cause(cmd.Context()) })
		if err == nil && !c.changed("memory") {
			err = c.measureCodec(&f)
		}
		return f, err
	}
	c.computeFrom = "given, shared out by the layers' work"
	return outlineProfile(spec, batch, c.computeMS/1e3)
}

// measuring returns the threads of a measurement, and records it as the source of the costs.
func (c *command) measuring() int {
	threads := cmp.Or(c.threads, min(placement.Usable(), train.MaxThreads))
	c.computeFrom = "measured here on " + cli.Counted(threads, "thread")
	return threads
}

// code returns the wire encoding of dense values; empty for entries.
func (c *command) code() string {
	if c.chosen.sparse {
		return ""
	}
	return c.chosen.name
}

// ways returns the exchanges to compare: the profile's if it covers the cluster and no flag
// describes links, else the described ones.
func (c *command) ways(f bucket.Profile) []way {
	c.linkFrom = "described"
	ways := pick(c.described(), c.algorithm)
	if c.changed("inter") || c.changed("intra") || c.changed("latency") {
		return ways
	}
	measured := f.Sends(c.code(), c.payload(), c.np, c.hosts, 0)
	if c.chosen.sparse && !slices.ContainsFunc(f.Links, func(l bucket.LinkProfile) bool { return l.Density > 0 }) {
		for _, s := range f.Sends("fp32", bucket.Payload{Unit: 4}, c.np, c.hosts, 0) {
			s.Name = "dense-" + s.Name
			measured = append(measured, s)
		}
	}
	var out []way
	for _, s := range measured {
		w := way{Send: s}
		for _, d := range c.described() {
			if d.Name == s.Name {
				w.moved = d.moved
			}
		}
		out = append(out, w)
	}
	if out = pick(out, c.algorithm); len(out) > 0 {
		c.linkFrom = linksMeasured
		return out
	}
	return ways
}

func (c *command) codecName() string {
	if c.chosen.reuse == 0 {
		return c.chosen.name
	}
	return tune.CodecName(c.chosen.name, compress.Rule(c.rule))
}

// codec returns the strategy's cost of an exact step, and of one with a reused threshold.
func (c *command) codec(f bucket.Profile) bucket.CodecProfile {
	s := c.chosen
	p, ok := f.Codec(c.codecName(), c.spars)
	if !ok && s.sparse && s.reuse > 0 { // passes cost the same with any rule, but sizes differ
		p, ok = f.Codec(s.name, c.spars)
		p.Sent = 0
	}
	if !ok && s.sparse {
		p, ok = f.Codec("topk", c.spars) // selection costs are equal for all granularities
	}
	if c.codecFrom = "given"; s.exact == 0 {
		c.codecFrom = "none"
	}
	if ok && !c.changed("memory") {
		if c.codecFrom = "of the profile"; c.measure {
			c.codecFrom = "measured here on 1 thread"
		}
		if s.reuse == 0 {
			p.Reuse, p.Sent = p.Exact, 0
		}
		return p
	}
	p = bucket.CodecProfile{Exact: bucket.Curve{PerValue: s.exact / c.memoryRate}}
	if p.Reuse = p.Exact; s.reuse > 0 {
		p.Reuse.PerValue = s.reuse / c.memoryRate
	}
	return p
}

// contention returns the profile's slowdown by overlapping exchanges, zero for described links.
func (c *command) contention(f bucket.Profile) bucket.Contention {
	if c.linkFrom != linksMeasured {
		return bucket.Contention{}
	}
	if b := f.Contention(c.code(), c.payload(), c.np, c.hosts, 0); b != (bucket.Contention{}) {
		return b
	}
	return f.Contention("fp32", bucket.Payload{Unit: 4}, c.np, c.hosts, 0)
}
