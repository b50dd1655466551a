package optim

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/internal/spelling"
)

// Every optimizer updates tables, and every row rule has a learning rate.
var (
	_             = []RowOptimizer{(*SGD)(nil), (*Adagrad)(nil), (*AdamW)(nil), (*FTRL)(nil)}
	_             = []Rated{(*SGDRows)(nil), (*MomentumRows)(nil), (*AdagradRows)(nil), (*RowWiseAdagrad)(nil), (*AdamRows)(nil), (*FTRLRows)(nil), (*ClickRows)(nil)}
	_ CountedRule = (*ClickRows)(nil)
)

// RowRules returns the names that NewRowRule accepts.
func RowRules() []string {
	return []string{"sgd", "momentum", "adagrad", "adagrad-rowwise", "adam", "adamw", "ftrl", "click"}
}

// NewRowRule makes the rule with this name, a learning rate and default settings, which the caller
// may change before using the rule. The error lists the known rules. Validate checks lr.
func NewRowRule(name string, lr float64) (RowRule, error) {
	switch name {
	case "sgd":
		return &SGDRows{LR: lr}, nil
	case "momentum":
		return &MomentumRows{LR: lr, Momentum: 0.9}, nil
	case "adagrad":
		return NewAdagradRows(lr), nil
	case "adagrad-rowwise":
		return NewRowWiseAdagrad(lr), nil
	case "adam":
		return NewAdamRows(lr), nil
	case "adamw":
		return NewAdamWRows(lr), nil
	case "ftrl":
		return NewFTRLRows(lr), nil
	case "click":
		return NewClickRows(lr), nil
	}
	return nil, fmt.Errorf("optim: row rule %q is not known%s: use one of %s", name, spelling.Hint(name, RowRules()...), strings.Join(RowRules(), ", "))
}
