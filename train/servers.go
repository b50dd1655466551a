package train

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/message"
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
	// Click are settings of the rule of OptimizerClick, by their names in schema.Rule, besides the
	// usual ones.
	Click map[string]float64
	// Start is which start of the job this is, from 1, where the run is saved: its servers save in StartDir of
	// Checkpoint.Dir, are told JobName, and where there is a checkpoint begin with the parts that
	// LastServers tells. 0: no checkpoints.
	Start int
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
func (c Config) validateServers() (errs []error) {
	s := c.Servers
	if s.Consistency == "" {
		if s.Staleness != 0 || s.threads() != 1 || s.Start != 0 {
			errs = append(errs, fmt.Errorf("staleness %d, trainer threads %d, start %d: they are for parameters on servers: leave them out", s.Staleness, s.Threads, s.Start))
		}
		if len(s.Click) > 0 {
			errs = append(errs, fmt.Errorf("settings of the click rule %v are for parameters on servers: leave them out", s.Click))
		}
		return errs
	}
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("parameters on servers (%s): "+format, append([]any{s.Consistency}, args...)...))
		}
	}
	fault(!slices.Contains(Consistencies(), s.Consistency), "that consistency is not known: use one of %s", strings.Join(Consistencies(), ", "))
	fault(s.Consistency == "geo" && s.GeoSteps < 1, "copies exchanged every %d steps: want at least 1", s.GeoSteps)
	fault(s.Staleness < 0 || s.Staleness > 0 && s.Consistency != "ssp", "staleness %d: want 0 or more, and only for ssp", s.Staleness)
	fault(s.Start < 0, "start %d of the job: want at least 1, or 0", s.Start)
	fault(s.Threads < 0 || s.Threads > MaxThreads, "%d trainer threads: want 0 to %d", s.Threads, MaxThreads)
	fault(s.Threads > 1 && s.Consistency == "bsp", "%d trainer threads do not keep in step: use async, geo or ssp, or more ranks", s.Threads)
	if err := s.codes(new(client.Config)); err != nil {
		fault(true, "%w", err)
	}
	x := c.Exchange.Resolved()
	fault(x.Strategy != distopt.FP32, "strategy %s selects or codes gradients: use fp32, or let the servers sum only", x.Strategy)
	fault(x.ClipNorm > 0, "clipping to a norm of %v needs the whole gradient in one place: use no clipping, or let the servers sum only", x.ClipNorm)
	fault(x.Accumulation > 1, "%d backwards in a step: want 1", x.Accumulation)
	fault(c.Tuning.Measure || c.Tuning.Profile != nil, "nothing is tuned: leave it out")
	fault(len(s.Click) > 0 && c.Optimizer != OptimizerClick, "settings of the click rule have no effect on optimizer %q: leave them out", c.Optimizer)
	if c.Optimizer == OptimizerClick {
		_, err := c.clickRule(1)
		fault(err != nil, "%w", err)
	}
	fault(c.Optimizer == "adamw" && c.WeightDecay > 0, "adamw decays all parameters there, biases too: use adam, or a weight decay of 0")
	return errs
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
	s := schema.Schema{Dense: []schema.Dense{{Name: "dense", Len: len(ps.Values()), Rule: rule}}}
	if len(ps.Tables()) > 1 {
		return s, fmt.Errorf("model %s has %d tables: parameters on servers can have one", c.Model, len(ps.Tables()))
	}
	for _, t := range ps.Tables() {
		s.Sparse = append(s.Sparse, schema.Sparse{Name: t.Name, Dim: t.Dim, Rule: rows, Init: t.Init, Seed: c.Seed})
	}
	return s, s.Validate()
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
