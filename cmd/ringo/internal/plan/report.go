package plan

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/tune"
	"github.com/ringo-ml/ringo/model"
)

// result is the JSON line of a plan. Times are predictions. With a reused threshold, times are of
// the mean step, and the parts add up to step_ms.
type result struct {
	Kind      string  `json:"kind"` // "plan"
	Model     string  `json:"model"`
	Params    int     `json:"params"`
	Bytes     int     `json:"gradient_bytes"` // bytes of the arena in single precision
	Layers    int     `json:"layers"`
	Batch     int     `json:"batch"` // batch per rank
	NP        int     `json:"np"`
	Hosts     int     `json:"hosts"`
	Strategy  string  `json:"strategy"`
	Spars     float64 `json:"spars,omitempty"`
	Every     int     `json:"dlgs_every,omitempty"`
	Rule      string  `json:"dlgs_rule,omitempty"`
	Plan      string  `json:"plan"`
	SHA256    string  `json:"plan_sha256"`
	StepMS    float64 `json:"step_ms"`
	ComputeMS float64 `json:"compute_ms"`          // forward and backward: lower bound of the step
	SlowedMS  float64 `json:"slowed_ms,omitempty"` // slowdown by concurrent exchanges
	SelectMS  float64 `json:"compress_ms"`
	ExposedMS float64 `json:"exposed_comm_ms"`
	UpdateMS  float64 `json:"update_ms"`
	// StepExactMS and StepReuseMS are set for strategies with exact and other steps.
	StepExactMS float64 `json:"step_exact_ms,omitempty"`
	StepReuseMS float64 `json:"step_reuse_ms,omitempty"`
	// BytesSent is the number of bytes sent by a rank per step, or the mean if ranks differ.
	BytesSent float64 `json:"bytes_sent"`
	// NaiveOneWayMS and NaiveMS are the naive exchange's times: to rank 0 only, and there and back.
	NaiveOneWayMS float64 `json:"naive_one_way_ms,omitempty"`
	NaiveMS       float64 `json:"naive_ms,omitempty"`

	ComputeFrom string  `json:"compute_from"`
	LinksFrom   string  `json:"links_from"`
	CodecFrom   string  `json:"codec_from"` // "none" without a codec
	Groups      []group `json:"groups"`
}

// group is a bucket in a result, in sending order. Times are since the step's start.
type group struct {
	First    string  `json:"first_layer"`
	Last     string  `json:"last_layer"`
	Layers   int     `json:"layers"`
	Values   int     `json:"values"`
	Bytes    float64 `json:"bytes"` // payload per rank
	By       string  `json:"algorithm"`
	ReadyMS  float64 `json:"ready_ms"` // gradients are final
	SelectMS float64 `json:"select_end_ms"`
	SendMS   float64 `json:"send_ms"` // exchange starts
	AgreedMS float64 `json:"agreed_ms"`
}

