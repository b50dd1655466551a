package train

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/spelling"
	"github.com/ringo-ml/ringo/internal/tune"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/train/internal/tensornames"
)

// Optimizers lists the values of Config.Optimizer. OptimizerClick is for click models with
// parameters on servers.
func Optimizers() []string {
	return []string{"sgd", "adagrad", "adam", "adamw", "ftrl", OptimizerClick}
}

// OptimizerClick updates rows of a table by the rule of click models (optim.ClickRows), which
// counts shows and clicks on the servers, and dense parameters by adagrad.
const OptimizerClick = "click"

// SetOptimizer selects an optimizer. A change resets learning rate, momentum and weight decay to
// the new optimizer's defaults, because the old values have another meaning. A model with a
// row-sparse table gets no decay, because decay would change rows that a step does not use.
func (c *Config) SetOptimizer(name string) {
	if c.Optimizer == name {
		return
	}
	c.Optimizer, c.LR, c.Momentum, c.WeightDecay, c.Eps = name, 0.01, 0, 0, 0
	switch name {
	case "adam":
		c.LR = 0.001
	case "adamw":
		c.LR, c.WeightDecay = 0.001, 0.01
	case "ftrl":
		c.LR = 0.5
	}
	if c.Model.Rows > 0 {
		c.WeightDecay = 0
	}
}

func (c Config) validateOptimizer(f *setting.Faults) {
	f.Add(c.CustomOptimizer == nil && !slices.Contains(Optimizers(), c.Optimizer), "training.optimizer", "%q is not known%s: use one of %s", c.Optimizer, spelling.Hint(c.Optimizer, Optimizers()...), strings.Join(Optimizers(), ", "))
	within := func(p setting.Path, value, limit float64) {
		f.Add(!(value >= 0 && value < limit), p, "%s: want a number from 0 to below %s", quantity.Exact(value), quantity.Exact(limit))
	}
	within("training.momentum", c.Momentum, 1)
	within("training.eps", c.Eps, math.Inf(1))
	within("training.weight-decay", c.WeightDecay, math.Inf(1))
	f.Add(c.Optimizer == "ftrl" && c.Exchange.Strategy == distopt.PartialUpdate, "training.optimizer",
		"ftrl recomputes parameters from its own sums in each step, which discards the averages of %v %s: use another optimizer or strategy", setting.Path("exchange.strategy"), c.Exchange.Strategy)
	_, err := parseTableRules(c.TableRules)
	f.Add(err != nil, tableRules, "%s: %w", c.TableRules, err)
	f.Join(c.schedule().Validate())
	w := c.Warmup.Epochs
	f.Add(w > float64(c.Epochs) && c.Epochs > 0, "training.warmup", "of %v epochs in a run of %d: the learning rate would never be %v; want at most %[2]d epochs", w, c.Epochs, c.LR)
}

// newOptimizer returns the optimizer for a model's arena. AdamW does not decay biases and
// normalisations, the parameters of one dimension.
func (c Config) newOptimizer(ps *nn.Params) optim.RowOptimizer {
	switch c.Optimizer {
	case "adagrad", OptimizerClick:
		o := optim.NewAdagrad(c.LR)
		o.WeightDecay = c.WeightDecay
		if c.Eps != 0 {
			o.Eps = c.Eps
		}
		return o
	case "adam":
		o := optim.NewAdam(c.LR)
		if c.Eps != 0 {
			o.Eps = c.Eps
		}
		return o
	case "ftrl":
		return optim.NewFTRL(c.LR)
	case "adamw":
		o := optim.NewAdamW(c.LR)
		o.WeightDecay = c.WeightDecay
		if c.Eps != 0 {
			o.Eps = c.Eps
		}
		for i, s := range ps.Slots() {
			if p := ps.List()[i]; len(p.Shape) == 1 {
				o.NoDecay = append(o.NoDecay, [2]int{s.Offset, s.Offset + s.Padded})
			}
		}
		return o
	}
	return &optim.SGD{LR: c.LR, Momentum: c.Momentum, WeightDecay: c.WeightDecay}
}

