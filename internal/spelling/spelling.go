// Package spelling finds known names close to an unknown name.
package spelling

import (
	"fmt"
	"slices"
	"strings"
)

// most is the largest number of suggestions.
const most = 3

// Near returns the nearest known names, at most three equally near, in the order of known: names
// equal except for case, dashes and underscores; or with the fewest typos, up to a third of the
// letters; or with one name inside the other. Near returns nil without a near name.
func Near(given string, known ...string) []string {
	best, Suggest := 1<<30, []string(nil)
	given = folded(given)
	for _, name := range known {
		d, ok := distance(given, folded(name))
		if !ok || d > best || slices.Contains(Suggest, name) {
			continue
		}
		if d < best {
			best, Suggest = d, nil
		}
		Suggest = append(Suggest, name)
	}
	return Suggest[:min(len(Suggest), most)]
}

// Hint is " (did you mean "x"?)" for a message about an unknown name, or "".
func Hint(given string, known ...string) string {
	Suggest := Near(given, known...)
	if len(Suggest) == 0 {
		return ""
	}
	for i, name := range Suggest {
		Suggest[i] = fmt.Sprintf("%q", name)
	}
	return " (did you mean " + strings.Join(Suggest, " or ") + "?)"
}

// separators have many spellings.
var separators = strings.NewReplacer("-", "", "_", "", " ", "", ".", "")

// folded is a name without separators, in small letters.
func folded(name string) string { return separators.Replace(strings.ToLower(name)) }

// distance is the distance of two names; false: too far.
func distance(a, b string) (int, bool) {
	const part = 1000 // beyond every typo
	d, short, long := edits(a, b), min(len(a), len(b)), max(len(a), len(b))
	if d <= max(1, min(3, long/3)) && d < short {
		return d, true
	}
	if short >= 2 && (strings.Contains(a, b) || strings.Contains(b, a)) {
		return part, true
	}
	return 0, false
}

// edits is the number of letters missing, added, replaced or swapped with a neighbour (optimal
// string alignment, in bytes), in O(len(a)·len(b)).
func edits(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	before, last, now := rows[0], rows[1], rows[2]
	for j := range now {
		now[j] = j
	}
	for i := range len(a) {
		before, last, now = last, now, before
		now[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			now[j+1] = min(last[j+1]+1, now[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				now[j+1] = min(now[j+1], before[j-1]+1)
			}
		}
	}
	return now[len(b)]
}
