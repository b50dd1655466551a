package plan

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/costmodel"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/tune"
	"github.com/ringo-ml/ringo/model"
)

// quotaPeriod is Linux's default period of a container's CPU quota, in seconds.
const quotaPeriod = 0.1

// mostProcesses limits a described job with heter-trainers.
const mostProcesses = 4096

// heterResult is the JSON line with heter-trainers: predictions, except for costs.
type heterResult struct {
	Kind      string             `json:"kind"` // "heter"
	Model     string             `json:"model"`
	Batch     int                `json:"batch"` // batch per trainer
	Micros    int                `json:"micro_batches"`
	Trainers  []float64          `json:"trainers"` // processors of each
	Servers   []float64          `json:"servers"`
	Heters    []float64          `json:"heters"`
	Rate      float64            `json:"samples_per_s"`
	StepMS    float64            `json:"step_ms"`
	BoundsMS  map[string]float64 `json:"bounds_ms"` // minimum time per step of each role, without waits
	By        string             `json:"bound_by"`
	FillMS    float64            `json:"fill_ms"` // additional time of the step
	Whole     heterOption        `json:"whole"`   // best use of the same machines without splitting
	Best      heterOption        `json:"best"`    // best split of the same number of machines
	Pays      bool               `json:"pays"`
	CostsFrom string             `json:"costs_from"`
}

// heterOption is another use of the machines.
type heterOption struct {
	Trainers int     `json:"trainers"`
	Heters   int     `json:"heters"`
	Rate     float64 `json:"samples_per_s"`
	By       string  `json:"bound_by"`
	// Dear reports whether trainers use heter-trainers' machines.
	Dear bool `json:"on_heter_machines,omitempty"`
}

func optionOf(o costmodel.Option) heterOption {
	return heterOption{o.Trainers, o.Heters, o.Rate, o.By, o.Dear}
}

func (c *command) split() bool { return c.heter.count() > 0 }

// idleOfSplit returns the flags without effect for a job with heter-trainers.
func idleOfSplit() []string {
	return []string{"compute-ms", "strategy", "spars", "dlgs-every", "dlgs-rule", "memory", "algorithm", "plan", "bucket-bytes"}
}

// checkSplit checks the flags of a job with heter-trainers, and reads the named files.
func (c *command) checkSplit(spec model.Spec) error {
	var faults cli.Faults
	for _, flag := range idleOfSplit() {
		faults.If(c.changed(flag), "--%s has no effect with --heter: leave it out", flag)
	}
	all := c.ranks.count() + c.servers.count() + c.heter.count()
	faults.If(c.ranks.count() < 1 || c.servers.count() < 1 || all > mostProcesses,
		"--np %v, --servers %v and --heter %v: want at least one of each, and %d at most in all", &c.ranks, &c.servers, &c.heter, mostProcesses)
	faults.If(c.hosts != 1 && (c.hosts < all || c.hosts > mostProcesses),
		"--hosts %d: want 1, for all on one host, or at least %d, one for each process: those beyond are shared out, too", c.hosts, all)
	c.checkSplitLinks(&faults)
	faults.If(c.measure == (c.profile != ""), "want one of --measure and --cost-profile FILE with --heter")
	faults.If(c.html != "", "--html has no effect with --heter: it draws the steps of plans")
	faults.If(c.save != "" && !c.measure, "--save with --heter keeps what --measure finds: give both, or leave it out")
	c.checkMeasure(&faults)
	if c.profile != "" {
		p, err := tune.Load(c.profile)
		switch {
		case err != nil:
			faults.Add("--cost-profile: %w", err)
		case p.Heter == nil:
			faults.Add("--cost-profile %s has no costs of stages: bench/heter/mixes.py writes them, and --measure with --save does", c.profile)
		case p.Heter.Model != spec.Name:
			faults.Add("--cost-profile %s is of model %q, not of %s", c.profile, p.Heter.Model, spec.Name)
		default:
			c.costs = *p.Heter
		}
	}
	return faults.Usage()
}

