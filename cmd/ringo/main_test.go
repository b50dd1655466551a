package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
)

// command runs one command line and returns its exit status and output.
func command(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(context.Background(), args, &out, &errs)
	return status, out.String(), errs.String()
}

func TestVersion(t *testing.T) {
	status, out, errs := command(t, "version")
	if status != 0 || !strings.HasPrefix(out, "ringo "+ringo.Version+" go1.") || errs != "" {
		t.Errorf("status %d, stdout %q, stderr %q", status, out, errs)
	}
}

// A wrong command line is one line on stderr and status 2.
func TestUsageErrors(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"versoin", `"versoin" is not a command of ` + "`ringo`; did you mean version?"},
		{"version --nope", "unknown flag: --nope; see `ringo version --help`"},
		{"version extra", "`ringo version` takes no argument"},
	} {
		status, out, errs := command(t, strings.Fields(c.args)...)
		if status != exitUsage || out != "" || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("ringo %s: status %d, stdout %q, stderr %q, want status %d and %q", c.args, status, out, errs, exitUsage, c.want)
		}
	}
}

func TestHelpListsCommands(t *testing.T) {
	status, out, _ := command(t)
	if status != 0 || !strings.Contains(out, "version") {
		t.Errorf("status %d, help %q", status, out)
	}
}
