package distopt

import (
	"fmt"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/exchange"
)

// Methods for measuring and choosing strategies (package tune).

// Reducer returns the reducer of the gradients. Between two steps callers may use it, equally on
// every rank.
func (o *Optimizer) Reducer() exchange.Reducer { return o.reducer }

// NewChain returns the chain of the strategy's gradients; nil means no compression.
func (c Config) NewChain() (*compress.Chain, error) { return c.chain() }

// Reselect makes the next selections of all buckets exact. Call it between steps, on every rank.
func (o *Optimizer) Reselect() error {
	if err := o.between("call Reselect"); err != nil {
		return err
	}
	if err := o.codec.forceExact(); err != nil {
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

// Prepare sets spars, every and rule, as in Config, for a later SetStrategy. Call it between steps,
// with the same values on every rank, while the present strategy takes none of these settings.
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
