package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// `ringo run` starts servers that keep parameters beside any program, and starts again
// those that are lost.
func TestRunTables(t *testing.T) {
	t.Parallel()
	program := os.Args[0] + " train mlp " + small + "--servers 2 --sync bsp "
	want := runSummary(t, "train mlp "+small+"--np 2 --transport mem --collective-algorithm naive")["params_sha256"]
	status, out, errs := command(t, "run --np 2 --servers 2 --sync bsp -- "+program)
	if status != 0 || sha(t, out) != want {
		t.Errorf("status %d, stdout %q, stderr %q, want sha256 %v", status, out, errs, want)
	}
	checkHolds(t, "stderr", errs, "[ps 1] parameter server 1 of 2 is done: ")

	line := "train mlp --data synthetic --epochs 30 --batch 16 --train-limit 640 --eval-limit 33 --threads 1 --progress none "
	dir := t.TempDir()
	p := start(t, "run --np 2 --servers 2 --sync bsp --ps-durability wal --set job.max-restarts=2 --ps-dir "+dir+" -- "+os.Args[0]+" "+line+"--servers 2 --sync bsp")
	p.await(&p.out, "epoch  3/")
	if err := syscall.Kill(p.keeper(1), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.checkEnd(0, "parameter server 1 is lost: killed by signal 9 (SIGKILL)", "it is started again (1 of 2)")
	if got, want := sha(t, p.out.String()), runSummary(t, line+"--np 2 --transport mem --collective-algorithm naive")["params_sha256"]; got != want {
		t.Errorf("sha256 %s, want %v", got, want)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(files) != 2 {
		t.Errorf("%v, %v: want a folder of each server", files, err)
	}

	// ringo train finds out how many there are, and what they do.
	status, out, errs = command(t, "run --np 2 --servers 2 --sync bsp -- "+os.Args[0]+" train mlp "+small+"--sync bsp")
	if status != 0 || sha(t, out) != want {
		t.Errorf("status %d, stdout %q, stderr %q, want sha256 %v", status, out, errs, want)
	}
	status, out, errs = command(t, "run --np 2 --servers 2 --sync bsp -- "+os.Args[0]+" train mlp "+small)
	if status != 0 || sha(t, out) != want {
		t.Errorf("told nothing: status %d, stdout %q, stderr %q, want sha256 %v", status, out, errs, want)
	}

	// A program that wants other servers than there are is told so.
	for flags, text := range map[string]string{
		"--servers 2":                          "give all processes of a job the same",
		"--servers 1 --sync bsp":               "2 parameter servers, but RINGO_PS_ADDRS has 1: give",
		"--servers 2 --sync async":             "sync is async on server ",
		"--servers 2 --sync ssp --staleness 1": "--staleness 1 has no effect with --sync bsp: it is for --sync ssp alone",
	} {
		status, _, errs := command(t, "run --np 2 "+flags+" -- "+program)
		if status != exitFailed {
			t.Errorf("%s: status %d", flags, status)
		}
		checkHolds(t, "stderr of "+flags, errs, text)
	}
}

// The program's ranks are told the transport that was asked for, and nothing where none was.
func TestRunTellsTheTransport(t *testing.T) {
	for flags, want := range map[string]string{"--transport tcp ": "tcp\n", "--transport shm ": "shm\n", "": ""} {
		status, out, errs := command(t, "run --np 1 "+flags+"-- printenv RINGO_TRANSPORT")
		if out != want || want != "" && status != 0 {
			t.Errorf("%q: status %d, stdout %q, stderr %q, want stdout %q", flags, status, out, errs, want)
		}
	}
}

// TestRunPassesTheAlgorithm: ranks of any program use the algorithm of the launcher, whose results
// have the bits of that algorithm, and reject another one.
func TestRunPassesTheAlgorithm(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{"--collective-algorithm ring ": "ring\n", "--algorithm naive ": "naive\n", "": ""} {
		status, out, errs := command(t, "run --np 1 "+flags+"-- printenv RINGO_COLLECTIVE_ALGORITHM")
		if out != want || want != "" && status != 0 {
			t.Errorf("%q: status %d, stdout %q, stderr %q, want stdout %q", flags, status, out, errs, want)
		}
	}
	train := os.Args[0] + " train mlp " + small
	hashes := map[any]bool{}
	for _, name := range []string{"ring", "naive"} {
		want := runSummary(t, "train mlp "+small+"--np 3 --transport mem --collective-algorithm "+name)["params_sha256"]
		status, out, errs := command(t, "run --np 3 --collective-algorithm "+name+" -- "+train)
		if status != 0 || sha(t, out) != want {
			t.Errorf("%s: status %d, stdout %q, stderr %q, want sha256 %v", name, status, out, errs, want)
		}
		hashes[want] = true
	}
	if len(hashes) != 2 {
		t.Errorf("both algorithms have sha256 %v: the bits do not tell them apart", hashes)
	}
	status, _, errs := command(t, "run --np 2 --collective-algorithm ring -- "+train+"--collective-algorithm naive")
	if status != exitFailed {
		t.Errorf("two algorithms: status %d", status)
	}
	checkHolds(t, "stderr", errs, "RINGO_COLLECTIVE_ALGORITHM=ring, but the program sets naive: remove one of the two")
	status, _, errs = command(t, "run --np 2 --collective-algorithm rng -- "+train)
	if status != exitUsage {
		t.Errorf("an unknown algorithm: status %d", status)
	}
	checkHolds(t, "stderr", errs, "--collective-algorithm rng: want one of auto, ring, doubling, halving, tree, hierarchical, exchange, direct, pairwise, naive")
}

// Its servers know of a lost rank, and the others go on, where the program says so too.
func TestRunTablesLost(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "run.jsonl")
	p := start(t, "run --np 3 --servers 2 --sync async --ps-failure-policy continue "+lostSoon+"-- "+os.Args[0]+" "+goingOn+"--sync async --json "+file)
	p.hit(1, syscall.SIGKILL)
	p.checkEnd(0, "ringo: rank 1 is lost: killed by signal 9 (SIGKILL)", "; the other processes continue\n", "[ps 0] ringo: server 0: trainer 1 is lost: its session 0 has been away for 6s")
	checkLost(t, p, file)
}
