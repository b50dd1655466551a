package cli

import (
	"bytes"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// screen is a terminal on which a person reads: lines that are too long for it are
// broken between words. What is drawn on a line that is not ended, such as a progress
// bar, is written as it comes.
type screen struct{ file *os.File }

// Screen is w, or where that is a terminal a writer that folds long lines.
func Screen(w io.Writer) io.Writer {
	if file, ok := terminalFile(w); ok {
		return screen{file}
	}
	return w
}

// terminalFile is the terminal that an output is.
func terminalFile(w io.Writer) (file *os.File, ok bool) {
	switch w := w.(type) {
	case screen:
		return w.file, true
	case *os.File:
		return w, term.IsTerminal(int(w.Fd()))
	}
	return nil, false
}

// IsTerminal tells whether what is written to w is shown to a person.
func IsTerminal(w io.Writer) bool {
	_, ok := terminalFile(w)
	return ok
}

// PlainColumns is how wide help is where it goes to no terminal.
const PlainColumns = 100

// HelpColumns is how wide the help of flags is to be: as wide as the terminal, while
// a line stays readable.
func HelpColumns(w io.Writer) int {
	columns := Columns(w)
	if columns == 0 {
		return PlainColumns
	}
	return min(max(columns, 60), 120)
}

// Columns is how wide a terminal is, 0 where it does not say or w is none.
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

// Write folds the lines that end in p.
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

// leastColumns is how wide a terminal is at least for lines to be broken.
const leastColumns = 20

// foldLines breaks the lines that end in text.
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
		// What erases the line before it takes no columns.
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

// foldLine writes a line in pieces that fit, but for words that do not: broken at
// spaces, and what follows indented by four more than the line itself.
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

// breakAt is the last space from a place on before which so many columns suffice, or the
// first one; -1 where there is none.
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
