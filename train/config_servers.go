package train

import (
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
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Consistencies are the names that Servers.Consistency accepts, besides none.
func Consistencies() []string { return []string{"bsp", "ssp", "async", "geo"} }

// Servers says that the parameters lie on the job's servers of tables, which update them.
type Servers struct {
	// Consistency is what the servers do, which they are told on their own: bsp, ssp, async
	// or geo. Empty: parameters lie with the ranks.
	Consistency string
	// Staleness is that of the servers in ssp, which must be told the same.
	Staleness int
	// GeoSteps is after how many steps geo exchanges copies, which ranks move meanwhile by the
	// optimizer: at least 1. Others ignore it.
	GeoSteps int
	// Threads is how many threads of a rank train at once, each on batches of its own and with a
	// replica of its own, as if they were ranks; they share Config.Threads. 0: 1. Not in bsp.
	Threads int
	// Values is how values travel: fp32 (also where it is empty), fp16, bf16, or int8: gradients
	// of rows in 8 bits, all else as fp16. Other than as fp32 bsp has not the bits of ranks
	// that sum.
	Values string
	// CacheBytes is how much memory each rank has for rows of earlier batches, which it uses again instead of pulling them: in ssp as far as
	// Staleness allows, in async in the 3 steps after it was pulled, in bsp in evaluations alone; 0: none. Not in geo, where ranks have copies.
	CacheBytes int64
	// Click are settings of the rule of OptimizerClick, by their names in schema.Rule, besides the
	// usual ones.
	Click map[string]float64
	// Start is which start of the job this is, from 1, where the run is saved: its servers save in
	// AttemptDir of Checkpoint.Dir, are told JobName, and where there is a checkpoint begin with
	// the parts that LastServerParts tells. 0: what a launcher says (`ringo run --checkpoint`),
	// which Checkpoint follows then where its Dir is empty or the same, or else no checkpoints.
	Start int
	// Begin says that the servers begin tables with rows of Config.Start.From, which
	// Config.BeginRows hands out. Without it a file that has such a table is refused.
	Begin bool
	// OpenServerCheckpoint opens what servers have saved in a folder with a checkpoint after a step
	// of their run, by the numbers of their parts: as offline.At of package ps/offline does. With
	// it Evaluate and NewPredictor read what servers have saved themselves, if Consistency is
	// empty, and Init.From may be a checkpoint of a run with servers. nil: these are refused. (This
	// package does not import ps/offline, with which a storage engine comes.)
	OpenServerCheckpoint func(dir string, step uint64, numbers []uint64) (ServerCheckpoint, error)
}

// sharedSettings is what the servers must have been told, too.
func (s Servers) sharedSettings() setting.Values {
	out := setting.Values{message.PathSync: s.Consistency}
	if s.Consistency == "ssp" {
		out["ps.staleness"] = strconv.Itoa(s.Staleness)
	}
	return out
}

// geoSteps is GeoSteps of geo, and 0 of others.
func (s Servers) geoSteps() int {
	if s.Consistency != "geo" {
		return 0
	}
	return s.GeoSteps
}

// threads is how many train at once on a rank.
func (s Servers) threads() int { return max(1, s.Threads) }

// asyncSteps is for how many steps more than the one that it was pulled for a rank uses a cached row in async.
const asyncSteps = 3

// cache is that of each of a rank's trainers, whose rows come in a code.
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

// codes says how values travel.
func (s Servers) codes(c *client.Config) error {
	if s.Values == "" {
		return nil
	}
	code, err := message.ParseCode(s.Values)
	c.Pull, c.Push, c.Dense = code, code, code
	if code == message.Int8 {
		c.Pull, c.Dense = message.FP16, message.FP16 // parameters do not stand it
	}
	return err
}

// validateServers reports what parameters on servers rule out.
func (c Config) validateServers(f *errorList) {
	s := c.Servers
	const sync setting.Path = "sync"
	if s.Consistency == "" {
		f.add(s.Start != 0, "", "start %d of the job is for parameters on servers: leave it out", s.Start)
		return
	}
	f.add(!slices.Contains(Consistencies(), s.Consistency), sync, "%q is not known where servers keep the parameters: use one of %s", s.Consistency, strings.Join(Consistencies(), ", "))
	f.add(s.Consistency == "geo" && s.GeoSteps < 1, "ps.geo-steps", "%d: want at least 1", s.GeoSteps)
	f.add(s.Staleness < 0, "ps.staleness", "%d: want 0 or more", s.Staleness)
	f.add(s.CacheBytes < 0, "ps.row-cache", "%d bytes: want 0 or more", s.CacheBytes)
	f.add(s.CacheBytes > 0 && s.Consistency == "geo", "ps.row-cache", "has no effect with %v geo: there ranks have copies of rows; leave it out", sync)
	f.add(s.Start < 0, "", "start %d of the job: want at least 1, or 0", s.Start)
	f.add(s.Threads < 0 || s.Threads > MaxThreads, "ps.trainer-threads", "%d: want 1 to %d", s.Threads, MaxThreads)
	if err := s.codes(new(client.Config)); err != nil {
		f.add(true, "ps.wire-dtype", "%q: %w", s.Values, err)
	}
	x := c.Exchange.Resolved()
	only := func(wrong bool, p setting.Path, value any, why string) {
		f.add(wrong, p, "%v with %v %s: %s; leave it out, or let servers sum alone (%[2]v sum)", value, sync, s.Consistency, why)
	}
	only(x.Strategy != distopt.FP32, "exchange.strategy", x.Strategy, "servers that keep the parameters take gradients as they are")
	only(x.ClipNorm > 0, "training.clip-norm", x.ClipNorm, "no process has the whole gradient")
	only(x.Accumulation > 1, "training.accumulate", x.Accumulation, "servers take the gradients of each batch")
	only(x.NonFinite == "skip", "training.non-finite", x.NonFinite, "gradients that a rank has pushed cannot be taken back")
	f.add(len(c.Start.Rates) > 0 && s.Consistency != "geo", "training.lr-multipliers", "%s with %v %s: servers have one rate for all: leave it out, or use geo, where ranks move the parameters", formatRates(c.Start.Rates), sync, s.Consistency)
	f.add(c.Tuning.Measure || c.Tuning.Profile != nil, "tuning.tune", "or %v with %v %s: nothing is tuned there: leave it out", setting.Path("tuning.profile"), sync, s.Consistency)
	if c.Optimizer == OptimizerClick {
		_, err := c.clickRule(1)
		f.add(err != nil, "ps.click", "%w", err)
	}
	f.add(c.Optimizer == "adamw" && c.WeightDecay > 0, "training.weight-decay", "%s: on servers adamw decays all parameters, biases too: use adam, or 0", quantity.Exact(c.WeightDecay))
}

// schemaOf describes the parameters of a model and the rules that move them, whose learning
// rate is that of the first step.
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
		if rows, err = c.clickRule(rate); err != nil {
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
		s.Inputs = meaningsOf(*c.about)
	}
	return s, s.Validate()
}

// lookupsOf says what the tables of a model, which is arranged, are looked up by.
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

// clickRate is how many times the job's learning rate a click table's rows learn by, if nothing else is
// said: at the usual 0.01 of dense parameters the rule's usual 0.05.
const clickRate = 5

// clickRule is the rule of OptimizerClick for rows, with all settings, so that what is saved says them.
func (c Config) clickRule(rate float64) (schema.Rule, error) {
	rule := schema.Rule{Name: OptimizerClick, LR: rate, Settings: map[string]float64{"rate": clickRate}}
	maps.Copy(rule.Settings, c.Servers.Click)
	return rule.Settled()
}
