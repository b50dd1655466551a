package console

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Counted writes a number with its noun.
func Counted(n int, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "tch"): // batches, and epochs
		noun += "es"
	default:
		noun += "s"
	}
	return Grouped(n) + " " + noun
}

// Grouped writes a number with commas between thousands.
func Grouped(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Rated writes a rate, a slow one with a decimal place.
func Rated(perSecond float64) string {
	if perSecond < 10 {
		return fmt.Sprintf("%.1f", perSecond)
	}
	return Grouped(int(perSecond))
}

// Milliseconds writes them with a sensible number of digits.
func Milliseconds(ms float64) string {
	switch {
	case ms == 0:
		return "0"
	case ms < 0.9995:
		return fmt.Sprintf("%.3f", ms)
	case ms < 99.95:
		return fmt.Sprintf("%.2f", ms)
	}
	return fmt.Sprintf("%.1f", ms)
}

// Bytes writes a number of them with three digits.
func Bytes(n float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if n >= 0.9995*u.size {
			return fmt.Sprintf("%.3g %s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.0f B", n)
}

// Mebibytes writes a number of bytes.
func Mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// After is text behind something, and nothing where there is no text.
func After(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

// Pairs writes numbers by name, such as "a=1,b=2".
func Pairs(numbers map[string]float64, is, and string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		parts = append(parts, fmt.Sprintf("%s%s%v", name, is, numbers[name]))
	}
	return strings.Join(parts, and)
}

// InLines writes a list into indented lines of help.
func InLines(names []string) string {
	const columns = 78 // as the text around it has
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
