package compress

import (
	"errors"
	"fmt"
	"sort"

	"github.com/ringo-ml/ringo/optim"
)

// Param is a parameter and its range in the arena, [Lo, Hi).
type Param struct {
	Name   string
	Lo, Hi int
}

// Layout says which parameter lies where in an arena. What lies between two
// parameters is padding: zero, and not kept.
type Layout struct {
	params []Param // ascending
	length int
}

// NewLayout checks the parameters of an arena of n values: unique names, ranges
// inside that do not overlap, in any order. It reports every fault.
func NewLayout(params []Param, n int) (*Layout, error) {
	l := &Layout{params: append([]Param(nil), params...), length: n}
	var errs []error
	if n < 0 || n > MaxLen {
		errs = append(errs, fmt.Errorf("arena of %d values: want 0 to %d", n, MaxLen))
	}
	sort.Slice(l.params, func(i, j int) bool { // an empty one lies before what begins at its place
		a, b := l.params[i], l.params[j]
		return a.Lo < b.Lo || a.Lo == b.Lo && a.Hi < b.Hi
	})
	seen, end := map[string]bool{}, 0
	for _, p := range l.params {
		if p.Name == "" || seen[p.Name] {
			errs = append(errs, fmt.Errorf("parameter %q at %d: want a name that no other has", p.Name, p.Lo))
		}
		if seen[p.Name] = true; p.Lo < end || p.Hi < p.Lo || p.Hi > n {
			errs = append(errs, fmt.Errorf("parameter %q: range [%d, %d) overlaps or is outside of the arena of %d values", p.Name, p.Lo, p.Hi, n))
		}
		end = max(end, p.Hi)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("compress: %w", errors.Join(errs...))
	}
	return l, nil
}

// Len is the length of the arena.
func (l *Layout) Len() int { return l.length }

// Params are the parameters in the order of their ranges. They must not be
// changed.
func (l *Layout) Params() []Param { return l.params }

// At returns the parameter that holds value i of the arena; ok is false of
// padding.
func (l *Layout) At(i int) (p Param, ok bool) {
	at := sort.Search(len(l.params), func(j int) bool { return l.params[j].Hi > i })
	if at == len(l.params) || l.params[at].Lo > i {
		return Param{}, false
	}
	return l.params[at], true
}

// Values is how many values of the arena's range [lo, hi) are parameters', padding left
// out.
func (l *Layout) Values(lo, hi int) (n int) {
	for _, p := range l.within(lo, hi) {
		n += min(hi, p.Hi) - max(lo, p.Lo)
	}
	return n
}

// within are the parameters of which there are values in [lo, hi).
func (l *Layout) within(lo, hi int) []Param {
	first := sort.Search(len(l.params), func(j int) bool { return l.params[j].Hi > lo })
	end := sort.Search(len(l.params), func(j int) bool { return l.params[j].Lo >= hi })
	return l.params[min(first, end):end]
}

// ClearPadding zeroes what of x, the arena's values from lo on, is no parameter's.
// A code that has no zero, Sign, leaves values there that must not reach the
// parameters.
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

// Memory is one value for every value of an arena, kept from step to step: a
// residual, a velocity. It belongs to the parameters: it has their names in a
// checkpoint, and nothing of it depends on groups.
type Memory struct {
	name   string
	layout *Layout
	values []float32
	state  []optim.State
}

// NewMemory returns memory that is zero. name is what it is called in
// checkpoints.
func NewMemory(name string, l *Layout) *Memory {
	m := &Memory{name: name, layout: l, values: make([]float32, l.length)}
	for _, p := range l.params {
		m.state = append(m.state, optim.State{Name: name + "/" + p.Name, Data: m.values[p.Lo:p.Hi]})
	}
	return m
}

// Range is what belongs to the arena's values [lo, hi), to read and write.
func (m *Memory) Range(lo, hi int) []float32 { return m.values[lo:hi:hi] }

// State returns what belongs to each parameter, named such as
// "residual/conv1.weight". The data may be read, saved and overwritten between
// steps.
func (m *Memory) State() []optim.State { return m.state }

// Absorb adds factor times what another rank kept to this memory, matched by
// name; states of other names are left alone.
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

// Inherited returns whose residuals a rank takes over when a job goes on with
// another number of ranks: those of old ranks equal to it modulo the new number.
// Together the ranks inherit each old rank's residual once, so that nothing is
// lost; with more ranks than before the new ones begin with none. As the mean
// divides by the number of ranks, what is inherited is multiplied by new/old to
// move parameters as it would have.
func Inherited(oldRanks, newRanks, rank int) []int {
	var from []int
	for r := rank; r < oldRanks; r += newRanks {
		from = append(from, r)
	}
	return from
}
