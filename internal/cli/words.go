package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Counted is quantity.Count.
func Counted(n int, noun string) string { return quantity.Count(n, noun) }

// Grouped is quantity.Group.
func Grouped(n int) string { return quantity.Group(n) }

// Rated is quantity.Rate.
func Rated(perSecond float64) string { return quantity.Rate(perSecond) }

// Milliseconds is quantity.Milliseconds.
func Milliseconds(ms float64) string { return quantity.Milliseconds(ms) }

// Bytes is quantity.Traffic.
func Bytes(n float64) string { return quantity.Traffic(n) }

// Memory formats a number of bytes of memory or disk: quantity.Bytes.
func Memory(n int64) string { return quantity.Bytes(n) }

// After returns before and text, or "" if text is empty.
func After(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

// Pairs formats numbers by name, such as "a=1,b=2".
func Pairs(numbers map[string]float64, is, and string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		parts = append(parts, fmt.Sprintf("%s%s%v", name, is, numbers[name]))
	}
	return strings.Join(parts, and)
}

// InLines formats a list as indented lines of help.
func InLines(names []string) string {
	const columns = 78 // width of the surrounding text
	var b strings.Builder
	at := 0
	for i, name := range names {
		if i < len(names)-1 {
			name += ","
		}
		switch {
		case i == 0:
			at, _ = b.WriteString("  " + name)
		case at+1+len(name) > columns:
			b.WriteByte('\n')
			at, _ = b.WriteString("  " + name)
		default:
			n, _ := b.WriteString(" " + name)
			at += n
		}
	}
	return b.String()
}