// Tuning configures strategy "auto" and measured plans. The zero value measures for "auto" alone.
type Tuning struct {
	// Measure times codecs, links and the run's first steps, and chooses the strategy and the plan
	// from the times. Results then depend on measurements.
	Measure bool
	// Profile replaces the measurements. It must be equal on every rank.
	Profile *bucket.Profile
	// Choices are those of an earlier run (Summary.Choices), to repeat; equal on every rank.
	Choices tune.Choices
	// Report receives choices, Measuring announces measurements of codecs and links, and Save
	// receives the measurements, on rank 0. Each may be nil.
	Report    func(tune.Report)          `json:"-"`
	Measuring func()                     `json:"-"`
	Save      func(bucket.Profile) error `json:"-"`
}

func (t *Tuning) settings() []setting.Row {
	return []setting.Row{
		{Path: "tuning.choices", Commands: setting.Bench | setting.BenchStep, Needs: setting.Any(setting.Equals("exchange.strategy", string(tune.Auto)), setting.Equals("exchange.plan", tune.Plans()...)), Value: setting.Textual(&t.Choices),
			About: "measured choices of an earlier run, each with the number of steps before it, to repeat them with the same bits, such as 0:one=16; 12:dlgs/exact=3,4,9; 15:reselect"},
	}
}

func (c Config) tuning() tune.Config {
	return tune.Config{
		Exchange: c.Exchange, Measure: c.Tuning.Measure, Profile: c.Tuning.Profile, Choices: c.Tuning.Choices, Model: c.Model.Name, Batch: c.Batch,
		MayKeep: c.Checkpoint.Resume,
	}
}

func (r *Replica) newTuner(cfg Config, g *collective.Group) (*tune.Tuner, error) {
	c := cfg.tuning()
	if r.job.Rank() == 0 {
		c.Report, c.Measuring, c.Save = cfg.Tuning.Report, cfg.Tuning.Measuring, cfg.Tuning.Save
	}
	return tune.New(g, r.Opt, planParams(r.Params), r.Params.Grads(), c)
}

// tableRule replaces the run's optimizer for rows of some tables.
type tableRule struct {
	// pattern matches names of tables as in path.Match, such as * for all.
	pattern string
	// rule is one of optim.RowRules with settings, such as ftrl:rate=50:l1=0.01: see schema.Rule.
	// rate multiplies the run's learning rate.
	rule string
}

const tableRules setting.Path = "training.table-optimizers"

// parseTableRules reads PATTERN=RULE, separated by commas.
func parseTableRules(text string) (rules []tableRule, err error) {
	if text == "" {
		return nil, nil
	}
	for _, part := range strings.Split(text, ",") {
		pattern, rule, found := strings.Cut(strings.TrimSpace(part), "=")
		if !found || pattern == "" {
			return nil, fmt.Errorf("%q: want TABLE=RULE, such as wide=ftrl:rate=50", part)
		}
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("%q: %w", pattern, err)
		}
		if _, err := parseRule(rule, 1); err != nil {
			return nil, err
		}
		rules = append(rules, tableRule{pattern, rule})
	}
	return rules, nil
}

// checkedRules returns text if parseTableRules accepts it.
func checkedRules(text string) (string, error) {
	_, err := parseTableRules(text)
	return text, err
}

// parseRule reads NAME:SETTING=X:… with a learning rate, and reports unknown names, unknown
// settings and values out of range.
func parseRule(text string, rate float64) (schema.Rule, error) {
	parts := strings.Split(text, ":")
	r := schema.Rule{Name: parts[0], LR: rate}
	for _, part := range parts[1:] {
		name, value, _ := strings.Cut(part, "=")
		v, err := strconv.ParseFloat(value, 64)
		if _, again := r.Settings[name]; err != nil || again {
			return r, fmt.Errorf("rule %q: %q: want NAME=X, each name once", text, part)
		}
		if r.Settings == nil {
			r.Settings = map[string]float64{}
		}
		r.Settings[name] = v
	}
	_, err := r.Rows()
	return r, err
}

// ruleOf returns a table's rule, from the settings or else from its model. ok is false if the run's
// optimizer applies.
func (c Config) ruleOf(t *nn.Table, rate float64) (r schema.Rule, ok bool, err error) {
	text := t.Rule
	rules, err := parseTableRules(c.TableRules)
	if err != nil {
		return r, false, err
	}
	for _, own := range rules { // the last match counts
		if is, _ := path.Match(own.pattern, t.Name); is {
			text = own.rule
		}
	}
	if text == "" {
		return r, false, nil
	}
	if r, err = parseRule(text, rate); err != nil {
		err = fmt.Errorf("table %s: %w", t.Name, err)
	}
	return r, true, err
}

