package main

import (
	"io"
	"strings"
)

// plainColumns is how wide help is where it goes to no terminal.
const plainColumns = 100

// helpColumns is how wide the help of flags is to be: as wide as the terminal, while
// a line stays readable.
func helpColumns(stdout io.Writer) int {
	columns := columnsOf(stdout)
	if columns == 0 {
		return plainColumns
	}
	return min(max(columns, 60), 120)
}

// inLines writes a list into indented lines of help.
func inLines(names []string) string {
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
