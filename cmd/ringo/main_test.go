package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench/servers"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/spf13/cobra"
)

func TestVersion(t *testing.T) {
	for _, line := range []string{"version", "--version"} {
		status, out, errs := command(t, line)
		if status != 0 || !strings.HasPrefix(out, "ringo "+ringo.Version+" go1.") || errs != "" {
			t.Errorf("%s: status %d, stdout %q, stderr %q", line, status, out, errs)
		}
	}
}

// Without a subcommand and with --help there is help, on stdout.
func TestHelp(t *testing.T) {
	for line, want := range map[string]string{
		"":                       "Train neural networks on many processes|bench|data|run|train|version",
		"bench":                  "allreduce|step",
		"data":                   "mnist",
		"help train":             "ringo train mnist --data synthetic --np 2 --epochs 3",
		"train --help":           "ringo train mnist --data synthetic --np 2 --epochs 3|--data DIR|ringo help train models|exchange, tuning, servers",
		"run --help":             "ringo run --np N -- PROGRAM|RINGO_LOCAL_RANK|--servers servers",
		"server --help":          "ringo server --index 0 --servers 2 --np 4|RINGO_TICKET|--heartbeat-timeout",
		"bench allreduce --help": "--floats sizes",
		"bench step --help":      "--batch samples",
		"data mnist --help":      "--out DIR|--mirror URL",
		"completion --help":      "source <(ringo completion bash)",
		"man --help":             "man DIR",
	} {
		status, out, errs := command(t, line)
		if status != 0 || errs != "" {
			t.Errorf("ringo %s: status %d, stderr %q", line, status, errs)
		}
		checkHolds(t, "ringo "+line, out, strings.Split(want, "|")...)
	}
	if _, out, _ := command(t, "--help"); strings.Contains(out, guardCommand) || strings.Contains(out, servers.ServerName) {
		t.Errorf("the help shows what nobody is to type:\n%s", out)
	}
}

// Every command has a page of the manual, which tells of each of its flags.
func TestManual(t *testing.T) {
	dir := t.TempDir()
	if status, out, errs := command(t, "man "+dir); status != 0 || out != "" || errs != "" {
		t.Fatalf("status %d, %s%s", status, out, errs)
	}
	each(newRoot(nil, nil), func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "help" {
			return
		}
		text, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"))
		if err != nil {
			t.Error(err)
		}
		plain := strings.ReplaceAll(string(text), `\-`, "-")
		for name := range flagsOf(cmd) {
			if f := cmd.Flags().Lookup(name); f != nil && f.Hidden {
				continue
			}
			if !strings.Contains(plain, `\fB--`+name+`\fR`) {
				t.Errorf("%s: its page does not tell of --%s", cmd.CommandPath(), name)
			}
		}
	})
}

// Words are completed where values are words: models, and what flags take.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"train ''":                 "mnist-cnn\n|gpt-mini\n|:4\n",
		"plan ''":                  "resnet50\n|:4\n",
		"bench step mlp ''":        ":4\n",
		"bench collective --op ''": "allgather\n|reduce-scatter\n|all\n",
		"plan mlp --plan ''":       "one\n|saved\n",
		"ps show ''":               ":16\n",
		"data mnist --progress ''": "auto\nbar\nplain\nnone\n:4\n",
		"data criteo --like ''":    ":0\n",
		"run --np 2 -- ''":         ":0\n",
		"completion ''":            "bash\nzsh\nfish\n:4\n",
		"help bench ''":            "allreduce\t",
	} {
		_, out, _ := command(t, "__complete "+line)
		checkHolds(t, line, out, strings.Split(want, "|")...)
	}
}

// The guard's command ends with its standard input.
func TestGuardCommand(t *testing.T) {
	var stderr bytes.Buffer
	root := newRoot(&stderr, &stderr)
	root.SetArgs([]string{guardCommand})
	root.SetIn(strings.NewReader(""))
	if err := root.Execute(); err != nil || stderr.Len() > 0 {
		t.Errorf("error %v, output %q", err, &stderr)
	}
}

// What is said about an error, and the exit status.
func TestOutcome(t *testing.T) {
	ended, end := context.WithCancel(context.Background())
	end()
	death := &launch.LostProcessError{Rank: 1, ExitStatus: "exit status 3", Tail: []string{"a", "b"}}
	for _, c := range []struct {
		ctx    context.Context
		err    error
		status int
		text   string
	}{
		{context.Background(), nil, 0, ""},
		{ended, nil, 0, ""}, // it came too late
		{ended, errors.New("x"), exitInterrupted, "interrupted"},
		{context.Background(), cli.Usagef("a %d", 1), exitUsage, "a 1"},
		{context.Background(), cli.Usage(errors.Join(errors.New("a"), errors.New("b"))), exitUsage, "a\nringo: b"},
		{context.Background(), errors.Join(errors.New("a"), errors.New("b")), exitFailed, "a; b"},
		{context.Background(), death, exitFailed, death.Error()},
	} {
		if status, text := outcome(c.ctx, c.err); status != c.status || text != c.text {
			t.Errorf("%v: status %d and %q, want %d and %q", c.err, status, text, c.status, c.text)
		}
	}
	if !strings.Contains(death.Error(), "\n") {
		t.Error("the last lines of a dead rank are not quoted as lines")
	}
}
