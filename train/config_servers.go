package train

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/trainer"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/tune"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/train/internal/tensornames"
)

// Consistencies lists the values of Servers.Consistency, except for "".
func Consistencies() []string { return []string{"bsp", "ssp", "async", "geo"} }

// Servers configures parameters on parameter servers, which update the parameters.
type Servers struct {
	// Consistency is the mode of the servers, equal to the servers' own setting: bsp, ssp, async or
	// geo. "" keeps parameters on the ranks.
	Consistency string
	// Staleness is the number of steps that a rank may be ahead of the slowest one in ssp, equal to
	// the servers' setting.
	Staleness int
	// GeoSteps is the number of steps between two exchanges in geo, at least 1; between them each
	// rank updates a copy of the parameters. Other modes ignore it.
	GeoSteps int
	// Threads is the number of training threads of a rank, each with a replica and batches like a
	// rank; the threads share Config.Threads. 0 means 1. bsp allows only 1.
	Threads int
	// Values is the wire type of values: fp32 (or ""), fp16, bf16, or int8, with gradients of rows
	// in 8 bits and other values as fp16. With fp32, bsp gives the same bits as a sum of the ranks;
	// with other types it does not.
	Values string
	// CacheBytes is the memory of each rank for rows of earlier batches, which the rank may use
	// again without a pull: in ssp within Staleness, in async in the 3 steps after the pull, in bsp
	// in evaluations only. 0 means no cache. It must be 0 in geo, where ranks have copies.
	CacheBytes int64
	// Click overrides settings of the rule of OptimizerClick, by their names in schema.Rule.
	Click map[string]float64
	// Start is the number of the job's attempt, from 1, if the run is saved: the servers then save
	// in AttemptDir of Checkpoint.Dir, call the job JobName, and begin with the parts of
	// LastServerParts. 0 means the launcher's attempt (`ringo run --checkpoint`), which also sets
	// Checkpoint if Dir is empty or equal; without a launcher's attempt, no checkpoints are saved.
	Start int
	// Begin reports that the servers load the rows of their tables from Config.Start.From
	// (Config.BeginRows). If it is false, a file with such rows is an error.
	Begin bool
	// OpenServerCheckpoint opens the servers' saved parts in a folder at a step, by the parts'
	// numbers, such as offline.At of ps/offline. Evaluate and NewPredictor then read the parts if
	// Consistency is empty, and Init.From may be a checkpoint of a run with servers. nil makes both
	// an error. (Package train does not import ps/offline, which needs a storage engine.)
	OpenServerCheckpoint func(dir string, step uint64, numbers []uint64) (ServerCheckpoint, error)
	// Live, if set, connects a client.Config.Reader to running servers of a schema. NewPredictor
	// then reads rows and dense parameters there, for each batch. Without the servers Forward
	// fails, and the next call connects again.
	Live func(context.Context, schema.Schema) (*client.Client, error)
}

// sharedSettings returns the settings that ranks and servers must have in common.
func (s Servers) sharedSettings() setting.Values {
	out := setting.Values{message.PathSync: s.Consistency}
	if s.Consistency == "ssp" {
		out["ps.staleness"] = strconv.Itoa(s.Staleness)
	}
	return out
}

// geoSteps returns GeoSteps in geo, and 0 in other modes.
func (s Servers) geoSteps() int {
	if s.Consistency != "geo" {
		return 0
	}
	return s.GeoSteps
}

func (s Servers) threads() int { return max(1, s.Threads) }

// asyncSteps is the number of further steps in which a rank uses a cached row in async.
const asyncSteps = 3

// cache returns the configuration of one thread's row cache.
func (s Servers) cache(code message.Code) trainer.CacheConfig {
	c := trainer.CacheConfig{Bytes: s.CacheBytes / int64(s.threads()), Bounded: s.Consistency == "ssp", Code: code}
	switch s.Consistency {
	case "ssp":
		c.Steps = s.Staleness
	case "async":
		c.Steps = asyncSteps
	}
	return c
}

