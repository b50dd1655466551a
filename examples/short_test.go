// Package examples has the programs that show how ringo is used: each folder is one.
package examples

import (
	"bytes"
	"os"
	"testing"
)

// These examples are there to be read in one go.
func TestExamplesAreShort(t *testing.T) {
	for _, name := range []string{"linear", "towers", "regression", "finetune"} {
		text, err := os.ReadFile(name + "/main.go")
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(text, []byte("\n")); n >= 60 {
			t.Errorf("%s/main.go has %d lines, want less than 60", name, n)
		}
	}
}