func (c *command) checkSplitLinks(faults *cli.Faults) {
	for flag, unused := range map[string]bool{"inter": c.hosts == 1, "intra": c.hosts != 1} {
		faults.If(unused && c.changed(flag),
			"--%s has no effect with --heter and --hosts %d: leave it out", flag, c.hosts)
	}
	text, flag := c.intra, "intra"
	if c.hosts != 1 {
		text, flag = c.inter, "inter"
	}
	rate, err := parseRate(text)
	faults.If(err != nil, "--%s %w", flag, err)
	faults.If(c.latency < 0, "--latency %v: want 0 or more", c.latency)
	c.cluster = cluster{inter: rate, intra: rate, latency: c.latency.Seconds()}
}

func (c *command) executeSplit(cmd *cobra.Command, spec model.Spec) error {
	if err := c.checkSplit(spec); err != nil {
		return err
	}
	c.computeFrom = "of the profile"
	if c.measure {
		if err := c.measureSplit(spec, func() error { return context.Cause(cmd.Context()) }); err != nil {
			return err
		}
	}
	return cli.WithOutput(cmd, c.json, func(out *cli.Output) error {
		r := c.predictSplit()
		if err := out.Object(r); err != nil {
			return err
		}
		c.writeSplit(out.Lines, r)
		return nil
	})
}

func (c *command) measureSplit(spec model.Spec, stop func() error) (err error) {
	if c.costs, err = measuredCosts(spec, cmp.Or(c.batch, spec.Defaults.Batch), c.measuring(), stop); err != nil {
		return err
	}
	if c.save != "" {
		if err := tune.Save(c.save, tune.Profile{Heter: &c.costs}); err != nil {
			return fmt.Errorf("--save: %w", err)
		}
	}
	return nil
}

// predictSplit predicts the job, its machines without a split, and the best split of as many.
func (c *command) predictSplit() heterResult {
	batch := cmp.Or(c.batch, c.costs.Batch)
	x := costmodel.Mix{
		Trainers: c.ranks.cores(), Servers: c.servers.cores(), Heters: c.heter.cores(),
		Link: costmodel.Link{Rate: c.cluster.inter, Latency: c.cluster.latency}, Period: quotaPeriod,
	}
	f := c.costs.Split(x, batch)
	machines := max(len(x.Trainers)+len(x.Heters), c.hosts-len(x.Servers))
	whole := c.costs.Unsplit(x, batch)
	r := heterResult{
		Kind: "heter", Model: c.costs.Model, Batch: batch, Micros: c.costs.Micros, Trainers: x.Trainers, Servers: x.Servers, Heters: x.Heters,
		Rate: f.Rate, StepMS: 1e3 * f.Step, BoundsMS: map[string]float64{}, By: f.By, FillMS: 1e3 * f.Fill,
		Whole: optionOf(whole), Best: optionOf(c.costs.Best(x, batch, machines)), Pays: f.Rate > whole.Rate, CostsFrom: c.computeFrom,
	}
	for role, s := range f.Bounds {
		r.BoundsMS[role] = 1e3 * s
	}
	return r
}