func (s Servers) codes(c *client.Config) error {
	if s.Values == "" {
		return nil
	}
	code, err := message.ParseCode(s.Values)
	c.Pull, c.Push, c.Dense = code, code, code
	if code == message.Int8 {
		c.Pull, c.Dense = message.FP16, message.FP16 // parameters need more than 8 bits
	}
	return err
}

func (c Config) validateServers(f *setting.Faults) {
	s := c.Servers
	const sync setting.Path = "sync"
	if s.Consistency == "" {
		f.Add(s.Start != 0, "", "start %d of the job is for parameters on servers: leave it out", s.Start)
		return
	}
	f.Add(!slices.Contains(Consistencies(), s.Consistency), sync, "%q is no optimizer of parameter servers: use one of %s", s.Consistency, strings.Join(Consistencies(), ", "))
	f.Add(s.Consistency == "geo" && s.GeoSteps < 1, "ps.geo-steps", "%d: want at least 1", s.GeoSteps)
	f.Add(s.Staleness < 0, "ps.staleness", "%d: want 0 or more", s.Staleness)
	f.Add(s.CacheBytes < 0, "ps.row-cache", "%d bytes: want 0 or more", s.CacheBytes)
	f.Add(s.CacheBytes > 0 && s.Consistency == "geo", "ps.row-cache", "has no effect with %v geo: there ranks have copies of rows; leave it out", sync)
	f.Add(s.Start < 0, "", "start %d of the job: want at least 1, or 0", s.Start)
	f.Add(s.Threads < 0 || s.Threads > MaxThreads, "ps.trainer-threads", "%d: want 1 to %d", s.Threads, MaxThreads)
	if err := s.codes(new(client.Config)); err != nil {
		f.Add(true, "ps.wire-dtype", "%q: %w", s.Values, err)
	}
	x := c.Exchange.Resolved()
	const unmeasured = "pushes to parameter servers are not measured"
	only := func(wrong bool, p setting.Path, value any, why string) {
		f.Add(wrong, p, "%v with %v %s: %s; remove it, or use aggregation servers (%[2]v aggregate)", value, sync, s.Consistency, why)
	}
	f.Add(x.Strategy == distopt.PartialUpdate, "exchange.strategy", "%s with %v %s: this strategy averages parameters between ranks, without servers: use another strategy, or %[2]v allreduce", x.Strategy, sync, s.Consistency)
	only(x.Strategy == tune.Auto, "exchange.strategy", x.Strategy, unmeasured)
	only(slices.Contains(tune.Plans(), x.Plan), "exchange.plan", x.Plan, unmeasured)
	for _, other := range []struct {
		applies bool
		why     string
	}{
		{s.Consistency == "geo", "ranks push changes of copies, not gradients"},
		{c.Heter.Count > 0, "ranks and heter-trainers exchange the gradients of each batch unchanged"},
	} {
		only(other.applies && !slices.Contains([]distopt.Strategy{distopt.FP32, distopt.PartialUpdate, tune.Auto}, x.Strategy), "exchange.strategy", x.Strategy, other.why)
		only(other.applies && x.ClipNorm > 0, "training.clip-norm", x.ClipNorm, other.why)
		only(other.applies && x.Accumulation > 1, "training.accumulate", x.Accumulation, other.why)
	}
	geo := s.Consistency == "geo"
	only(geo && slices.Contains(distopt.Plans(), c.Exchange.Plan), "exchange.plan", c.Exchange.Plan, "copies are exchanged whole, not in buckets")
	only(geo && x.BucketBytes > 0, "exchange.bucket-bytes", x.BucketBytes, "copies are exchanged whole, not in buckets")
	only(x.NonFinite == "skip", "training.non-finite", x.NonFinite, "pushed gradients cannot be withdrawn")
	f.Add(len(c.Start.Rates) > 0 && s.Consistency != "geo", "training.lr-multipliers", "%s with %v %s: servers have one rate for all: leave it out, or use geo, where ranks move the parameters", formatRates(c.Start.Rates), sync, s.Consistency)
	f.Add(c.Tuning.Measure || c.Tuning.Profile != nil, "tuning.tune", "or %v with %v %s: no exchange is tuned with parameter servers: remove it", setting.Path("tuning.profile"), sync, s.Consistency)
	if c.Optimizer == OptimizerClick {
		f.Add(x.ClipNorm > 0, "training.clip-norm", "%s with %v %s: servers divide gradients of rows by the shows of all ranks: remove it, or use another optimizer", quantity.Exact(x.ClipNorm), setting.Path("training.optimizer"), c.Optimizer)
		_, err := s.clickRule(1)
		f.Add(err != nil, "ps.click", "%w", err)
	}
	f.Add(c.Optimizer == "adamw" && c.WeightDecay > 0, "training.weight-decay", "%s: on servers adamw decays all parameters, biases too: use adam, or 0", quantity.Exact(c.WeightDecay))
}

