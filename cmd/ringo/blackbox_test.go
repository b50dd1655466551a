package main

import (
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// The error of a job that failed says what its ranks had recorded, and names a file that shows it.
func TestBlackBoxOfAJob(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("memory that outlives a process is Linux's")
	}
	t.Parallel()
	boxes := t.TempDir()
	p := start(t, endless+"--np 3 --set output.black-box="+boxes)
	p.await(&p.out, "epoch       2/")
	syscall.Kill(p.worker(1), syscall.SIGKILL)
	p.checkEnd(exitFailed, "rank 1 is lost: killed by signal 9")
	checkHolds(t, "the error", p.errs.String(), "\n  black box: operation ", "killed by signal 9 (SIGKILL)); ", "\n  black box: last operations of each process: ringo blackbox "+boxes)
	files, err := filepath.Glob(filepath.Join(boxes, "*"))
	if err != nil || len(files) != 1 || !strings.HasSuffix(p.errs.String(), files[0]+"\n") {
		t.Fatalf("%v: %q, told %s", err, files, p.errs.String())
	}
	status, out, errs := command(t, "blackbox "+files[0])
	if status != 0 || errs != "" {
		t.Errorf("status %d: %s", status, errs)
	}
	checkHolds(t, "the file", out, "black box of 3 processes", "\nrank 1: killed by signal 9 (SIGKILL)\n", "sharded update of ")
}

func TestBlackBoxNeedsItsFolder(t *testing.T) {
	t.Parallel()
	at := filepath.Join(t.TempDir(), "none")
	if status, _, errs := command(t, "train mlp --data synthetic --np 2 --epochs 1 --set output.black-box="+at); status != exitFailed || errs != "ringo: output.black-box "+at+": want a folder that exists, or none\n" {
		t.Errorf("status %d: %s", status, errs)
	}
}