// checkTableRules reports patterns that match no table.
func (c Config) checkTableRules(tables []*nn.Table) error {
	rules, err := parseTableRules(c.TableRules)
	if err != nil {
		return setting.Errorf(tableRules, "%w", err)
	}
	for _, rule := range rules {
		is := func(t *nn.Table) bool { ok, _ := path.Match(rule.pattern, t.Name); return ok }
		if !slices.ContainsFunc(tables, is) {
			var names []string
			for _, t := range tables {
				names = append(names, t.Name)
			}
			return setting.Errorf(tableRules, "%s: model %s has no such table: it has %s", rule.pattern, c.name(), tensornames.Enumerate(names))
		}
	}
	return nil
}

// byTable is an optimizer with separate rules for some tables. Its results have the same bits as
// those of servers. The inner optimizer has only the tables without a rule, with new numbers. Each
// rule multiplies the optimizer's rate by its own factor.
type byTable struct {
	optim.RowOptimizer
	rules []optim.RowRule // rules by table; nil for the inner optimizer
	inner []int           // numbers in the inner optimizer, by table

	dims  [][2]int
	state [][]optim.State
	parts [][][]float32
}

// withTableRules adds rules of tables to o, or returns o without any. A rule that counts is an
// error: ranks do not count shows and clicks.
func (c Config) withTableRules(o optim.RowOptimizer, tables []*nn.Table) (optim.RowOptimizer, error) {
	b := &byTable{RowOptimizer: o}
	own := 0
	for _, t := range tables {
		r, ok, err := c.ruleOf(t, c.LR)
		if err != nil {
			return nil, err
		}
		b.inner = append(b.inner, len(b.inner)-own)
		if b.rules = append(b.rules, nil); !ok {
			continue
		}
		own++
		rule, err := r.Rows()
		if err != nil {
			return nil, err
		}
		if optim.Counts(rule) > 0 {
			return nil, fmt.Errorf("table %s: rule %s counts on servers: want %v bsp, ssp or async", t.Name, r.Name, setting.Path("sync"))
		}
		b.rules[len(b.rules)-1] = rule
	}
	if own == 0 {
		return o, nil
	}
	return b, nil
}

// BindTables makes the state of all tables.
func (b *byTable) BindTables(dims [][2]int) error {
	var rest [][2]int
	for i, d := range dims {
		if b.rules[i] == nil {
			rest = append(rest, d)
		}
	}
	if err := b.RowOptimizer.BindTables(rest); err != nil {
		return err
	}
	if b.dims != nil {
		if !slices.Equal(b.dims, dims) {
			return fmt.Errorf("tables of rows and dimensions %v, and %v before", dims, b.dims)
		}
		return nil
	}
	b.dims = slices.Clone(dims)
	b.state, b.parts = make([][]optim.State, len(dims)), make([][][]float32, len(dims))
	for i, d := range dims {
		if b.rules[i] == nil {
			continue
		}
		for _, p := range b.rules[i].Parts(d[1]) {
			data := slices.Repeat([]float32{p.Initial}, d[0]*p.Width)
			b.state[i], b.parts[i] = append(b.state[i], optim.State{Name: p.Name, Data: data}), append(b.parts[i], data)
		}
	}
	return nil
}

// UpdateRows updates rows by their table's rule.
func (b *byTable) UpdateRows(table int, data []float32, ids []int32, grads []float32, scale float32) {
	if rule := b.rules[table]; rule != nil {
		rule.UpdateRows(data, b.parts[table], b.dims[table][1], ids, grads, scale)
		return
	}
	b.RowOptimizer.UpdateRows(b.inner[table], data, ids, grads, scale)
}

// TableState returns the state of a table's rule.
func (b *byTable) TableState(table int) []optim.State {
	if b.rules[table] != nil {
		return b.state[table]
	}
	return b.RowOptimizer.TableState(b.inner[table])
}

// SetLR sets the rate of the optimizer and of all rules.
func (b *byTable) SetLR(rate float64) {
	b.RowOptimizer.SetLR(rate)
	for _, rule := range b.rules {
		if r, ok := rule.(optim.Rated); ok {
			r.SetLR(rate)
		}
	}
}
