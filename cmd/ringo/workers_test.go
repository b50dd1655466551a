package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// Virtual workers have the same bits on goroutines, on processes that share memory, over TCP, and
// on several hosts, and a resumed run takes their number from its checkpoint and another number of
// ranks from the command line.
func TestWorkersOnProcessesAndHosts(t *testing.T) {
	sum := regexp.MustCompile(`params sha256 (\w+)`)
	ssh := fakeSSH(t)
	train := func(words string) string {
		t.Helper()
		status, out, errs := command(t, "train mlp "+small+words)
		m := sum.FindStringSubmatch(out)
		if status != 0 || m == nil {
			t.Fatalf("%s: status %d, stdout %q, stderr %q", words, status, out, errs)
		}
		checkHolds(t, words, out, "batch 16 per virtual worker", "6 virtual workers on ")
		return m[1]
	}
	want := train("--workers 6 --epochs 2")
	for _, words := range []string{"--np 2 --transport mem", "--np 3 --transport shm", "--np 4 --transport tcp", "--np 5", "--hosts a:2,b:1 --np 3 --set job.ssh=" + ssh} {
		if got := train("--workers 6 --epochs 2 " + words); got != want {
			t.Errorf("%s: params sha256 %s, want %s", words, got, want)
		}
	}
	dir := t.TempDir()
	train("--workers 6 --np 2 --checkpoint " + dir)
	for _, np := range []int{3, 1} {
		status, out, errs := command(t, fmt.Sprintf("train mlp --resume --checkpoint %s --np %d --epochs 2 --progress none", dir, np))
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("resumed on %d: status %d, stdout %q, stderr %q, want %s", np, status, out, errs, want)
		}
	}
	checkRefused(t, exitUsage, "train mlp "+small+"--workers 2 --np 3", "--workers 2: want at least one for each rank, since --np is 3")
	checkRefused(t, exitUsage, "train mlp "+small+"--workers 4 --np 2 --sync aggregate", "--sync aggregate with --workers 4: aggregation servers")
}
