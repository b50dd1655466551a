package collective

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/setting"
)

const pathRules setting.Path = "tuning.algorithms"

// Rule assigns an algorithm to operations whose operand has at most UpTo bytes.
type Rule struct {
	// Operation is the operation's name, such as "allreduce".
	Operation string
	// UpTo is the largest operand in bytes (in gather and scatter, one part). 0 means no limit.
	UpTo      int
	Algorithm string
}

// Rules are the rules of some operations, each operation's in ascending order of size.
//
// As text they are
//
//	allreduce=doubling:128KiB,pairwise; barrier=doubling
//
// each operation with its algorithms and their maximum sizes.
type Rules []Rule

const betweenRules = "; "

// String returns the text form.
func (l Rules) String() string {
	var words []string
	done := map[string]bool{}
	for _, first := range l {
		if done[first.Operation] {
			continue
		}
		done[first.Operation] = true
		var choices []string
		for _, r := range l {
			if r.Operation == first.Operation {
				choices = append(choices, r.text())
			}
		}
		words = append(words, first.Operation+"="+strings.Join(choices, ","))
	}
	return strings.Join(words, betweenRules)
}

// text returns a rule's text without the name of the operation.
func (r Rule) text() string {
	if r.UpTo == 0 {
		return r.Algorithm
	}
	return r.Algorithm + ":" + setting.Bytes(&r.UpTo).String()
}

// MarshalText returns the text form, one line.
func (l Rules) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText parses the text form. Rules that no group can use are an error.
func (l *Rules) UnmarshalText(text []byte) error {
	var out Rules
	if len(text) > 0 {
		for _, word := range strings.Split(string(text), betweenRules) {
			rules, err := parseRules(word)
			if err != nil {
				return fmt.Errorf("%q: %w", word, err)
			}
			if slices.ContainsFunc(out, func(r Rule) bool { return r.Operation == rules[0].Operation }) {
				return fmt.Errorf("%q: %s is there twice", word, rules[0].Operation)
			}
			out = append(out, rules...)
		}
	}
	if _, err := out.ruleSet(0); err != nil {
		return err
	}
	*l = out
	return nil
}

// parseRules parses the rules of an operation.
func parseRules(text string) (out Rules, err error) {
	op, choices, ok := strings.Cut(text, "=")
	if !ok {
		return nil, errors.New("want an operation and its algorithms, such as allreduce=doubling:128KiB,pairwise")
	}
	for _, word := range strings.Split(choices, ",") {
		r := Rule{Operation: op}
		var size string
		var bounded bool
		if r.Algorithm, size, bounded = strings.Cut(word, ":"); bounded {
			if err := setting.Bytes(&r.UpTo).Set(size); err != nil || r.UpTo == 0 {
				return nil, fmt.Errorf("%s is taken up to %q: want a size such as 4KiB", r.Algorithm, size)
			}
		}
		out = append(out, r)
	}
	return out, nil
}

// ruleSet returns l without default rules, for this number of ranks; 0 means any number.
func (l Rules) ruleSet(ranks int) (t *ruleSet, err error) {
	var faults []string
	fault := func(i int, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("rule %d: "+format, append([]any{i}, args...)...))
	}
	t = new(ruleSet)
	for i, r := range l {
		k := kind(slices.Index(kindNames[:], r.Operation))
		m, ok := methodOf(r.Algorithm)
		switch {
		case k >= kinds || k.pairs() || k == kindSharded:
			fault(i, "there is no operation %q", r.Operation)
			continue
		case !ok || implementation(k, m) == nil:
			fault(i, "%s has no algorithm %q", r.Operation, r.Algorithm)
		case fits(m, ranks) != nil:
			fault(i, "%v", fits(m, ranks))
		case r.UpTo < 0 || len(t[k]) > 0 && t[k][len(t[k])-1].upTo == 0 || len(t[k]) > 0 && r.UpTo != 0 && r.UpTo <= t[k][len(t[k])-1].upTo:
			fault(i, "up to %d bytes of %s does not follow the rule before", r.UpTo, r.Operation)
		}
		t[k] = append(t[k], rule{r.UpTo, m})
	}
	for k, rules := range t {
		if len(rules) > 0 && rules[len(rules)-1].upTo != 0 {
			faults = append(faults, fmt.Sprintf("the last rule of %v must have no bound", kind(k)))
		}
	}
	if len(faults) > 0 {
		return nil, errors.New(strings.Join(faults, "; "))
	}
	return t, nil
}

// Use makes the group choose by p; operations without a rule in p use the default rules. Every rank
// must call Use with the same profile between the same two operations; otherwise ranks with
// different algorithms get an error from an operation. Errors: an invalid profile, or one for
// another number of ranks or hosts; an algorithm that needs shared memory in a group without it.
func (g *Group) Use(p Profile) error {
	if err := p.Validate(); err != nil {
		return fmt.Errorf("collective: profile: %w", err)
	}
	if p.Ranks != g.size || p.Hosts != g.hosts {
		return fmt.Errorf("collective: the profile is for %d ranks on %d hosts, the group has %d on %d: tune again", p.Ranks, p.Hosts, g.size, g.hosts)
	}
	if err := g.follow(p.Rules); err != nil {
		return fmt.Errorf("collective: the profile: %w", err)
	}
	return nil
}

// configure applies the profile or the rules of a new group's configuration.
func (g *Group) configure() error {
	if g.cfg.Profile != nil {
		return g.Use(*g.cfg.Profile)
	}
	if len(g.cfg.Rules) == 0 {
		return nil
	}
	if err := g.follow(g.cfg.Rules); err != nil {
		return setting.Errorf(pathRules, "%v: %w", g.cfg.Rules, err)
	}
	return nil
}

// follow makes the group choose by l.
func (g *Group) follow(l Rules) error {
	t, err := l.ruleSet(g.size)
	if err != nil {
		return err
	}
	fixed := g.defaults()
	for k := range t {
		for _, r := range t[k] {
			if r.method == byDirect && !g.share.whole(g.size) || r.method == byHierarchy && g.hosting == nil {
				return fmt.Errorf("%v has algorithm %v, which this group cannot use", kind(k), r.method)
			}
		}
		if len(t[k]) == 0 {
			t[k] = fixed[k]
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rules.Store(t)
	g.tuned.Store(&l)
	return nil
}

// Rules returns the rules that come from a Profile or the configuration; nil means that all rules
// are defaults. Another group with as many ranks and these Config.Rules chooses the same
// algorithms.
func (g *Group) Rules() Rules {
	if l := g.tuned.Load(); l != nil {
		return slices.Clone(*l)
	}
	return nil
}

// rulesOf returns the rules that t has for the operations given.
func rulesOf(t *ruleSet, ks ...kind) Rules {
	var out Rules
	for _, k := range ks {
		for _, r := range t[k] {
			out = append(out, Rule{Operation: k.String(), UpTo: r.upTo, Algorithm: r.method.String()})
		}
	}
	slices.SortStableFunc(out, func(a, b Rule) int { return cmp.Compare(a.Operation, b.Operation) })
	return out
}
