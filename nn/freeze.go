package nn

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/spelling"
)

// Freeze fixes the values of the parameters with names that match a pattern of path.Match: they
// have no range in the arenas (the slices of all trained parameters and gradients), and no
// optimizer updates them. List has them after the trained ones. Call Freeze before Arrange.
// Backward skips the beginning of a model if it has no trained parameters. Running statistics of
// frozen layers still change. It is an error if a pattern matches no parameter, or a table: tables
// cannot be frozen.
func (ps *Params) Freeze(patterns ...string) error {
	if err := ps.eachMatch(patterns, func(p *Param) { p.frozen = true }); err != nil {
		return fmt.Errorf("nn: Freeze: %w", err)
	}
	return nil
}

// SetRate multiplies the learning rate of the parameters with names that match a pattern by factor,
// which is positive: see ParamRange.Rate. The last call for a parameter counts. Call it before
// Arrange; errors are those of Freeze.
func (ps *Params) SetRate(factor float64, patterns ...string) error {
	if !(factor > 0) || math.IsInf(factor, 0) {
		return fmt.Errorf("nn: SetRate: factor %s: want a positive number; Freeze leaves parameters as they are", quantity.Exact(factor))
	}
	if err := ps.eachMatch(patterns, func(p *Param) { p.rate = factor }); err != nil {
		return fmt.Errorf("nn: SetRate: %w", err)
	}
	return nil
}

// Alias gives parameters second names, such as those in another framework. Patterns of Freeze and
// SetRate match them too.
func (ps *Params) Alias(names func(name string) string) { ps.alias = names }

// eachMatch calls f for the parameters that match a pattern. If patterns have errors, it returns
// all of them and calls f for none.
func (ps *Params) eachMatch(patterns []string, f func(p *Param)) error {
	if ps.slots != nil {
		return errors.New("Arrange has laid the parameters out before")
	}
	var faults []error
	var all []*Param
	for _, pattern := range patterns {
		matched, err := ps.matches(pattern)
		if err != nil {
			faults = append(faults, fmt.Errorf("pattern %q: %w", pattern, err))
		}
		all = append(all, matched...)
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	for _, p := range all {
		f(p)
	}
	return nil
}

func (ps *Params) matches(pattern string) (all []*Param, err error) {
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, err
	}
	var known []string
	find := func(name string) (found bool) {
		for _, n := range ps.namesOf(name) {
			ok, _ := path.Match(pattern, n)
			known, found = append(known, n), found || ok
		}
		return found
	}
	for _, t := range ps.tables {
		if find(t.Name) {
			return nil, fmt.Errorf("it matches table %s: only parameters are frozen or have a rate of their own", t.Name)
		}
	}
	for _, p := range ps.list {
		if find(p.Name) {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no parameter has such a name%s", Near(pattern, known))
	}
	return all, nil
}

// namesOf returns a name and its alias, if different.
func (ps *Params) namesOf(name string) []string {
	if ps.alias == nil || ps.alias(name) == name {
		return []string{name}
	}
	return []string{name, ps.alias(name)}
}

// Near returns the end of an error about a pattern that matches no name: similar names, or else the
// first parts of all names.
func Near(pattern string, names []string) string {
	var begins []string
	for _, n := range names {
		first, _, _ := strings.Cut(n, ".")
		if !slices.Contains(begins, first) {
			begins = append(begins, first)
		}
	}
	plain, _, _ := strings.Cut(pattern, "*")
	if hint := spelling.Hint(strings.TrimSuffix(plain, "."), slices.Concat(begins, names)...); hint != "" {
		return hint
	}
	const most = 12
	if len(begins) > most {
		begins = append(begins[:most], "…")
	}
	return ": names begin with " + strings.Join(begins, ", ")
}

// Frozen reports whether p keeps its value.
func (p *Param) Frozen() bool { return p.frozen }

// Frozen returns the frozen parameters. Callers must not change the slice.
func (ps *Params) Frozen() []*Param { return ps.list[ps.trained():] }

// settle moves frozen parameters to the end.
func (ps *Params) settle() error {
	slices.SortStableFunc(ps.list, func(a, b *Param) int { return order(a.frozen) - order(b.frozen) })
	for i, p := range ps.list {
		p.param = i
	}
	if n := len(ps.list); n > 0 && ps.trained() == 0 && len(ps.tables) == 0 {
		return fmt.Errorf("nn: Arrange: all %d parameters are frozen: nothing is left to train", n)
	}
	return nil
}

func order(frozen bool) int {
	if frozen {
		return 1
	}
	return 0
}

func (ps *Params) trained() int {
	return len(ps.list) - len(frozenOf(ps.list))
}

// frozenOf returns the frozen parameters at the end of a settled list.
func frozenOf(list []*Param) []*Param {
	for i, p := range list {
		if p.frozen {
			return list[i:]
		}
	}
	return nil
}

// allFrozen reports whether no parameter in ps, except nil, needs a gradient.
func allFrozen(ps ...*Param) bool {
	for _, p := range ps {
		if p != nil && !p.frozen {
			return false
		}
	}
	return true
}

// skipper is an operation with a backward that skips the gradients of its parameters if all of them
// are frozen.
type skipper interface{ skips() bool }

// allocFrozenGrads allocates gradients, which are ignored, for the frozen parameters of an
// operation that also has trained ones.
func (t *Tape) allocFrozenGrads(o op) {
	if s, ok := o.(skipper); ok && s.skips() {
		return
	}
	_, ps := t.operandsOf(o)
	for _, p := range ps {
		if p.frozen && p.Grad == nil {
			p.Grad = aligned(len(p.Data))
		}
	}
}
