package setting

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
)

// Values are the texts of some settings, by path.
type Values map[Path]string

// Values are those of the scopes named; of all without a name.
func (t *Table) Values(scopes ...Scope) Values {
	out := Values{}
	for _, r := range t.rows {
		if len(scopes) == 0 || slices.Contains(scopes, r.Scope) {
			out[r.Path] = r.Value.String()
		}
	}
	return out
}

// Hash is equal for equal values, and so few bytes that a handshake can carry it.
func (v Values) Hash() [sha256.Size]byte {
	h := sha256.New()
	for _, p := range slices.Sorted(maps.Keys(v)) {
		fmt.Fprintf(h, "%q=%q\n", p, v[p])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Difference is a setting of which two processes, or a run and its checkpoint, have different values.
type Difference struct {
	Path         Path
	Mine, Theirs string // "" where one does not have it
}

// Differences are all of them, by path.
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
