package optim

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/internal/spelling"
)

// RowRules are the names that NewRowRule takes.
func RowRules() []string {
	return []string{"sgd", "momentum", "adagrad", "adagrad-rowwise", "adam", "adamw", "ftrl", "click"}
}

// NewRowRule makes the rule of that name with a learning rate and its usual
// settings; the caller may change them before the rule is used. The error names
// the rules that there are. lr is checked by Validate.
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
