package train

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/optim"
)

// customized completes c for CustomOptimizer: its name, and its rate if LR is 0.
func (c Config) customized() Config {
	o := c.CustomOptimizer
	if o == nil || c.Optimizer != "" && c.Optimizer != o.Name() {
		return c
	}
	c.Optimizer = o.Name()
	if c.LR == 0 {
		c.LR = o.CurrentLR()
	}
	return c
}

// validateCustom adds errors for settings that contradict CustomOptimizer or have no effect on it.
func (c Config) validateCustom(f *setting.Faults) {
	name := c.CustomOptimizer.Name()
	f.Add(name == "", "", "Config.CustomOptimizer: its Name is empty: checkpoints and reports need a name")
	f.Add(c.Optimizer != name, "training.optimizer", "%q and Config.CustomOptimizer (%s): choose one", c.Optimizer, name)
	f.Add(c.Momentum != 0 || c.WeightDecay != 0 || c.Eps != 0, "training.optimizer", "%s: momentum, weight decay and eps have no effect on Config.CustomOptimizer: set them in the optimizer", name)
	f.Add(c.Servers.Consistency != "", "sync", "%s: parameter servers update by their own rules: leave out Config.CustomOptimizer (%s), or the servers", c.Servers.Consistency, name)
	f.Add(c.Heter.Count > 0, "heter.count", "%d: heter-trainers update by their own optimizer: leave out Config.CustomOptimizer (%s), or the heter-trainers", c.Heter.Count, name)
	f.Add(c.folds > 0, "training.folds", "%d with Config.CustomOptimizer (%s): an optimizer is of one run", c.folds, name)
}

// customRule makes Config.CustomOptimizer the optimizer of a replica's parameters and tables.
type customRule struct {
	optim.Optimizer
	rows optim.RowOptimizer // nil: cannot update rows of tables
}

// newCustomRule returns o for a new run, or an error after an earlier run.
func newCustomRule(o optim.Optimizer) (*customRule, error) {
	for _, s := range o.State() {
		for _, v := range s.Data {
			if v != 0 {
				return nil, fmt.Errorf("optimizer %s has been used: its state %q is not zero: make a new optimizer for each run and each rank", o.Name(), s.Name)
			}
		}
	}
	rows, _ := o.(optim.RowOptimizer)
	return &customRule{o, rows}, nil
}

// Bind makes the optimizer's state and returns an error if a checkpoint could not store it by name.
func (r *customRule) Bind(n int) error {
	if err := r.Optimizer.Bind(n); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, s := range r.State() {
		if s.Name == "" || names[s.Name] {
			return fmt.Errorf("optimizer %s: a part of its State is named %q, like another or not at all: a checkpoint stores each part by its name", r.Name(), s.Name)
		}
		names[s.Name] = true
	}
	return nil
}

// BindTables reports tables whose rows the optimizer cannot update.
func (r *customRule) BindTables(dims [][2]int) error {
	if r.rows != nil {
		return r.rows.BindTables(dims)
	}
	if len(dims) > 0 {
		return fmt.Errorf("optimizer %s cannot update the rows of %d tables: it needs the methods of optim.RowOptimizer, or Config.TableRules for all tables", r.Name(), len(dims))
	}
	return nil
}

// UpdateRows updates rows, after BindTables has accepted the table.
func (r *customRule) UpdateRows(table int, data []float32, ids []int32, grads []float32, scale float32) {
	r.rows.UpdateRows(table, data, ids, grads, scale)
}

// TableState returns the state of a table.
func (r *customRule) TableState(table int) []optim.State { return r.rows.TableState(table) }