func (c *command) writeSplit(to io.Writer, r heterResult) {
	if to == nil {
		return
	}
	costs, size := c.costs, float64(r.Batch)
	fmt.Fprintf(to, "%s split for %s: batch %d in %s; %s of a sample there, %s back\n", r.Model, heter.DeviceName, r.Batch, cli.Counted(r.Micros, "micro-batch"), cli.Bytes(costs.RequestBytes), cli.Bytes(costs.BackBytes))
	fmt.Fprintf(to, "%s\n%s\n%s\n", c.ranks.about("trainer"), c.servers.about("server"), c.heter.about("heter-trainer"))
	fmt.Fprintf(to, "links of %s, %s ms a message\n", rateText(c.cluster.inter), cli.Milliseconds(1e3*c.cluster.latency))
	fmt.Fprintf(to, "costs %s, in us of a processor for a sample:\n", c.computeFrom)
	each := func(cost ...costmodel.Cost) float64 {
		sum := 0.0
		for _, c := range cost {
			sum += c.Of(size)
		}
		return 1e6 * sum / size
	}
	fmt.Fprintf(to, "  split         trainer %6.1f  server %6.1f  heter-trainer %6.1f\n", each(costs.Read, costs.Pool, costs.Back, costs.OfSplit.Rows), each(costs.OfSplit.Serve), each(costs.Part))
	fmt.Fprintf(to, "  in one piece  trainer %6.1f  server %6.1f\n", each(costs.Read, costs.Pass, costs.OfWhole.Rows), each(costs.OfWhole.Serve))
	if costs.OfSplit.Serve.Of(size) == 0 {
		fmt.Fprintln(to, "  rows, servers and messages were not measured, and count nothing: a job's profile has them")
	}
	fmt.Fprintf(to, "\n%s samples/s, a step of %s ms: ", rateOf(r.Rate), cli.Milliseconds(r.StepMS))
	var parts []string
	for _, role := range []string{costmodel.Trainer, costmodel.Server, costmodel.HeterTrainer, costmodel.Links} {
		parts = append(parts, role+" "+cli.Milliseconds(r.BoundsMS[role]))
	}
	fmt.Fprintf(to, "%s\n  bound by %s, %s ms more until stages have followed each other\n", strings.Join(parts, ", "), r.By, cli.Milliseconds(r.FillMS))
	c.writeVerdict(to, r)
}

// writeVerdict prints whether splitting pays, and better options.
func (c *command) writeVerdict(to io.Writer, r heterResult) {
	where := ""
	if r.Whole.Dear {
		where = " on heter-trainers' machines"
	}
	fmt.Fprintf(to, "in one piece: %s samples/s with %s%s, bound by %s\n", rateOf(r.Whole.Rate), cli.Counted(r.Whole.Trainers, "trainer"), where, r.Whole.By)
	if r.Pays {
		fmt.Fprintf(to, "splitting pays: %s x\n", quantity.Float(r.Rate/r.Whole.Rate))
	} else {
		fmt.Fprintf(to, "splitting does not pay: %s x; %s\n", quantity.Float(r.Rate/r.Whole.Rate), c.reason(r))
	}
	fmt.Fprintf(to, "of %d machines best are %d:%d, %s samples/s, bound by %s\n", r.Best.Trainers+r.Best.Heters, r.Best.Trainers, r.Best.Heters, rateOf(r.Best.Rate), r.Best.By)
}

// reason returns the reason why splitting does not pay, with numbers.
func (c *command) reason(r heterResult) string {
	if busy := r.StepMS - r.FillMS; r.FillMS > busy {
		return fmt.Sprintf("a step of %s ms is %s ms of waiting for the stage before: larger batches would help", cli.Milliseconds(r.StepMS), cli.Milliseconds(r.FillMS))
	}
	switch r.By {
	case costmodel.HeterTrainer:
		return fmt.Sprintf("heter-trainers need %s ms of a step and trainers %s: more of the former would help", cli.Milliseconds(r.BoundsMS[r.By]), cli.Milliseconds(r.BoundsMS[costmodel.Trainer]))
	case costmodel.Links:
		return fmt.Sprintf("links carry %s of a sample across the cut, and need %s ms of a step", cli.Bytes(c.costs.RequestBytes+c.costs.BackBytes), cli.Milliseconds(r.BoundsMS[r.By]))
	case costmodel.Server:
		return fmt.Sprintf("servers need %s ms of a step either way: more of them would help", cli.Milliseconds(r.BoundsMS[r.By]))
	}
	return fmt.Sprintf("trainers need %s ms of a step though heter-trainers have %s ms of it", cli.Milliseconds(r.BoundsMS[r.By]), cli.Milliseconds(r.BoundsMS[costmodel.HeterTrainer]))
}

func rateOf(x float64) string {
	if x > math.MaxInt32 {
		return quantity.Float(x)
	}
	return cli.Grouped(int(math.Round(x)))
}
