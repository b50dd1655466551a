package nn

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/rowinit"
)

// RowInit selects the initial values of a table's rows. They depend on the registry's seed, the
// table's name and the row's number: see package rowinit.
type RowInit = rowinit.Spec

// UniformRows draws from the uniform distribution over [-bound, bound).
func UniformRows(bound float64) RowInit { return RowInit{Name: "uniform", Value: bound} }

// Table is a parameter of which each step uses few rows: an embedding. It is outside the arenas of
// other parameters, and its gradient has only the rows of a step.
type Table struct {
	Name      string
	Rows, Dim int
	Data      []float32 // Rows*Dim, row by row; rows of Hold for a table with rows elsewhere
	Init      RowInit
	// Rule names the rows' update rule; empty means the run's optimizer. Admission selects the keys
	// that get a row on servers. Both have the syntax of settings: "ftrl:rate=50", "count:3".
	// Models set them after NewTable; settings of the user have precedence.
	Rule, Admission string
	// Slots describes which of a batch's bags the model looks up, by slot: the number of last keys
	// of each bag, -1 for all, 0 for none. Further slots are not looked up. It is nil for a table
	// that is looked up by ids. Arrange sets it.
	Slots []int

	owner *Params
	at    []int32 // rows of a batch's keys if rows are elsewhere, see Hold
	ids   []int32
	grads []float32

	spareIDs   []int32 // memory for the next merge
	spareGrads []float32
}

// Grad is the gradient of all calls of Backward since the end of the last step: the ids of the
// looked-up rows, ascending and unique, and Dim values for each. Backward overwrites both.
func (t *Table) Grad() (ids []int32, rows []float32) { return t.ids, t.grads }

// TablesElsewhere makes later tables without rows: rows are in other processes, such as servers,
// and each pass gets only those that it uses, see Table.Hold.
func (ps *Params) TablesElsewhere() { ps.elsewhere = true }

// Hold sets the rows, of Dim values each, of a table with rows elsewhere: id i is row i of them, in
// Grad as well. For lookups by keys, at has the row of each key of the batch's bags in Slots, and
// any value for other keys; otherwise it is nil. rows may be empty if the batch has no lookups. The
// caller owns both and may change them between passes only. If rows is other memory than in the
// last call, a new sum of the table's gradient starts, because ids then mean other rows.
func (t *Table) Hold(rows []float32, at []int32) {
	if !t.owner.elsewhere || len(rows)%t.Dim != 0 {
		panic(fmt.Sprintf("nn: table %s: %d values are held: want rows of %d, and a table whose rows lie elsewhere", t.Name, len(rows), t.Dim))
	}
	if unsafe.SliceData(rows) != unsafe.SliceData(t.Data) {
		t.ids, t.grads = t.ids[:0], t.grads[:0]
	}
	t.Data, t.at = rows, at
}

// note adds to Slots a lookup of steps keys of each bag, or 0 for all.
func (t *Table) note(first, slots, steps int) {
	if steps == 0 {
		steps = -1
	}
	t.Slots = append(t.Slots, make([]int, max(0, first+slots-len(t.Slots)))...)
	for i := range slots {
		if was := &t.Slots[first+i]; *was >= 0 {
			*was = max(*was, steps)
			if steps < 0 {
				*was = steps
			}
		}
	}
}

// reading reports whether Slots contains a lookup: see note.
func (t *Table) reading(first, slots, steps int) bool {
	for i := first; i < first+slots; i++ {
		if i >= len(t.Slots) || t.Slots[i] >= 0 && (steps == 0 || t.Slots[i] < steps) {
			return false
		}
	}
	return true
}

// held is the number of rows for lookups.
func (t *Table) held() int { return len(t.Data) / t.Dim }

// Stream returns the key of the random numbers for the initial values of the table's rows.
func (t *Table) Stream() uint64 { return rowinit.Table(t.owner.seed, t.Name) }

// NewTable makes a table. Arrange reports errors.
func (ps *Params) NewTable(name string, init RowInit, rows, dim int) *Table {
	t := &Table{Name: name, Rows: rows, Dim: dim, Init: init, owner: ps}
	if err := ps.check(name, []int{rows, dim}); err != nil {
		ps.faults = append(ps.faults, err)
		return t
	}
	begin, err := init.Init()
	if err != nil {
		ps.faults = append(ps.faults, fmt.Errorf("table %q: %w", name, err))
		return t
	}
	switch {
	case ps.elsewhere:
		t.Data = make([]float32, dim) // a row for Arrange
	case ps.outline:
		t.Data = aligned(rows * dim)
	default:
		t.Data = aligned(rows * dim)
		stream := t.Stream()
		for i := range rows {
			begin(t.Data[i*dim:][:dim], rowinit.Row(stream, uint64(i)))
		}
	}
	ps.tables = append(ps.tables, t)
	return t
}

// Tables returns the tables in the order of creation. Callers must not change it.
func (ps *Params) Tables() []*Table { return ps.tables }

// takeRows returns memory for n values of rows and the maximum number of ids, both empty. The dry
// run's memory, for one sample, is not from alloc.
func (ps *Params) takeRows(n, dim int) ([]float32, []int32) {
	if ps.slots == nil {
		return make([]float32, 0, n), make([]int32, 0, n/dim)
	}
	ids := ps.take(ps.alloc, n/dim)
	return ps.take(ps.alloc, n)[:0], unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(ids))), len(ids))[:0]
}

// Buffer is a tensor that a model stores but does not train, such as running statistics. After
// Arrange, Data is part of the arena of buffers.
type Buffer struct {
	Name string
	Data []float32
}

// NewBuffer makes a buffer of n values. Arrange reports errors.
func (ps *Params) NewBuffer(name string, value float32, n int) *Buffer {
	b := &Buffer{Name: name}
	if err := ps.check(name, []int{n}); err != nil {
		ps.faults = append(ps.faults, err)
		return b
	}
	b.Data = slices.Repeat([]float32{value}, n)
	ps.buffers = append(ps.buffers, b)
	return b
}

// Buffers is the arena of buffers in the order of creation, without padding. Ranks average it
// before evaluating or saving.
func (ps *Params) Buffers() []float32 { return ps.state }

// BufferList returns the buffers in the order of creation. Callers must not change it.
func (ps *Params) BufferList() []*Buffer { return ps.buffers }

// arrangeBuffers moves the buffers into their arena.
func (ps *Params) arrangeBuffers() {
	at := 0
	for _, b := range ps.buffers {
		at += len(b.Data)
	}
	ps.state = make([]float32, 0, at)
	for _, b := range ps.buffers {
		lo := len(ps.state)
		ps.state = append(ps.state, b.Data...)
		b.Data = ps.state[lo:len(ps.state):len(ps.state)]
	}
}

// taken reports a name in use.
func (ps *Params) taken(name string) error {
	for _, p := range ps.list {
		if p.Name == name {
			return fmt.Errorf("two parameters are named %q", name)
		}
	}
	for _, t := range ps.tables {
		if t.Name == name {
			return fmt.Errorf("a parameter and a table, or two tables, are named %q", name)
		}
	}
	for _, b := range ps.buffers {
		if b.Name == name {
			return fmt.Errorf("a parameter and a buffer, or two buffers, are named %q", name)
		}
	}
	return nil
}

func (ps *Params) stream(name string) *rand.Rand {
	return rand.New(rand.NewPCG(ps.seed, hashName(name)))
}
