package main

import (
	"bytes"
	"context"
	"fmt"
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
const roleVar = "FINETUNE_TEST_ROLE"

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

// checkLearnt looks that the second task is learnt from few samples.
func checkLearnt(t *testing.T, out string) {
	t.Helper()
	_, last, _ := strings.Cut(strings.TrimSpace(out), "\n")
	var accuracy float64
	if _, err := fmt.Sscanf(last, "2 classes: accuracy %g", &accuracy); err != nil || accuracy < 0.85 {
		t.Errorf("%q: %v; want an accuracy of 0.85", last, err)
	}
}

// killAfter starts the example and kills it when it has saved something in a folder.
func killAfter(t *testing.T, dir, saved string) {
	t.Helper()
	cmd := command(t, dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case <-ended:
			t.Fatalf("it ended before it was killed, when %s was there", saved)
		case <-time.After(100 * time.Microsecond):
		}
		if steps, err := checkpoint.Steps(filepath.Join(dir, saved)); err == nil && len(steps) > 0 {
			break
		}
	}
	_ = cmd.Process.Kill()
	<-ended
}

// Killed while it learns the first task, and again in the second, and started again, it ends with the bits of one that never stopped.
func TestKilledAndResumed(t *testing.T) {
	dir := t.TempDir()
	want, err := command(t, filepath.Join(dir, "whole")).Output()
	if err != nil {
		t.Fatal(err)
	}
	checkLearnt(t, string(want))
	cut := filepath.Join(dir, "cut")
	killAfter(t, cut, "eight")
	killAfter(t, cut, "two")
	if got, err := command(t, cut).Output(); err != nil || !bytes.Equal(got, want) {
		t.Errorf("killed twice: %q, %v, want %q", got, err, want)
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
	checkLearnt(t, out.String())
}
