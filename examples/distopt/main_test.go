package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
)

// TestEachOptionLearns: two ranks train synthetic images by each option, and digits are recognised
// far above chance.
func TestEachOptionLearns(t *testing.T) {
	for name, option := range options {
		out := capture(t, func() error {
			return ringo.Local(t.Context(), 2, ringo.Config{}, func(job *ringo.Job) error {
				return mnist(job, data.Config{Dir: data.Synthetic, Seed: 1, TrainLimit: 1280, EvalLimit: 200}, option, 4)
			})
		})
		_, text, _ := strings.Cut(out, "test accuracy ")
		if !strings.Contains(out, "rank 1 of 2, "+string(option.Strategy)+", epoch 4: ") || text < "0.2" {
			t.Errorf("%s: %q", name, out)
		}
	}
}

// capture returns what body writes to standard output.
func capture(t *testing.T, body func() error) string {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = file
	err = body()
	os.Stdout = stdout
	text, failed := os.ReadFile(file.Name())
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	return string(text)
}

// TestUnknownOptionIsRefused: the error lists the options.
func TestUnknownOptionIsRefused(t *testing.T) {
	if os.Getenv("DISTOPT_TEST_MAIN") != "" {
		os.Args = []string{"distopt", data.Synthetic, "fp8"}
		main()
	}
	cmd := exec.Command(os.Args[0], "-test.run=TestUnknownOptionIsRefused")
	cmd.Env = append(os.Environ(), "DISTOPT_TEST_MAIN=1")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "fp32, fp16, partial, topk, threshold") {
		t.Errorf("%v, %s", err, out)
	}
}

// TestIsShort: the program has at most 60 lines.
func TestIsShort(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n > 60 {
		t.Errorf("main.go has %d lines, want at most 60", n)
	}
}
