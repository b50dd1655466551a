package cli

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFoldLines(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"short\n", "short\n"},
		{"", ""},
		{"12345678901234567890\n", "12345678901234567890\n"},
		{"one two three four five six\nx\n", "one two three four\n    five six\nx\n"},
		{"  in one two three four five\n", "  in one two three\n      four five\n"},
		{"a word-that-is-longer-than-a-line is kept whole\n", "a\n    word-that-is-longer-than-a-line\n    is kept whole\n"},
		{"äöü äöü äöü äöü äöü äöü\n", "äöü äöü äöü äöü äöü\n    äöü\n"},
		{"a bar that is drawn over and has no end", "a bar that is drawn over and has no end"},
		{"\r\x1b[Kone two three four five six\na bar that is drawn again", "\r\x1b[Kone two three four\n    five six\na bar that is drawn again"},
	} {
		if got := foldLines(c.text, 20); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
		if got := foldLines(c.text, 0); got != c.text {
			t.Errorf("no terminal: %q", got)
		}
	}
}

// Of any text all words are there, in order, and lines fit if their words do.
func TestFoldKeepsWords(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var words []string
		for range 1 + r.IntN(40) {
			words = append(words, strings.Repeat("é", 1+r.IntN(12)))
		}
		columns := leastColumns + r.IntN(60)
		text := strings.Repeat(" ", r.IntN(4)) + strings.Join(words, strings.Repeat(" ", 1+r.IntN(2))) + "\n"
		got := foldLines(text, columns)
		if strings.Join(strings.Fields(got), " ") != strings.Join(words, " ") {
			t.Fatalf("%q became %q", text, got)
		}
		for line := range strings.Lines(got) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
				t.Fatalf("%d columns of %d: %q", n, columns, line)
			}
		}
	}
}
