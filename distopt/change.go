package distopt

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// Strategy is the strategy of the next step.
func (o *Optimizer) Strategy() Strategy { return o.cfg.Strategy }

// Spars is the share of values, or the threshold, of the next step's selections; 0 if the strategy
// has neither.
func (o *Optimizer) Spars() float64 {
	if !o.info.HasEffect(SettingSpars) {
		return 0
	}
	return o.cfg.spars()
}

// Codec returns the chain of the next step's gradients, such as "dlgs(0.01, every 16, corrected) >
// fp32". It is empty without a chain.
func (o *Optimizer) Codec() string {
	c, err := o.cfg.chain()
	if c == nil || err != nil {
		return ""
	}
	return c.String()
}

// SetStrategy changes the strategy of the following steps. The new strategy uses the settings of
// Config that it takes. All ranks call SetStrategy between steps, before the first GradReady or
// after Step, with the same name. Residuals (unsent values) stay if the new strategy has residuals,
// else the next step sends them; the first selections are exact. A change from PartialUpdate first
// averages parameters and optimizer state: the ranks' copies would otherwise differ from then on.
func (o *Optimizer) SetStrategy(s Strategy) error {
	s, err := parseStrategy(string(s))
	if err != nil {
		return fmt.Errorf("distopt: %w", err)
	}
	if s == Custom && o.cfg.Chain == nil {
		return fmt.Errorf("distopt: strategy %s needs a chain: SetChain", Custom)
	}
	if err := o.between("change the strategy"); err != nil {
		return err
	}
	if o.cfg.Strategy == s {
		return nil
	}
	return o.change(s, nil)
}

// change changes the strategy. With a nil chain it uses the strategy's chain.
func (o *Optimizer) change(s Strategy, chain *compress.Chain) error {
	cfg, other := o.withStrategy(s)
	switch {
	case s != Custom:
		cfg.Chain = nil
	case chain != nil:
		cfg.Chain = chain
	}
	if err := o.fitsRule(s); err != nil {
		return err
	}
	if err := o.leave(s); err != nil {
		return err
	}
	if err := o.adopt(cfg); err != nil {
		return err
	}
	o.otherSpars = other
	return nil
}

// withStrategy returns the configuration under another strategy. other is the share, if that
// strategy takes a threshold, or conversely.
func (o *Optimizer) withStrategy(to Strategy) (cfg Config, other float64) {
	cfg, other = o.cfg, o.otherSpars
	if (to == SparseThreshold) != (cfg.Strategy == SparseThreshold) {
		cfg.Spars, other = other, cfg.Spars
	}
	cfg.Strategy = to
	return cfg, other
}

// leave averages the ranks' copies of the parameters if they can differ under the old strategy and
// not under the new one.
func (o *Optimizer) leave(to Strategy) error {
	if o.cfg.Strategy != PartialUpdate || to == PartialUpdate {
		return nil
	}
	if err := o.Sync(); err != nil {
		return err
	}
	for _, st := range o.optState() {
		if err := collective.AllReduce(o.group, st.Data, collective.Mean); err != nil {
			return fmt.Errorf("distopt: averaging the optimizer state %q: %w", st.Name, err)
		}
	}
	return nil
}

// SetSpars changes Config.Spars, the share or threshold of the following selections. All ranks call
// SetSpars between steps, with the same value. Residuals stay; the next selections are exact. A
// call with the present value has no effect.
func (o *Optimizer) SetSpars(spars float64) error {
	if err := o.between("change spars"); err != nil {
		return err
	}
	if !o.info.HasEffect(SettingSpars) {
		return fmt.Errorf("distopt: %s %s has no effect on strategy %s", SettingSpars, quantity.Exact(spars), o.cfg.Strategy)
	}
	if err := (Config{Strategy: o.cfg.Strategy, Spars: spars}).Validate(); err != nil {
		return fmt.Errorf("distopt: %w", err)
	}
	cfg := o.cfg
	if cfg.Spars = spars; cfg.spars() == o.cfg.spars() {
		return nil
	}
	return o.adopt(cfg)
}

