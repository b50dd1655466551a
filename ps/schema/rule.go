package schema

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/optim"
)

// Rule names an optimizer of package optim and its settings.
type Rule struct {
	// Name is a name of optim.RowRules for tables; for arrays sgd, adagrad, adam, adamw or ftrl.
	Name string `json:"name"`
	// LR is the initial learning rate.
	LR float64 `json:"lr"`
	// Settings override defaults, by name: momentum, weight_decay, initial, eps, beta, beta1,
	// beta2, l1, l2, bound, rate (for row rules: multiplies the learning rate, also after
	// changes of the rate), and the settings of a click policy.
	Settings map[string]float64 `json:"settings,omitempty"`
}

// Rows returns a new rule for rows. All rules have a setting "bound", a weight's largest magnitude.
func (r Rule) Rows() (optim.RowRule, error) {
	rule, err := optim.NewRowRule(r.Name, r.LR)
	if err != nil {
		return nil, err
	}
	fields, times := rowFields(rule), &rated{RowRule: rule, times: 1}
	bounded := &optim.Bounded{RowRule: rule}
	if fields["bound"] == nil {
		fields["bound"] = &bounded.Bound
	}
	if fields["rate"] == nil {
		fields["rate"] = &times.times
	}
	if err := r.set(fields); err != nil {
		return nil, err
	}
	if times.times != 1 {
		if !(times.times > 0) {
			return nil, fmt.Errorf("rule %q: a rate of %v: want more than 0", r.Name, times.times)
		}
		times.SetLR(r.LR)
		rule, bounded.RowRule = times, times
	}
	if bounded.Bound != 0 {
		rule = bounded
	}
	return rule, rule.Validate()
}

// rated is a rule with a factor for its learning rate.
type rated struct {
	optim.RowRule
	times float64
}

// SetLR sets the rule's rate to lr times the factor.
func (r *rated) SetLR(lr float64) { r.RowRule.(optim.Rated).SetLR(lr * r.times) }

// CurrentLR returns the rate without the factor.
func (r *rated) CurrentLR() float64 { return r.RowRule.(optim.Rated).CurrentLR() / r.times }

// Settled returns the rule for rows with all its settings, including those with default values.
func (r Rule) Settled() (Rule, error) {
	rule, err := r.Rows()
	if err != nil {
		return r, err
	}
	r.Settings = map[string]float64{}
	for name, v := range rowFields(rule) {
		r.Settings[name] = *v
	}
	return r, nil
}

// Dense returns a new rule for an array.
func (r Rule) Dense() (optim.Optimizer, error) {
	opt, fields := denseRule(r.Name, r.LR)
	if opt == nil {
		return nil, fmt.Errorf("rule %q for an array is not known: use one of sgd, adagrad, adam, adamw, ftrl", r.Name)
	}
	if err := r.set(fields); err != nil {
		return nil, err
	}
	if v, ok := opt.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return nil, err
		}
	}
	return opt, nil
}

// set sets a rule's fields to the settings' values.
func (r Rule) set(fields map[string]*float64) error {
	var unknown []string
	for name, v := range r.Settings {
		to := fields[name]
		if to == nil || math.IsNaN(v) || math.IsInf(v, 0) {
			unknown = append(unknown, fmt.Sprintf("%s = %v", name, v))
			continue
		}
		*to = v
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		known := slices.Sorted(maps.Keys(fields))
		return fmt.Errorf("rule %q: settings %s: want finite values of %s", r.Name, strings.Join(unknown, ", "), strings.Join(known, ", "))
	}
	return nil
}

func rowFields(rule optim.RowRule) map[string]*float64 {
	switch o := rule.(type) {
	case *optim.MomentumRows:
		return map[string]*float64{"momentum": &o.Momentum}
	case *optim.AdagradRows:
		return map[string]*float64{"initial": &o.Initial, "eps": &o.Eps}
	case *optim.RowWiseAdagrad:
		return map[string]*float64{"initial": &o.Initial}
	case *optim.AdamRows:
		f := map[string]*float64{"beta1": &o.Beta1, "beta2": &o.Beta2, "eps": &o.Eps}
		if o.WeightDecay != 0 {
			f["weight_decay"] = &o.WeightDecay
		}
		return f
	case *optim.FTRLRows:
		return map[string]*float64{"beta": &o.Beta, "l1": &o.L1, "l2": &o.L2, "initial": &o.Initial}
	case *optim.ClickRows:
		p := &o.Policy
		return map[string]*float64{
			"initial": &o.Rule.Initial, "bound": &o.Bound, "rate": &o.RateTimes,
			"no_click": &p.NoClick, "click": &p.Click, "extend_at": &p.ExtendAt, "decay": &p.Decay,
			"delete_below": &p.DeleteBelow, "delete_after": &p.DeleteAfter, "cold_after": &p.ColdAfter,
		}
	}
	return map[string]*float64{}
}

func denseRule(name string, lr float64) (optim.Optimizer, map[string]*float64) {
	switch name {
	case "sgd":
		o := &optim.SGD{LR: lr}
		return o, map[string]*float64{"momentum": &o.Momentum, "weight_decay": &o.WeightDecay}
	case "adagrad":
		o := optim.NewAdagrad(lr)
		return o, map[string]*float64{"weight_decay": &o.WeightDecay, "initial": &o.Initial, "eps": &o.Eps}
	case "adam":
		o := optim.NewAdam(lr)
		return o, map[string]*float64{"beta1": &o.Beta1, "beta2": &o.Beta2, "eps": &o.Eps}
	case "adamw":
		o := optim.NewAdamW(lr)
		return o, map[string]*float64{"beta1": &o.Beta1, "beta2": &o.Beta2, "eps": &o.Eps, "weight_decay": &o.WeightDecay}
	case "ftrl":
		o := optim.NewFTRL(lr)
		return o, map[string]*float64{"beta": &o.Beta, "l1": &o.L1, "l2": &o.L2, "initial": &o.Initial}
	}
	return nil, nil
}
