// Package modeltext describes a model's parameters in lines, so that ranks can compare models and
// name the first difference.
package modeltext

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Text has a line for each parameter, table or array: kind, name and description, separated by zero
// bytes.
type Text []byte

// Parameter adds a parameter of a shape.
func (t *Text) Parameter(name string, shape ...int) {
	sizes := make([]string, len(shape))
	for i, n := range shape {
		sizes[i] = strconv.Itoa(n)
	}
	t.add("parameter", name, cmp.Or(strings.Join(sizes, "×"), "1")+" values")
}

// Table adds a table. about describes the rows: "1000 rows of 16 values".
func (t *Text) Table(name, about string) { t.add("table", name, about) }

// Array adds an array of values.
func (t *Text) Array(name, about string) { t.add("array", name, about) }

func (t *Text) add(kind, name, about string) {
	clean := strings.NewReplacer("\x00", "?", "\n", "?")
	*t = fmt.Appendf(*t, "%s\x00%s\x00%s\n", kind, clean.Replace(name), clean.Replace(about))
}

// Compare returns an error with the first rank different from rank 0, and the first different
// parameter or table. A lost rank's text is nil.
func Compare(all []Text) error {
	for rank, text := range all {
		if text != nil && all[0] != nil && !bytes.Equal(text, all[0]) {
			return fmt.Errorf("rank %d has another model than rank 0: %s: all ranks must build the same one", rank, Difference(text, all[0], "on rank 0"))
		}
	}
	return nil
}

// Difference describes the first different line of two unequal texts. where is the place of the
// second.
func Difference(theirs, first Text, where string) string {
	a, b := strings.Split(string(theirs), "\n"), strings.Split(string(first), "\n")
	i := 0
	for i < min(len(a), len(b))-1 && a[i] == b[i] {
		i++
	}
	kind, ours := shown(b[i])
	other, text := shown(a[i])
	if kind == "" {
		kind = other
	}
	number := 0
	for _, line := range b[:i] {
		if of, _ := shown(line); of == kind {
			number++
		}
	}
	return fmt.Sprintf("%s %d is %s there, and %s %s", kind, number, text, ours, where)
}

func shown(line string) (kind, text string) {
	parts := strings.Split(line, "\x00")
	if len(parts) < 3 {
		return "", "none"
	}
	return parts[0], parts[1] + " of " + parts[2]
}
