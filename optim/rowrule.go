package optim

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
// and are neither scaled nor rounded. Such a rule may begin a row with a part of its weights and
// extend the row later, with initial weights from the storage of the rows.
type CountedRule interface {
	RowRule
	// Counts is the number of values after each gradient, 1 or more.
	Counts() int
	// CheckCounts reports impossible counts, among rows of dim values and their counts.
	CheckCounts(dim int, grads []float32) error
	// UpdateCounted is UpdateRows with counts after each row of grads. It appends the indices in
	// ids of rows to extend now to due, and returns due.
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

// Rated has a learning rate that may change between updates, like every [RowRule] of this package.
// SetLR panics for a negative or infinite rate.
type Rated interface {
	SetLR(lr float64)
	CurrentLR() float64
}
