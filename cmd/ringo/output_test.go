package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const brief = "train mlp --data synthetic --transport mem --threads 1 --batch 8 --train-limit 64 --eval-limit 16 "

// held writes a file and returns where it is, and what reads it.
func held(t *testing.T, text string) (path string, read func() string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path, func() string {
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(got)
	}
}

// A run that cannot begin leaves what files hold; one that does replaces it.
func TestFilesOfFailedStarts(t *testing.T) {
	json, readJSON := held(t, "old\n")
	timeline, readTimeline := held(t, "old\n")
	line := brief + "--np 1 --epochs 1 --json " + json + " --trace " + timeline
	if status, _, errs := command(t, line+" --train-limit 4"); status == 0 || !strings.Contains(errs, "no timeline in "+timeline) {
		t.Errorf("status %d, %s", status, errs)
	}
	if readJSON() != "old\n" || readTimeline() != "old\n" {
		t.Errorf("a run that could not begin left %q and %q", readJSON(), readTimeline())
	}
	if status, _, errs := command(t, line); status != 0 {
		t.Fatal(errs)
	}
	if got := readJSON(); strings.HasPrefix(got, "old") || !strings.Contains(got, `"event":"summary"`) {
		t.Errorf("lines %q", got)
	}
	if got := readTimeline(); !strings.HasPrefix(got, "{") {
		t.Errorf("a timeline %.20q", got)
	}
	if left, _ := filepath.Glob(timeline + "?*"); left != nil {
		t.Errorf("%v is left", left)
	}
}

// A run that goes on adds its lines to those of before, behind one that was cut.
func TestResumeAddsLines(t *testing.T) {
	json, read := held(t, "")
	line := brief + "--np 1 --checkpoint " + t.TempDir() + " --json " + json
	if status, _, errs := command(t, line+" --epochs 1"); status != 0 {
		t.Fatal(errs)
	}
	first := read()
	if err := os.WriteFile(json, []byte(first+`{"event":"ep`), 0o666); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := command(t, line+" --epochs 2 --resume"); status != 0 {
		t.Fatal(errs)
	}
	rest, ok := strings.CutPrefix(read(), first+`{"event":"ep`+"\n")
	if !ok || strings.Count(rest, `"event":"epoch"`) != 1 || strings.Count(rest, `"event":"summary"`) != 1 {
		t.Errorf("%q", read())
	}
}

// full is a disk that is.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// What cannot be printed is a failure, whatever the command.
func TestPrintingFails(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"version", "plan mlp --compute-ms 1", brief + "--np 1 --epochs 1", brief + "--np 2 --epochs 1 --json -"} {
		var errs strings.Builder
		if status := run(context.Background(), words(line), full{}, &errs); status != exitFailed || !strings.Contains(errs.String(), "no space left on device") {
			t.Errorf("ringo %s: status %d, %q", line, status, errs.String())
		}
		if status := run(context.Background(), words(line), io.Discard, io.Discard); status != 0 {
			t.Errorf("ringo %s: status %d where there is room", line, status)
		}
	}
}

// Files that appear at the end are not looked for where a folder is.
func TestFoldersAreNoFiles(t *testing.T) {
	dir := t.TempDir()
	checkRefused(t, exitFailed, brief+"--np 2 --epochs 1 --trace "+dir, "--trace: "+dir+" is a folder")
	checkRefused(t, exitFailed, brief+"--np 2 --epochs 1 --plan exact --tune --cost-profile "+dir, "--cost-profile: "+dir+" is a folder")
}
