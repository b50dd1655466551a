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

// Freeze makes the parameters whose names match one of the patterns, of path.Match, keep their
// values: they have no slot in the arenas, are in no plan, and no optimizer sees them. List has
// them, after the others. It is called before Arrange. Where nothing that is trained lies before
// them, Backward does not go there at all. Running statistics move on. It is an error if a pattern
// matches no parameter, or a table: freezing a table is not possible.
func (ps *Params) Freeze(patterns ...string) error {
	if err := ps.eachMatch(patterns, func(p *Param) { p.frozen = true }); err != nil {
		return fmt.Errorf("nn: Freeze: %w", err)
	}
	return nil
}

// SetRate multiplies the learning rate of the parameters whose names match one of the patterns by
// factor, which is positive: see ParamRange.Rate; of several calls the last one counts. It is
// called before Arrange, and fails as Freeze does.
func (ps *Params) SetRate(factor float64, patterns ...string) error {
	if !(factor > 0) || math.IsInf(factor, 0) {
		return fmt.Errorf("nn: SetRate: factor %s: want a positive number; Freeze leaves parameters as they are", quantity.Exact(factor))
	}
	if err := ps.eachMatch(patterns, func(p *Param) { p.rate = factor }); err != nil {
		return fmt.Errorf("nn: SetRate: %w", err)
	}
	return nil
}

// Alias gives parameters second names, such as those that they have in another framework, by which
// patterns find them, too.
func (ps *Params) Alias(names func(name string) string) { ps.alias = names }

// eachMatch calls f for the parameters that match. All faults are told together, and then nothing
// has changed.
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

// namesOf is a name and its alias, if that is another.
func (ps *Params) namesOf(name string) []string {
	if ps.alias == nil || ps.alias(name) == name {
		return []string{name}
	}
	return []string{name, ps.alias(name)}
}

// Near is what to add to the error of a pattern that matches none of some names: those that are
// spelt alike, or else where names begin.
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

// Frozen says that p keeps its value.
func (p *Param) Frozen() bool { return p.frozen }

// Frozen returns the parameters that keep their values. It must not be changed.
func (ps *Params) Frozen() []*Param { return ps.list[ps.trained():] }

// settle moves frozen parameters behind the others.
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

// trained is how many parameters are not frozen.
func (ps *Params) trained() int {
	return len(ps.list) - len(frozenOf(ps.list))
}

// frozenOf is the frozen ones at the end of a settled list.
func frozenOf(list []*Param) []*Param {
	for i, p := range list {
		if p.frozen {
			return list[i:]
		}
	}
	return nil
}

// allFrozen says that none of ps, nil ones left out, needs a gradient.
func allFrozen(ps ...*Param) bool {
	for _, p := range ps {
		if p != nil && !p.frozen {
			return false
		}
	}
	return true
}

// skipper is an operation whose backward computes no gradient of its parameters where all are
// frozen.
type skipper interface{ skips() bool }

// allocFrozenGrads gives the frozen parameters of an operation memory for gradients that nobody
// reads, where it computes them together with others.
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
