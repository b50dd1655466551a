package setting

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
)

// Values maps the paths of settings to their values, as text.
type Values map[Path]string

// Values returns the settings of the given scopes, or all settings without a scope.
func (t *Table) Values(scopes ...Scope) Values {
	out := Values{}
	for _, r := range t.rows {
		if len(scopes) == 0 || slices.Contains(scopes, r.Scope) {
			out[r.Path] = r.Value.String()
		}
	}
	return out
}

// Hash returns a digest of the values, small enough for a handshake.
func (v Values) Hash() [sha256.Size]byte {
	h := sha256.New()
	for _, p := range slices.Sorted(maps.Keys(v)) {
		fmt.Fprintf(h, "%q=%q\n", p, v[p])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Difference is a setting with different values in two processes, or in a run and its checkpoint.
type Difference struct {
	Path         Path
	Mine, Theirs string // "" if the setting is missing
}

// Differences returns the settings with different values, sorted by path.
func (v Values) Differences(theirs Values) (out []Difference) {
	all := maps.Clone(v)
	maps.Copy(all, theirs)
	for _, p := range slices.Sorted(maps.Keys(all)) {
		if v[p] != theirs[p] {
			out = append(out, Difference{p, v[p], theirs[p]})
		}
	}
	return out
}
