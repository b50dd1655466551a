package main

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
	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/launch"
)

// The test binary is also the example itself.
const roleVar = "LINEAR_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVar) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func command(t *testing.T, dir string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), roleVar+"=1")
	cmd.Stderr = t.Output()
	return cmd
}

// whole runs the example to its end.
func whole(t *testing.T, dir string) string {
	t.Helper()
	out, err := command(t, dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// Killed whenever it has saved something, and started again, the program ends with the bits of one that never stopped.
func TestKilledAndResumed(t *testing.T) {
	dir := t.TempDir()
	want := whole(t, filepath.Join(dir, "whole"))
	if !strings.HasPrefix(want, "R² 1.00") {
		t.Fatalf("it has not learnt the line: %q", want)
	}
	cut, kills := filepath.Join(dir, "cut"), 0
	for last := int64(0); kills < 3; kills++ {
		cmd := command(t, cut)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for over := false; !over; {
			select {
			case <-ended:
				t.Fatalf("it ended before it was killed a time number %d", kills+1)
			case <-time.After(100 * time.Microsecond):
			}
			if steps, err := checkpoint.Steps(cut); err == nil && len(steps) > 0 && steps[0] > last {
				last, over = steps[0], true
			}
		}
		_ = cmd.Process.Kill()
		<-ended
	}
	if got := whole(t, cut); got != want {
		t.Errorf("killed %d times: %q, want %q", kills, got, want)
	}
}

func TestTwoRanks(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := launch.Run(ctx, launch.Config{
		Roles: []launch.Role{launch.Ranks(2, os.Args[0], t.TempDir())}, Env: append(os.Environ(), roleVar+"=1"), Version: ringo.Version,
		Stdout: &out, Stderr: t.Output(),
	}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "R² 1.00") {
		t.Errorf("it has not learnt the line: %q", &out)
	}
}
