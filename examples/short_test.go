// Package examples has the programs that show how ringo is used: each folder is one.
package examples

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/launch"
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

// program is the first block of code of a page in a language.
func program(t *testing.T, page, language string) (text, rest string) {
	t.Helper()
	all, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(all), "\n```"+language+"\n")
	text, rest, closed := strings.Cut(after, "\n```\n")
	if !found || !closed {
		t.Fatalf("%s has no program in %s", page, language)
	}
	return text + "\n", rest
}

// TestProgramOfThePageRuns: the program of docs/library.md prints what the page shows, alone and as
// two ranks.
func TestProgramOfThePageRuns(t *testing.T) {
	text, rest := program(t, "../docs/library.md", "go")
	source, binary := filepath.Join(t.TempDir(), "main.go"), filepath.Join(t.TempDir(), "average")
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-ldflags=-w", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	alone, err := exec.Command(binary).Output()
	if want := strings.TrimSpace(string(alone)); err != nil || !strings.Contains(rest, "`"+want+"`") || want == "" {
		t.Errorf("alone: %q, %v", alone, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := launch.Run(ctx, launch.Config{Roles: []launch.Role{launch.Ranks(2, binary)}, Env: os.Environ(), Version: ringo.Version, Stdout: &out, Stderr: t.Output()}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(rest, "./average\n    "+got) || got == "" {
		t.Errorf("two ranks print %q, which is not on the page", got)
	}
}

// TestProgramOfThePageInCCompiles: the program of docs/c.md compiles against ringo.h; capi/test.sh
// runs it.
func TestProgramOfThePageInCCompiles(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc")
	}
	text, _ := program(t, "../docs/c.md", "c")
	check := exec.Command(cc, "-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I../capi", "-x", "c", "-")
	check.Stdin = strings.NewReader(text)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
