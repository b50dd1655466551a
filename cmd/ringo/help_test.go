package main

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/spf13/cobra"
)

// vagueVerb begins descriptions that do not name the command's effect.
var vagueVerb = regexp.MustCompile(`^(Be|Say|Look|Make|Use|Bring|Where)\b`)

// TestHelpOfEveryCommand: every command has a short description, every flag has a text with at most
// one quoted word, and no line is wider than help may be.
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
		if len(cmd.Short) > 60 || vagueVerb.MatchString(cmd.Short) {
			t.Errorf("ringo %s: %q: want a verb of its own and at most 60 characters", line, cmd.Short)
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
