package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/simd"
)

const refusedFile = "testdata/refused.txt"

// What wrong command lines are answered is a text that a person may read as a whole.
func TestRefused(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(refusedFile)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for line := range strings.Lines(string(text)) {
		command, is := strings.CutPrefix(line, "$ ringo ")
		if is {
			got.WriteString(line + refusal(t, strings.TrimSuffix(command, "\n")))
		} else if strings.HasPrefix(line, "#") || line == "\n" {
			got.WriteString(line)
		}
	}
	if *update {
		if err := os.WriteFile(refusedFile, []byte(got.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := strings.Split(string(text), "\n")
	for i, line := range strings.Split(got.String(), "\n") {
		if i >= len(want) || line != want[i] {
			t.Fatalf("%s:%d: got\n%s\nwant\n%s", refusedFile, i+1, line, strings.Join(want[min(i, len(want)-1):min(i+1, len(want))], "\n"))
		}
	}
}

// refusal is what a command line is answered.
func refusal(t *testing.T, line string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second) // of one that is not refused
	defer cancel()
	var stdout, stderr strings.Builder
	status := run(ctx, words(line), &stdout, &stderr)
	out, errs := stdout.String(), stderr.String()
	if status != exitUsage || out != "" || !strings.HasPrefix(errs, "ringo: ") || !linesOfFaults(errs) {
		t.Errorf("ringo %s: status %d, stdout %q, stderr %q, want status %d and a line for each fault", line, status, out, errs, exitUsage)
	}
	return strings.ReplaceAll(errs, "these can: "+kernelLevels(), "these can: LEVELS")
}

// kernelLevels are those of this host.
func kernelLevels() string {
	var names []string
	for _, l := range simd.Levels() {
		names = append(names, l.Name())
	}
	return strings.Join(names, ", ")
}
