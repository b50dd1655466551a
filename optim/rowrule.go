package optim

// RowRule updates rows whose number grows: it keeps none of their state, which
// lies where the caller wants it, in arrays of [rows*width] beside the rows'
// weights. It is what a server's sparse tables train with; a [RowOptimizer]
// applies the same code to tables of a fixed size.
//
// A rule is lazy: only rows with a gradient move, and their state with them.
// What a rule knows of a row's past is in that row's state, so that nothing
// depends on which table, server or step the row was in.
//
// A rule's fields are its settings. UpdateRows only reads them, so that any
// number of goroutines may update disjoint sets of rows at once; nobody may
// change a setting meanwhile. The bits of a row do not depend on the other rows
// of a call, on their order, or on the instruction set.
type RowRule interface {
	// Name is the rule's name in logs and checkpoints, as [NewRowRule] takes it.
	Name() string
	// Validate reports every setting that is out of its range.
	Validate() error
	// Parts are the parts of the state of rows of dim values, the same for the
	// same dim. A new row has each part's Initial in all its values.
	Parts(dim int) []RowPart
	// UpdateRows changes rows ids of data, which is [rows*dim], and of each part
	// of state, [rows*Width] in the order of Parts. Row i of grads, which is
	// [len(ids)*dim], is the gradient of row ids[i]. ids are unique within a
	// call, in any order. Gradients are multiplied by gradScale first and not
	// changed. It allocates nothing, and its cost is that of the rows named. It
	// panics where an id has no row.
	UpdateRows(data []float32, state [][]float32, dim int, ids []int32, grads []float32, gradScale float32)
}

// CountedRule is a RowRule that learns from a push more than gradients: behind the
// dim values of a row's gradient come some counts, such as in how many samples the
// row was. Counts of one row add up as its gradients do, and are neither scaled nor
// rounded. Such a rule may begin a row with a part of its weights and have it
// extended later: whoever keeps the rows knows what weights they begin with.
type CountedRule interface {
	RowRule
	// Counts is how many values follow each gradient, 1 or more.
	Counts() int
	// CheckCounts reports counts that cannot be, among rows of dim values and their
	// counts.
	CheckCounts(dim int, grads []float32) error
	// UpdateCounted is UpdateRows with the counts behind each row of grads. It
	// appends to due the places in ids of rows that are to be extended now, and
	// returns it.
	UpdateCounted(data []float32, state [][]float32, dim int, ids []int32, grads []float32, gradScale float32, due []int32) []int32
	// Begin clears those of a new row's initial weights that come with Extend.
	Begin(row []float32)
	// Extend gives row id those of its initial weights that Begin has cleared.
	Extend(data []float32, state [][]float32, dim int, id int32, initial []float32)
}

// Counts is how many values follow each gradient in a push to rows of a rule, 0 for
// most.
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
	Initial float32 // of a new row's values
}

// Rated is what has a learning rate that may be changed between updates, as
// every [RowRule] of this package has. SetLR panics where the rate is negative
// or not finite.
type Rated interface {
	SetLR(lr float64)
	CurrentLR() float64
}
