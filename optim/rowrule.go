package optim

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/internal/spelling"
)

// RowRule updates rows of tables that grow. It keeps no state: the caller stores the rows' state in
// arrays of [rows*width], next to the rows' weights. A server's sparse tables train with a RowRule;
// a [RowOptimizer] applies the same code to tables of a fixed size.
//
// A rule is lazy: only rows with a gradient move, and their state with them. All memory of a row's
// past is in the row's state. The result therefore does not depend on the row's table, server or
// step.
//
// A rule's fields are its settings. UpdateRows only reads them, so that any number of goroutines
// may update disjoint sets of rows simultaneously, without changing settings during the updates.
// The bits of a row do not depend on the other rows of a call, on their order, or on the
// instruction set.
type RowRule interface {
	// Name is the rule's name in logs and checkpoints, as for [NewRowRule].
	Name() string
	// Validate reports every invalid setting.
	Validate() error
	// Parts returns the parts of the state of rows of dim values, a function of dim only. A new row
	// has each part's Initial in all its values.
	Parts(dim int) []RowPart
	// UpdateRows changes rows ids of data, which is [rows*dim], and of each part of state,
	// [rows*Width] in the order of Parts. Row i of grads, which is [len(ids)*dim], is the gradient
	// of row ids[i]. ids are unique within a call, in any order. Gradients are multiplied by
	// gradScale first and do not change. It allocates no memory. Cost: proportional to the rows in
	// ids. It panics if an id has no row.
	UpdateRows(data []float32, state [][]float32, dim int, ids []int32, grads []float32, gradScale float32)
}

// CountedRule is a RowRule that also learns from counts, such as the number of samples with a row:
// they follow the dim values of a row's gradient in a push. Counts of a row add up like gradients,
// and are neither scaled nor rounded. Such a rule may use only some weights of a new row and begin
// the other weights later (Extend), with initial values from the rows' storage.
type CountedRule interface {
	RowRule
	// Counts is the number of values after each gradient, 1 or more.
	Counts() int
	// CheckCounts reports impossible counts. Each row of grads has dim values, then its counts.
	CheckCounts(dim int, grads []float32) error
	// UpdateCounted is UpdateRows with counts after each row of grads. It appends to due the
	// indices in ids of rows to Extend now, and returns due.
	UpdateCounted(data []float32, state [][]float32, dim int, ids []int32, grads []float32, gradScale float32, due []int32) []int32
	// Begin clears the part of a new row's initial weights that Extend sets.
	Begin(row []float32)
	// Extend sets the part of row id's initial weights that Begin cleared.
	Extend(data []float32, state [][]float32, dim int, id int32, initial []float32)
}

// Counts is the number of values after each gradient in a push to rows of a rule, 0 for most.
func Counts(rule RowRule) int {
	if c, ok := rule.(CountedRule); ok {
		return c.Counts()
	}
	return 0
}

// RowPart is a part of the state of a table's rows: Width values for each.
type RowPart struct {
	Name    string
	Width   int
	Initial float32 // value of a new row
}

// Rated has a learning rate that may change between updates; every [RowRule] of this package is
// Rated. SetLR panics for a negative or infinite rate.
type Rated interface {
	SetLR(lr float64)
	CurrentLR() float64
}

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

// Bounded is a rule that clips the weights of updated rows to [-Bound, Bound] after each update.
// NaN stays, for detection.
type Bounded struct {
	RowRule
	// Bound is the largest magnitude of a weight, positive.
	Bound float64
}

// Validate reports every invalid setting, including the rule's.
func (b *Bounded) Validate() error {
	var f faults
	f.positive("bound", b.Bound)
	if err := b.RowRule.Validate(); err != nil {
		f = append(f, err)
	}
	return f.err(b.Name())
}

// UpdateRows applies the rule and the bound, a few rows at a time, so that clipping finds them in
// the caches.
func (b *Bounded) UpdateRows(data []float32, state [][]float32, dim int, ids []int32, grads []float32, gradScale float32) {
	for len(ids) > 0 {
		n := min(len(ids), boundedRows)
		b.RowRule.UpdateRows(data, state, dim, ids[:n], grads[:n*dim], gradScale)
		simd.Host().ClampRows(data, ids[:n], dim, -float32(b.Bound), float32(b.Bound))
		ids, grads = ids[n:], grads[n*dim:]
	}
}

// boundedRows is the number of rows updated before clipping: 16 KiB for rows of 16 values.
const boundedRows = 256

// SetLR sets the rule's learning rate, if it has one.
func (b *Bounded) SetLR(lr float64) {
	if r, ok := b.RowRule.(Rated); ok {
		r.SetLR(lr)
	}
}

// CurrentLR returns the rule's learning rate, 0 without one.
func (b *Bounded) CurrentLR() float64 {
	if r, ok := b.RowRule.(Rated); ok {
		return r.CurrentLR()
	}
	return 0
}