func (c *command) report(out *cli.Output, spec model.Spec, f bucket.Profile) error {
	results, steps, err := c.predict(spec, f)
	if err != nil {
		return err
	}
	best := 0
	for i, r := range results {
		if r.StepMS <= results[best].StepMS*(1+1e-9) { // the most elaborate of equal planners
			best = i
		}
		if err := out.Object(r); err != nil {
			return err
		}
	}
	if c.save != "" {
		if err := f.SavePlan(c.plan, steps[0].plan); err != nil {
			return err
		}
		if err := tune.Save(c.save, tune.Profile{Planner: &f}); err != nil {
			return fmt.Errorf("--save: %w", err)
		}
	}
	if c.html != "" {
		if err := dirlock.WriteFile(c.html, func(w io.Writer) error { return c.writePage(w, results, steps) }); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	c.write(out.Lines, results, best)
	return nil
}

// predict computes all requested plans with their timelines.
func (c *command) predict(spec model.Spec, f bucket.Profile) (results []result, steps []drawnStep, err error) {
	ways := c.ways(f)
	step := f.Step()
	step.Costs = bucket.Costs{Sends: sendsOf(ways), Contention: c.contention(f)}
	exact, reuse, mean := step.Kinds(c.codec(f), c.every)
	if err := mean.Validate(); err != nil {
		return nil, nil, err
	}
	for _, planner := range c.planners {
		p := c.planBy(planner, mean)
		r := c.result(spec, f, mean, p, ways)
		r.Plan = planner.Name
		if c.chosen.reuse > 0 {
			r.Every, r.Rule = c.every, c.rule
			r.StepExactMS, r.StepReuseMS = 1e3*bucket.Predict(exact, p).Total, 1e3*bucket.Predict(reuse, p).Total
		}
		results, steps = append(results, r), append(steps, drawnStep{mean, p})
	}
	return results, steps, nil
}

// planBy plans as a job does, if the costs were measured.
func (c *command) planBy(planner bucket.Named, s bucket.Step) bucket.Plan {
	if c.linkFrom == linksMeasured {
		return tune.Plan(planner, s)
	}
	return planner.Plan(s)
}

func (c *command) result(spec model.Spec, f bucket.Profile, s bucket.Step, p bucket.Plan, ways []way) result {
	t := bucket.Predict(s, p)
	r := result{
		Kind: "plan", Model: f.Model, Params: spec.Params, Layers: len(s.Layers), Batch: f.Batch, NP: c.np, Hosts: c.hosts,
		Strategy: c.chosen.name, SHA256: p.SHA256(), StepMS: 1e3 * t.Total, ComputeMS: 1e3 * (t.Compute - t.Selecting - t.Busy), SlowedMS: 1e3 * t.Busy,
		SelectMS: 1e3 * t.Selecting, ExposedMS: 1e3 * t.Exposed, UpdateMS: 1e3 * s.Update, ComputeFrom: c.computeFrom, LinksFrom: c.linkFrom, CodecFrom: c.codecFrom,
	}
	if c.chosen.sparse {
		r.Spars = c.spars
	}
	for i, b := range p {
		g := t.Buckets[i]
		r.Bytes += 4 * b.Len()
		r.Groups = append(r.Groups, group{
			First: s.Layers[b.First].Name, Last: s.Layers[b.Last].Name, Layers: b.Last - b.First + 1, Values: b.Len(), Bytes: g.Bytes, By: g.By,
			ReadyMS: 1e3 * g.Select.Start, SelectMS: 1e3 * g.Select.End, SendMS: 1e3 * g.Send.Start, AgreedMS: 1e3 * g.Send.End,
		})
		if w := slices.IndexFunc(ways, func(w way) bool { return w.Name == g.By }); w >= 0 {
			r.BytesSent += ways[w].moved * g.Bytes
		}
	}
	if c.algorithm == collective.Naive {
		oneWay, both := c.cluster.naiveTimes(float64(r.Bytes))
		r.NaiveOneWayMS, r.NaiveMS = 1e3*oneWay.Seconds(), 1e3*both.Seconds()
	}
	return r
}

// write writes the text report, in at most 80 columns.
func (c *command) write(to io.Writer, results []result, best int) {
	if to == nil {
		return
	}
	r := results[best]
	fmt.Fprintf(to, "%s  %s in %s, %s of gradients, batch %d\n", r.Model, cli.Counted(r.Params, "parameter"), cli.Counted(r.Layers, "layer"), cli.Bytes(float64(r.Bytes)), r.Batch)
	if r.Bytes < 4*r.Params {
		fmt.Fprintln(to, "the other parameters are rows of tables, which travel as they are touched")
	}
	if r.LinksFrom == "described" {
		fmt.Fprintln(to, c.cluster)
	} else {
		fmt.Fprintf(to, "%s on %s: links %s\n", cli.Counted(c.np, "rank"), cli.Counted(c.hosts, "host"), r.LinksFrom)
	}
	fmt.Fprintf(to, "compute %s ms, %s\n", cli.Milliseconds(r.ComputeMS), r.ComputeFrom)
	if r.CodecFrom == "given" {
		fmt.Fprintf(to, "codec at %s of memory (--memory)\n", rateText(c.memoryRate))
	} else if r.CodecFrom != "none" {
		fmt.Fprintf(to, "codec %s\n", r.CodecFrom)
	}
	if r.NaiveMS > 0 {
		fmt.Fprintf(to, "exchange %s ms one way, as it is often quoted; %s ms there and back\n", cli.Milliseconds(r.NaiveOneWayMS), cli.Milliseconds(r.NaiveMS))
	}
	if len(results) > 1 {
		writeComparison(to, results, best)
	}
	fmt.Fprintf(to, "\n%s, plan %s: %s, step %s ms\n  = compute %s", strategyText(r), r.Plan, cli.Counted(len(r.Groups), "group"), cli.Milliseconds(r.StepMS), cli.Milliseconds(r.ComputeMS))
	if r.SlowedMS > 0 {
		fmt.Fprintf(to, " + slowed %s", cli.Milliseconds(r.SlowedMS))
	}
	if r.SelectMS > 0 {
		fmt.Fprintf(to, " + codec %s", cli.Milliseconds(r.SelectMS))
	}
	fmt.Fprintf(to, " + exposed %s", cli.Milliseconds(r.ExposedMS))
	if r.UpdateMS > 0 {
		fmt.Fprintf(to, " + update %s", cli.Milliseconds(r.UpdateMS))
	}
	fmt.Fprintln(to)
	if r.StepReuseMS > 0 {
		fmt.Fprintf(to, "  exact steps %s ms, one of %d; others %s ms\n", cli.Milliseconds(r.StepExactMS), r.Every, cli.Milliseconds(r.StepReuseMS))
	}
	fmt.Fprintf(to, "  a rank sends %s a step; plan_sha256 %.16s\n\n", cli.Bytes(r.BytesSent), r.SHA256)
	writeGroups(to, r)
}

func strategyText(r result) string {
	if r.Spars == 0 {
		return r.Strategy
	}
	return fmt.Sprintf("%s at %s%s", r.Strategy, quantity.Exact(r.Spars), cli.After(", rule ", r.Rule))
}

func writeComparison(to io.Writer, results []result, best int) {
	fmt.Fprintf(to, "\n%-10s %7s %10s %10s %10s %8s  %s\n", "plan", "groups", "step ms", "codec", "exposed", "longer", "plan_sha256")
	for _, r := range results {
		longer := 100 * (r.StepMS/results[best].StepMS - 1)
		fmt.Fprintf(to, "%-10s %7d %10s %10s %10s %7.1f%%  %.12s\n", r.Plan, len(r.Groups), cli.Milliseconds(r.StepMS), cli.Milliseconds(r.SelectMS), cli.Milliseconds(r.ExposedMS), longer, r.SHA256)
	}
}

func writeGroups(to io.Writer, r result) {
	fmt.Fprintf(to, "%-27s %8s %8s %8s %8s  %s\n", "group", "payload", "ready", "send", "agreed", "by")
	for _, g := range r.Groups {
		fmt.Fprintf(to, "%-27s %8s %8s %8s %8s  %s\n", g.name(27), cli.Bytes(g.Bytes), cli.Milliseconds(g.ReadyMS), cli.Milliseconds(g.SendMS), cli.Milliseconds(g.AgreedMS), g.By)
	}
}

// name returns the first layer's name and the number of further layers, in the given columns.
func (g group) name(columns int) string {
	more := ""
	if g.Layers > 1 {
		more = fmt.Sprintf(" +%d", g.Layers-1)
	}
	first := g.First
	if room := columns - len(more); len(first) > room {
		first = strings.TrimRight(first[:room-2], ".") + ".."
	}
	return first + more
}
