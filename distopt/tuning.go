package distopt

import (
	"fmt"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/exchange"
)

// What measures and chooses (package tune) needs to know of an Optimizer.

// Reducer is what carries the gradients. Between two steps others may use it, on every
// rank the same.
func (o *Optimizer) Reducer() exchange.Reducer { return o.reducer }

// NewChain is what the strategy's gradients go through; nil: nothing.
func (c Config) NewChain() (*compress.Chain, error) { return c.chain() }

// Reselect makes the next selections exact, of all buckets in the same step. It is
// called between steps, on every rank.
func (o *Optimizer) Reselect() error {
	if err := o.between("call Reselect"); err != nil {
		return err
	}
	if err := o.codec.forceExact(); err != nil {
		return fmt.Errorf("distopt: %w", err)
	}
	return o.arrange()
}

// Density is the share of values that a strategy which selects is meant to send; 0
// where it sends all, and where it selects by magnitude.
func (c Config) Density() float64 {
	i, err := Lookup(c.name())
	if err != nil || !i.Selects() || i.Name == SparseThreshold {
		return 0
	}
	return c.spars()
}

// Prepare makes spars, every and rule, as in Config, the settings of strategies that
// SetStrategy changes to later. It is called between steps, with the same values on
// every rank, while the strategy takes none of them.
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
