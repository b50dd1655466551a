package main

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/launch"
)

// actVar makes the test binary act as ringo: launchers start their own file
// again, as workers and as the guard.
const actVar = "RINGO_TEST_ACT"

func TestMain(m *testing.M) {
	if os.Getenv(actVar) != "" {
		main()
	}
	for _, name := range []string{launch.RankVar, launch.WorldSizeVar, launch.LocalRankVar, launch.RendezvousVar, launch.TicketVar, launch.CoordinatorVar, launch.ColumnsVar} {
		os.Unsetenv(name) // the tests may run under a launcher
	}
	os.Setenv(actVar, "1") // for all that the tests start
	os.Exit(m.Run())
}

// words splits a command line at spaces; two quotes stand for an empty word.
func words(line string) []string {
	out := strings.Fields(line)
	for i := range out {
		out[i] = strings.ReplaceAll(out[i], "''", "")
	}
	return out
}

// command runs one command line and returns its exit status and output.
func command(t *testing.T, line string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(context.Background(), words(line), &out, &errs)
	return status, out.String(), errs.String()
}

// execute is command for one subcommand that a test has made.
func execute(cmd *cobra.Command, line string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(words(line))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	ctx := context.Background()
	status, text := outcome(ctx, cmd.ExecuteContext(ctx))
	return status, out.String(), errs.String() + text
}

// checkRefused runs a command line that must fail with one line on stderr that
// holds all of want, and nothing on stdout.
func checkRefused(t *testing.T, status int, line string, want ...string) {
	t.Helper()
	got, out, errs := command(t, line)
	if got != status || out != "" || !strings.HasPrefix(errs, "ringo: ") || strings.Count(errs, "\n") != 1 {
		t.Errorf("ringo %s: status %d, stdout %q, stderr %q, want status %d and one line", line, got, out, errs, status)
	}
	checkHolds(t, "stderr of ringo "+line, errs, want...)
}

// checkHolds wants all parts in text.
func checkHolds(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range slices.DeleteFunc(parts, func(p string) bool { return strings.Contains(text, p) }) {
		t.Errorf("%s: %q is not in\n%s", what, part, text)
	}
}
