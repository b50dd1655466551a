package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/spf13/cobra"
)

// Every command says what it does, every flag has a text whose quoted word is no
// command, and no line is wider than help may be.
func TestHelpOfEveryCommand(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "completion" {
			return
		}
		line := strings.TrimPrefix(cmd.CommandPath()+" --help", "ringo ")
		status, out, errs := command(t, line)
		if status != 0 || errs != "" || cmd.Short == "" {
			t.Errorf("ringo %s: status %d, stderr %q, in short %q", line, status, errs, cmd.Short)
		}
		for text := range strings.Lines(out) {
			text = strings.TrimRight(text, "\n")
			if utf8.RuneCountInString(text) > cli.PlainColumns {
				t.Errorf("ringo %s: more than %d columns: %s", line, cli.PlainColumns, text)
			}
			if flag, ok := strings.CutPrefix(text, "      --"); ok {
				if name, _, _ := strings.Cut(flag, "   "); len(strings.Fields(name)) > 2 {
					t.Errorf("ringo %s: a flag's value is more than a word: %s", line, text)
				}
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(nil, nil))
}