// SetChain changes to the strategy Custom, with a chain of the caller. As with SetStrategy, all
// ranks call it between steps, with the same chain.
func (o *Optimizer) SetChain(c *compress.Chain) error {
	if c == nil {
		return fmt.Errorf("distopt: SetChain without a chain")
	}
	if err := o.between("change the chain"); err != nil {
		return err
	}
	return o.change(Custom, c)
}

// adopt makes cfg's strategy and settings those of the next step.
func (o *Optimizer) adopt(cfg Config) error {
	info, err := Lookup(cfg.Strategy)
	if err != nil {
		return fmt.Errorf("distopt: %w", err)
	}
	chain, err := cfg.chain()
	if err == nil {
		err = o.agree(cfg)
	}
	if err == nil {
		err = o.eachCodec(func() error { return o.codec.use(chain, o.layers, len(o.grads)) })
	}
	if err != nil {
		return fmt.Errorf("distopt: strategy %s: %w", cfg.Strategy, err)
	}
	o.cfg, o.info = cfg, info
	return o.arrange()
}

// arrange recomputes the plan of buckets, and all state that depends on it.
func (o *Optimizer) arrange() error {
	plan := o.agreed
	if o.info.Plan != "" {
		plan = o.cfg.plan(o.layers, o.info.Plan)
	}
	if !slices.Equal(plan, o.plan) || o.queue == nil {
		o.plan, o.queue = plan, bucket.NewQueue(plan)
		o.requests, o.inFlight = make([]exchange.Request, len(plan)), make([]bool, len(plan))
		o.watch.plan(names(plan, o.layers))
	}
	if err := o.arrangeShards(); err != nil {
		return err
	}
	perLayer := o.cfg.LayerThresholds && o.info.HasEffect(pathLayerThresholds)
	if err := o.eachCodec(func() error { return o.codec.group(plan, o.layers, perLayer) }); err != nil {
		return fmt.Errorf("distopt: %w", err)
	}
	for b := range o.requests {
		k, op := plan[b], &o.requests[b]
		op.X, op.Lo, op.Code, op.Sparse = o.grads[k.Lo:k.Hi:k.Hi], k.Lo, o.codec.code, o.codec.entries(b)
		op.Bucket = exchange.BucketInfo{Number: b, First: o.layers[k.First].Name, Last: o.layers[k.Last].Name}
		op.Bucket.Label = o.watch.rec.Name(op.Bucket.String())
		if op.MaxEntries = 0; op.Sparse != nil && o.info.HasEffect(pathLimitSum) {
			op.MaxEntries = o.cfg.maxEntries(o.codec.local.Layout(), o.codec.groups[b])
		}
	}
	return nil
}

// Plan is the plan of the next step. Callers must not change it.
func (o *Optimizer) Plan() Plan { return o.plan }

// PlanName is the kind of plan: the strategy's only one, or that of Config or SetPlan.
func (o *Optimizer) PlanName() string {
	if o.info.Plan != "" {
		return o.info.Plan
	}
	return o.planName
}

// SetPlan changes to rank 0's plan. All ranks call SetPlan between steps. Only rank 0's p is used;
// name, which PlanName returns, must be equal on all ranks. Residuals stay. If the plan changes,
// the next selections are exact. A strategy with a single plan returns an error.
func (o *Optimizer) SetPlan(name string, p Plan) error {
	if err := o.between("change the plan"); err != nil {
		return err
	}
	if o.info.Plan != "" {
		return fmt.Errorf("distopt: plan %q has no effect on strategy %s, which has plan %q alone", name, o.info.Name, o.info.Plan)
	}
	agreed, err := agreePlan(o.group, p, o.layers)
	if err != nil {
		return fmt.Errorf("distopt: plan %q: %w", name, err)
	}
	return o.setPlan(name, agreed)
}

