package compress

import (
	"fmt"
	"sort"

	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/optim"
)

// Param is a parameter and its range [Lo, Hi) in the arena, the slice of all gradients.
type Param struct {
	Name   string
	Lo, Hi int
}

// Layout assigns parameters to ranges of an arena. Values between two parameters are padding: zero,
// and without a residual.
type Layout struct {
	params []Param // ascending
	length int
}

// NewLayout checks the parameters of an arena of n values: unique names, and disjoint ranges inside
// the arena, in any order. It returns all errors together.
func NewLayout(params []Param, n int) (*Layout, error) {
	l := &Layout{params: append([]Param(nil), params...), length: n}
	var bad faults.List
	bad.If(n < 0 || n > MaxLen, "arena of %d values: want 0 to %d", n, MaxLen)
	sort.Slice(l.params, func(i, j int) bool { // an empty parameter precedes the one that begins at the same index
		a, b := l.params[i], l.params[j]
		return a.Lo < b.Lo || a.Lo == b.Lo && a.Hi < b.Hi
	})
	seen, end := map[string]bool{}, 0
	for _, p := range l.params {
		bad.If(p.Name == "" || seen[p.Name], "parameter %q at %d: want a name that no other has", p.Name, p.Lo)
		if seen[p.Name] = true; p.Lo < end || p.Hi < p.Lo || p.Hi > n {
			bad.Add(fmt.Errorf("parameter %q: range [%d, %d) overlaps or is outside of the arena of %d values", p.Name, p.Lo, p.Hi, n))
		}
		end = max(end, p.Hi)
	}
	if err := bad.Err(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return l, nil
}

// Len is the length of the arena.
func (l *Layout) Len() int { return l.length }

// Params returns the parameters in the order of their ranges. Callers must not change them.
func (l *Layout) Params() []Param { return l.params }

// At returns the parameter that has value i of the arena; ok is false for padding.
func (l *Layout) At(i int) (p Param, ok bool) {
	at := sort.Search(len(l.params), func(j int) bool { return l.params[j].Hi > i })
	if at == len(l.params) || l.params[at].Lo > i {
		return Param{}, false
	}
	return l.params[at], true
}

// Values is the number of parameter values in the arena's range [lo, hi), without padding.
func (l *Layout) Values(lo, hi int) (n int) {
	for _, p := range l.within(lo, hi) {
		n += min(hi, p.Hi) - max(lo, p.Lo)
	}
	return n
}

// within returns the parameters with values in [lo, hi).
func (l *Layout) within(lo, hi int) []Param {
	first := sort.Search(len(l.params), func(j int) bool { return l.params[j].Hi > lo })
	end := sort.Search(len(l.params), func(j int) bool { return l.params[j].Lo >= hi })
	return l.params[min(first, end):end]
}

// ClearPadding zeroes the padding in x, the arena's values from lo on. Sign has no code for zero
// and therefore writes values to padding, which must not change parameters.
func (l *Layout) ClearPadding(lo int, x []float32) {
	hi := lo + len(x)
	at := sort.Search(len(l.params), func(j int) bool { return l.params[j].Hi > lo })
	for end := lo; end < hi; at++ {
		next := hi
		if at < len(l.params) {
			next = min(hi, max(end, l.params[at].Lo))
		}
		clear(x[end-lo : next-lo])
		if end = next; at < len(l.params) {
			end = max(end, l.params[at].Hi)
		}
	}
}

// Memory has one value for every value of an arena, such as a residual or a velocity, and keeps it
// from step to step. Memory belongs to the parameters, with their names in a checkpoint, and does
// not depend on groups.
type Memory struct {
	name   string
	layout *Layout
	values []float32
	state  []optim.State
}

// NewMemory returns memory of zeros. name is its prefix in checkpoints.
func NewMemory(name string, l *Layout) *Memory {
	m := &Memory{name: name, layout: l, values: make([]float32, l.length)}
	for _, p := range l.params {
		m.state = append(m.state, optim.State{Name: name + "/" + p.Name, Data: m.values[p.Lo:p.Hi]})
	}
	return m
}

// Range returns the memory of the arena's values [lo, hi), to read and write.
func (m *Memory) Range(lo, hi int) []float32 { return m.values[lo:hi:hi] }

// State returns the memory of each parameter, named such as "residual/conv1.weight". Callers may
// read, save and overwrite the data between steps.
func (m *Memory) State() []optim.State { return m.state }

// Absorb adds another rank's states times factor to this memory, matched by name; states of other
// names are ignored.
func (m *Memory) Absorb(states []optim.State, factor float32) error {
	own := map[string][]float32{}
	for _, s := range m.state {
		own[s.Name] = s.Data
	}
	for _, s := range states {
		if dst, ok := own[s.Name]; ok && len(dst) != len(s.Data) {
			return fmt.Errorf("compress: %s: %d values handed over, want %d", s.Name, len(s.Data), len(dst))
		}
	}
	for _, s := range states {
		for i := range own[s.Name] {
			own[s.Name][i] += float32(factor * s.Data[i])
		}
	}
	return nil
}

// Inherited returns the old ranks with residuals that a rank gets when a job continues with another
// number of ranks: all old ranks that are equal to rank modulo newRanks. Each old residual is
// inherited once, so that no value is lost; if there are more ranks than before, additional ranks
// begin without residuals. Averages divide by the number of ranks: multiply inherited residuals by
// newRanks/oldRanks, so that they change parameters as before.
func Inherited(oldRanks, newRanks, rank int) []int {
	var from []int
	for r := rank; r < oldRanks; r += newRanks {
		from = append(from, r)
	}
	return from
}
