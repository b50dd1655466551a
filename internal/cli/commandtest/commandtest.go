// Package commandtest runs commands in tests and checks their output.
package commandtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/spf13/cobra"
)

// Run runs a command with a line of arguments, two quotes for an empty one, and returns the exit
// status and the output. The error's text is the end of stderr.
func Run(cmd *cobra.Command, line string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	args := strings.Fields(line)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "''", "")
	}
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.Usage(err) })
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	err := cmd.ExecuteContext(context.Background())
	if err == nil {
		return 0, out.String(), errs.String()
	}
	if status = cli.Failed; cli.IsUsage(err) {
		status = cli.UsageError
	}
	return status, out.String(), errs.String() + strings.ReplaceAll(err.Error(), "\n", "; ")
}

// Refused runs a line that must fail with status, no stdout, and a line of error with all of want.
func Refused(t *testing.T, cmd *cobra.Command, status int, line string, want ...string) {
	t.Helper()
	got, out, errs := Run(cmd, line)
	if got != status || out != "" || strings.Contains(errs, "\n") {
		t.Errorf("%s %s: status %d, stdout %q, stderr %q, want status %d and one line", cmd.Name(), line, got, out, errs, status)
	}
	Holds(t, "stderr of "+cmd.Name()+" "+line, errs, want...)
}

// Holds checks that text contains all parts.
func Holds(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s: %q is not in\n%s", what, part, text)
		}
	}
}

// Terminal emulates a terminal: \r moves to the start of the line without erasing.
type Terminal struct {
	done []string // lines above the cursor
	line []rune
	col  int
	// Drawn are the texts drawn over a line.
	Drawn []string
}

// Write never fails.
func (s *Terminal) Write(p []byte) (int, error) {
	for i, line := range strings.Split(string(p), "\n") {
		if i > 0 {
			s.done = append(s.done, strings.TrimRight(string(s.line), " "))
			s.line, s.col = nil, 0
		}
		for j, text := range strings.Split(line, "\r") {
			if j > 0 {
				s.col = 0
			}
			if j > 0 && strings.TrimSpace(text) != "" {
				s.Drawn = append(s.Drawn, text)
			}
			over := []rune(text)
			s.line = append(append(slices.Clone(s.line[:s.col]), over...), s.line[min(len(s.line), s.col+len(over)):]...)
			s.col += len(over)
		}
	}
	return len(p), nil
}

// Text returns the visible text.
func (s *Terminal) Text() string {
	lines := append(slices.Clone(s.done), strings.TrimRight(string(s.line), " "))
	return strings.Join(lines, "\n")
}

// JSON decodes JSON lines and checks that each has exactly the named fields.
func JSON(t *testing.T, text string, fields ...string) []map[string]any {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) != len(fields) || !strings.HasSuffix(text, "\n") {
		t.Fatalf("%d lines of JSON, want %d:\n%s", len(lines), len(fields), text)
	}
	var out []map[string]any
	for i, line := range lines {
		var got map[string]any
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		want := strings.Fields(fields[i])
		for _, name := range want {
			if _, ok := got[name]; !ok {
				t.Errorf("%q is missing in %s", name, line)
			}
		}
		if len(got) != len(want) {
			t.Errorf("other fields than %q in %s", fields[i], line)
		}
		out = append(out, got)
	}
	return out
}

// ClickRows writes a file of n rows in Criteo's format.
func ClickRows(t *testing.T, n int) (path string) {
	t.Helper()
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "%d", i%3/2)
		for c := range 13 {
			fmt.Fprintf(&text, "\t%d", i*(c+1)%97)
		}
		for c := range 26 {
			fmt.Fprintf(&text, "\t%08x", i%(c+2))
		}
		text.WriteString("\n")
	}
	path = filepath.Join(t.TempDir(), "sample.tsv")
	if err := os.WriteFile(path, []byte(text.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// Names of the JSON fields of a training run, used by other programs.
const (
	JobFields      = "event ringo started settings changed machine"
	RunFields      = "event seed model params np threads servers batch global_batch unit data train_samples eval_samples omitted_samples epochs steps_per_epoch optimizer schedule strategy codec plan plan_sha256 buckets transport placement kernels metrics resumed done"
	StepFields     = "event seed epoch step done lr loss wall_s step_ms compute_ms compress_ms exposed_comm_ms update_ms data_wait_ms density samples_per_s"
	EpochFields    = "event epoch seed lr done wall_s train_loss train_accuracy eval_loss eval_accuracy samples_per_s step_ms step_median_ms compute_ms compress_ms exposed_comm_ms update_ms data_wait_ms density step_bytes_sent bytes_sent wire_bytes"
	TimelineFields = "event rank done bars"
	SummaryFields  = "event model np strategy plan plan_sha256 optimizer seed train_loss eval_loss eval_accuracy samples_per_s params_sha256 wall_s params buckets"
	LeftOutFields  = SummaryFields + " left_out"
)