func (o *Optimizer) setPlan(name string, p bucket.Plan) error {
	o.planName = name
	if slices.Equal(p, o.agreed) {
		return nil
	}
	o.agreed = p
	if err := o.eachCodec(func() error { return o.codec.forceExact() }); err != nil {
		return fmt.Errorf("distopt: %w", err)
	}
	return o.arrange()
}

// agreePlan broadcasts rank 0's plan. If rank 0's plan is invalid, all ranks return an error and no
// rank waits.
func agreePlan(g *collective.Group, own bucket.Plan, layers []bucket.Param) (bucket.Plan, error) {
	var code []byte
	var bad error
	size := []int32{0}
	if g.Rank() == 0 {
		if bad = own.Validate(layers); bad == nil {
			code = own.Encode()
			size[0] = int32(len(code))
		} else {
			size[0] = -1
		}
	}
	if err := collective.Broadcast(g, size, 0); err != nil {
		return nil, errors.Join(bad, fmt.Errorf("broadcasting the plan: %w", err))
	}
	switch {
	case bad != nil:
		return nil, bad
	case size[0] < 0:
		return nil, errors.New("rank 0's plan does not fit its model: see the error of rank 0")
	case int(size[0]) > 4*len(layers):
		return nil, fmt.Errorf("rank 0's plan has %d bytes, but %d layers allow %d: do all ranks train the same model?", size[0], len(layers), 4*len(layers))
	}
	code = append(code, make([]byte, 4*len(layers))...)[:size[0]]
	if err := collective.Broadcast(g, code, 0); err != nil {
		return nil, fmt.Errorf("broadcasting the plan: %w", err)
	}
	plan, err := bucket.Decode(code, layers)
	if err != nil {
		return nil, fmt.Errorf("rank 0's plan does not fit this rank's model: %w", err)
	}
	return plan, nil
}

// Methods for measuring and choosing strategies (package tune).

// Reducer returns the part that sums gradients over the ranks. Between two steps callers may use
// it, equally on every rank.
func (o *Optimizer) Reducer() exchange.Reducer { return o.reducer }

// NewChain returns the chain of the strategy's gradients; nil means no compression.
func (c Config) NewChain() (*compress.Chain, error) { return c.chain() }

// Reselect makes the next selections of all buckets exact. Call it between steps, on every rank.
func (o *Optimizer) Reselect() error {
	if err := o.between("call Reselect"); err != nil {
		return err
	}
	if err := o.eachCodec(func() error { return o.codec.forceExact() }); err != nil {
		return fmt.Errorf("distopt: %w", err)
	}
	return o.arrange()
}

// Density is the configured share of selected values. It is 0 for a strategy that sends all values
// or selects by magnitude.
func (c Config) Density() float64 {
	i, err := Lookup(c.name())
	if err != nil || !i.Selects() || i.Name == SparseThreshold {
		return 0
	}
	return c.spars()
}

// Prepare sets spars, every and rule, as in Config, for a later SetStrategy. All ranks call Prepare
// between steps with the same values, while the present strategy takes none of these settings.
func (o *Optimizer) Prepare(spars float64, every int, rule compress.Rule) error {
	if err := o.between("call Prepare"); err != nil {
		return err
	}
	if o.info.HasEffect(SettingSpars) || o.info.HasEffect(SettingEvery) {
		return fmt.Errorf("distopt: strategy %s has its %s already: SetSpars changes it", o.info.Name, SettingSpars)
	}
	if err := (Config{Strategy: DLGS, Spars: spars, Every: every, Rule: rule}).Validate(); err != nil {
		return fmt.Errorf("distopt: %w", err)
	}
	o.cfg.Spars, o.cfg.Every, o.cfg.Rule = spars, every, rule
	return nil
}
