package setting

import (
	"fmt"
	"slices"
	"strings"
)

// Condition is a requirement on other settings: unless it is met, a setting has no effect. A path
// outside the table counts as met.
type Condition interface {
	// holds evaluates the condition. get returns a setting's value as text.
	holds(get func(Path) (text string, known bool)) bool
	// describe returns a format and its arguments, including paths.
	describe() (format string, args []any)
}

// Equals requires a setting's value to be in values.
func Equals(p Path, values ...string) Condition { return is{p, values} }

// NotEquals requires a setting's value not to be in values.
func NotEquals(p Path, values ...string) Condition { return not{is{p, values}} }

// Enabled requires a value other than "", "0", "0s", "false" and "none".
func Enabled(p Path) Condition { return on{p} }

// All is met if all conditions are met.
func All(needs ...Condition) Condition { return joined{needs, " and ", true} }

// Any is met if any condition is met.
func Any(needs ...Condition) Condition { return joined{needs, " or ", false} }

type is struct {
	path   Path
	values []string
}

func (n is) holds(get func(Path) (string, bool)) bool {
	text, known := get(n.path)
	return !known || slices.Contains(n.values, text)
}

func (n is) describe() (string, []any) {
	return "%v " + escaped(strings.Join(n.values, " or ")), []any{n.path}
}

type not struct{ is }

func (n not) holds(get func(Path) (string, bool)) bool {
	_, known := get(n.path)
	return !known || !n.is.holds(get)
}

func (n not) describe() (string, []any) {
	return "%v other than " + escaped(strings.Join(n.values, " and ")), []any{n.path}
}

type on struct{ path Path }

func (n on) holds(get func(Path) (string, bool)) bool {
	text, known := get(n.path)
	return !known || !slices.Contains([]string{"", "0", "0s", "false", "none"}, text)
}

func (n on) describe() (string, []any) { return "%v", []any{n.path} }

type joined struct {
	needs []Condition
	word  string
	all   bool
}

func (n joined) holds(get func(Path) (string, bool)) bool {
	fails := func(one Condition) bool { return one.holds(get) != n.all }
	return slices.ContainsFunc(n.needs, fails) != n.all
}

// failing returns the unmet part of a condition: for All, the unmet conditions only.
func failing(n Condition, get func(Path) (string, bool)) Condition {
	all, ok := n.(joined)
	if !ok || !all.all {
		return n
	}
	lacking := joined{word: all.word, all: true}
	for _, one := range all.needs {
		if !one.holds(get) {
			lacking.needs = append(lacking.needs, failing(one, get))
		}
	}
	return lacking
}

func (n joined) describe() (string, []any) {
	var formats []string
	var args []any
	for _, one := range n.needs {
		f, a := one.describe()
		formats, args = append(formats, f), append(args, a...)
	}
	return strings.Join(formats, n.word), args
}

func escaped(text string) string { return strings.ReplaceAll(text, "%", "%%") }

// Requirement describes a condition with paths: "needs ps.durability wal".
func Requirement(n Condition) string {
	format, args := n.describe()
	return "needs " + fmt.Sprintf(format, args...)
}
