package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/launch"
)

// The test binary is also the example itself.
const roleVar = "CUSTOM_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVar) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// checkTrained reads what rank 0 printed.
func checkTrained(t *testing.T, out string, np int) {
	t.Helper()
	var strategies []string
	var losses []float64
	for line := range strings.Lines(out) {
		var step, ranks int
		var strategy string
		var loss float64
		if _, err := fmt.Sscanf(line, "step %d, rank 0 of %d, %s loss %g\n", &step, &ranks, &strategy, &loss); err != nil || ranks != np {
			t.Fatalf("line %q: %v; want it of %d ranks", line, err, np)
		}
		strategies, losses = append(strategies, strings.TrimSuffix(strategy, ":")), append(losses, loss)
	}
	if got := slices.Compact(strategies); !slices.Equal(got, []string{"fp32", "partialUpdate", "dlgs", "fp16"}) {
		t.Errorf("the strategies were %v", got)
	}
	if last := len(losses) - 1; last < 1 || losses[last] > 0.25 || losses[last] > losses[0]/2 {
		t.Errorf("it learns nothing, the losses were %v", losses)
	}
}

func TestAlone(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"=1")
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	checkTrained(t, string(out), 1)
}

func TestTwoRanks(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := launch.Run(ctx, launch.Config{
		Roles: []launch.Role{launch.Ranks(2, os.Args[0])}, Env: append(os.Environ(), roleVar+"=1"), Version: ringo.Version,
		Stdout: &out, Stderr: t.Output(),
	}); err != nil {
		t.Fatal(err)
	}
	checkTrained(t, out.String(), 2)
}

func TestFaultIsReported(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"=1", launch.RankVar+"=first")
	_, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("got %v, want status 1", err)
	}
	if text := string(exit.Stderr); !strings.HasPrefix(text, "custom: ") || !strings.Contains(text, launch.RankVar) || strings.Contains(text, "goroutine") {
		t.Errorf("stderr: %q", text)
	}
}

// TestWrapsAnOptimizer: the README promises the program's own optimizer within distopt.
func TestWrapsAnOptimizer(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte("distopt.New(job.Group(), &lion{")) || bytes.Contains(text, []byte("ringo/train")) {
		t.Error("main.go does not wrap an optimizer itself")
	}
}

// The example is there to be read in one go.
func TestIsShort(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n >= 80 {
		t.Errorf("main.go has %d lines, want less than 80", n)
	}
}
