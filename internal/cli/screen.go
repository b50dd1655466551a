package cli

import (
	"bytes"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// screen is a terminal with word wrapping of lines, except unfinished ones such as progress bars.
type screen struct{ file *os.File }

// Screen returns w, or for a terminal a writer that wraps long lines.
func Screen(w io.Writer) io.Writer {
	if file, ok := terminalFile(w); ok {
		return screen{file}
	}
	return w
}

func terminalFile(w io.Writer) (file *os.File, ok bool) {
	switch w := w.(type) {
	case screen:
		return w.file, true
	case *os.File:
		return w, term.IsTerminal(int(w.Fd()))
	}
	return nil, false
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	_, ok := terminalFile(w)
	return ok
}

// PlainColumns is the width of help texts outside a terminal.
const PlainColumns = 100

// HelpColumns returns the width of flag help: the terminal's width, within readable limits.
func HelpColumns(w io.Writer) int {
	columns := Columns(w)
	if columns == 0 {
		return PlainColumns
	}
	return min(max(columns, 60), 120)
}

// Columns returns the width of a terminal, or 0 if unknown or not a terminal.
func Columns(w io.Writer) int {
	file, ok := terminalFile(w)
	if !ok {
		return 0
	}
	columns, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return max(columns, 0)
}

// Write wraps the complete lines in p.
func (s screen) Write(p []byte) (int, error) {
	out := p
	if bytes.IndexByte(p, '\n') >= 0 {
		out = []byte(foldLines(string(p), Columns(s)))
	}
	if _, err := s.file.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// leastColumns is the minimum width of a terminal for wrapping.
const leastColumns = 20

func foldLines(text string, columns int) string {
	if columns < leastColumns {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		whole, ended := strings.CutSuffix(line, "\n")
		if !ended {
			b.WriteString(line)
			break
		}
		// Text that erases the previous line has no width.
		shown := strings.LastIndexAny(whole, "\r\x1b") + 1
		if shown > 0 && strings.HasPrefix(whole[shown:], "[K") {
			shown += len("[K")
		}
		b.WriteString(whole[:shown])
		foldLine(&b, whole[shown:], columns)
		b.WriteByte('\n')
	}
	return b.String()
}

// foldLine wraps a line at spaces, except long words, indenting the rest by four columns.
func foldLine(b *strings.Builder, line string, columns int) {
	indent := line[:len(line)-len(strings.TrimLeft(line, " "))] + "    "
	if len(indent) > columns/2 {
		indent = "    "
	}
	first := len(line) - len(strings.TrimLeft(line, " "))
	for utf8.RuneCountInString(line) > columns {
		at := breakAt(line, first, columns)
		if at < 0 {
			break
		}
		b.WriteString(strings.TrimRight(line[:at], " "))
		b.WriteByte('\n')
		line, first = indent+strings.TrimLeft(line[at:], " "), len(indent)
	}
	b.WriteString(line)
}

// breakAt returns the last space after from that fits into columns, else the first space, else -1.
func breakAt(line string, from, columns int) int {
	best, column := -1, utf8.RuneCountInString(line[:from])
	for i, r := range line[from:] {
		if r == ' ' {
			if column > columns && best >= 0 {
				break
			}
			best = from + i
		}
		column++
	}
	return best
}
