package cli_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cli/commandtest"
)

// Every fault is told, and none is no error.
func TestFaults(t *testing.T) {
	cause := errors.New("cause")
	for _, c := range []struct {
		check func(f *cli.Faults)
		want  string
	}{
		{func(f *cli.Faults) { f.Range("n", 1, 1, 5); f.Range("n", 5, 1, 5) }, ""},
		{func(f *cli.Faults) { f.Range("n", 0, 1, 5); f.Range("m", 6, 1, 5) }, "--n 0: want 1 to 5\n--m 6: want 1 to 5"},
		{func(f *cli.Faults) { f.Budget("time", time.Hour) }, ""},
		{func(f *cli.Faults) { f.Budget("time", 0) }, "--time 0s: want more than 0 and at most 1h"},
		{func(f *cli.Faults) { f.Budget("time", 2*time.Hour) }, "--time 2h0m0s: want more than 0 and at most 1h"},
		{func(f *cli.Faults) { f.Known("op", "sum", "sum", "max") }, ""},
		{func(f *cli.Faults) { f.Known("op", "smu", "sum", "mean", "max") }, `--op "smu" is not known (did you mean "sum"?): use sum, mean or max`},
		{func(f *cli.Faults) { f.Known("op", "x", "sum") }, `--op "x" is not known: use sum`},
		{func(f *cli.Faults) { f.Disk(0, 0, 1<<20); f.Disk(1, 1<<20, 1<<20) }, ""},
		{func(f *cli.Faults) { f.Disk(0, 1<<30, 1<<20) }, "--ps-disk 1GiB has no effect without --ps-memory"},
		{func(f *cli.Faults) { f.Disk(1, 1<<10, 1<<20) }, "--ps-disk 1KiB: want at least 1MiB, or 0 for no limit"},
		{func(f *cli.Faults) { f.Error(nil); f.Error(cause) }, "cause"},
	} {
		var f cli.Faults
		c.check(&f)
		err := f.Usage()
		if c.want == "" {
			if err != nil {
				t.Errorf("%v, want none", err)
			}
			continue
		}
		if err == nil || err.Error() != c.want || !cli.IsUsage(fmt.Errorf("wrapped: %w", err)) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	if !errors.Is(cli.Usage(cause), cause) || cli.IsUsage(cause) || cli.IsUsage(nil) {
		t.Error("a fault of the command line is another than its cause")
	}
}

func TestArguments(t *testing.T) {
	ran := func(*cobra.Command, []string) error { return nil }
	commands := func() *cobra.Command {
		return cli.Group(&cobra.Command{Use: "prog"},
			&cobra.Command{Use: "train MODEL", Args: cli.OneArgument("a model", "mnist"), RunE: ran},
			&cobra.Command{Use: "version", Args: cli.NoArguments, RunE: ran}, &cobra.Command{Use: "guard", Hidden: true, RunE: ran})
	}
	for line, want := range map[string]string{
		"train":     "`prog train` needs a model, for instance `prog train mnist`; see `prog train --help`",
		"train a b": "`prog train` takes one model, got [\"a\" \"b\"]",
		"version x": "`prog version` takes no argument, got [\"x\"]",
		"versoin":   "\"versoin\" is not a command of `prog`; did you mean version?; see `prog --help`",
		"gaurd":     "\"gaurd\" is not a command of `prog`; see `prog --help`",
	} {
		commandtest.Refused(t, commands(), cli.UsageError, line, want)
	}
	for _, line := range []string{"train x", "version", ""} {
		if status, _, errs := commandtest.Run(commands(), line); status != 0 {
			t.Errorf("%q: %s", line, errs)
		}
	}
}

// Where lines and objects go, and what a file holds before and after.
func TestOutput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.json")
	write := func(path string, more bool, objects ...int) (stdout, stderr string) {
		cmd := &cobra.Command{Use: "x", RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := cli.OpenMore(cmd, path, more)
			if err != nil {
				return err
			}
			out.Line("%d objects", len(objects))
			for _, o := range objects {
				if err := out.Result(map[string]int{"n": o}, "object %d", o); err != nil {
					return err
				}
			}
			return out.Close()
		}}
		status, stdout, stderr := commandtest.Run(cmd, "")
		if status != 0 {
			t.Fatal(stderr)
		}
		return stdout, stderr
	}
	holds := func(want string) {
		t.Helper()
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	if out, errs := write("-", false, 7); out != "{\"n\":7}\n" || errs != "1 objects\nobject 7\n" {
		t.Errorf("%q and %q", out, errs)
	}
	if out, errs := write("", false, 7); out != "1 objects\nobject 7\n" || errs != "" {
		t.Errorf("%q and %q", out, errs)
	}
	if err := os.WriteFile(file, []byte("old\ncut"), 0o666); err != nil {
		t.Fatal(err)
	}
	write(file, false)
	holds("old\ncut") // there was nothing to say in its place
	write(file, true, 1)
	holds("old\ncut\n{\"n\":1}\n")
	write(file, true, 2)
	holds("old\ncut\n{\"n\":1}\n{\"n\":2}\n")
	write(file, false, 3, 4)
	holds("{\"n\":3}\n{\"n\":4}\n")
	var none cli.Output
	if err := errors.Join(none.Result(1, "x"), none.Close()); err != nil {
		t.Error(err)
	}
}

// A look whether a file can be written leaves what is there, and nothing where it is to appear once it is whole.
func TestLooks(t *testing.T) {
	dir := t.TempDir()
	old, nowhere := filepath.Join(dir, "old"), filepath.Join(dir, "none", "x")
	if err := os.WriteFile(old, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", "-", old} {
		if err := cli.Writable("--json", path); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
	if err := errors.Join(cli.Creatable("--trace", ""), cli.Creatable("--trace", old), cli.Creatable("--trace", filepath.Join(dir, "new"))); err != nil {
		t.Error(err)
	}
	for look, want := range map[error]string{
		cli.Writable("--json", nowhere):   "--json: open " + nowhere,
		cli.Creatable("--trace", nowhere): "--trace: ",
		cli.Creatable("--trace", dir):     "--trace: " + dir + " is a folder: name a file",
	} {
		if look == nil || !strings.HasPrefix(look.Error(), want) {
			t.Errorf("%v, want %s", look, want)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("%v is left, %v", left, err)
	}
}