// schemaOf describes a model's parameters and their rules, with the rate of the first step.
func (c Config) schemaOf(ps *nn.Params, rate float64) (schema.Schema, error) {
	rule := schema.Rule{Name: c.Optimizer, LR: rate, Settings: map[string]float64{}}
	set := func(name string, v float64) {
		if v != 0 {
			rule.Settings[name] = v
		}
	}
	set("momentum", c.Momentum)
	set("weight_decay", c.WeightDecay)
	set("eps", c.Eps)
	rows := rule
	if c.Optimizer == OptimizerClick {
		var err error
		if rows, err = c.Servers.clickRule(rate); err != nil {
			return schema.Schema{}, err
		}
		rule.Name = "adagrad"
	}
	if rates := ratesOf(ps); len(rates) > 0 && c.Servers.Consistency != "geo" {
		return schema.Schema{}, fmt.Errorf("model %s has %d parameters with learning rates of their own: servers have one for all; under geo ranks move the parameters themselves", c.name(), len(rates))
	}
	s := schema.Schema{Dense: []schema.Dense{{Name: "dense", Len: len(ps.Values()), Rule: rule}}}
	byIDs := 0
	for _, t := range ps.Tables() {
		if t.Slots == nil {
			byIDs++
		}
		own, ok, err := c.ruleOf(t, rate)
		if err != nil {
			return s, err
		}
		if !ok {
			own = rows
		}
		s.Sparse = append(s.Sparse, schema.Sparse{Name: t.Name, Dim: t.Dim, Rule: own, Init: t.Init, Seed: c.Seed, Admission: t.Admission})
	}
	if byIDs > 1 {
		return s, fmt.Errorf("model %s has %d tables that ids are looked up in: parameters on servers can have one such table, and any number by keys", c.name(), byIDs)
	}
	if c.about != nil {
		s.Inputs = tensornames.Meanings(*c.about)
	}
	return s, s.Validate()
}

// lookupsOf returns how each table of an arranged model is looked up.
func lookupsOf(ps *nn.Params) (out []trainer.Lookup) {
	for _, t := range ps.Tables() {
		if slots := t.Slots; slots != nil {
			out = append(out, trainer.Lookup{Slots: slots})
		} else {
			out = append(out, trainer.Lookup{Rows: t.Rows})
		}
	}
	return out
}

// clickRate multiplies the job's learning rate for rows of click tables by default: the default
// rate of dense parameters, 0.01, becomes the rule's default 0.05.
const clickRate = 5

// clickRule returns OptimizerClick's rule for rows with all settings, for checkpoints.
func (s Servers) clickRule(rate float64) (schema.Rule, error) {
	rule := schema.Rule{Name: OptimizerClick, LR: rate, Settings: map[string]float64{"rate": clickRate}}
	maps.Copy(rule.Settings, s.Click)
	return rule.Settled()
}
