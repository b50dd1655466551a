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
	program := os.Args[0] + " train mlp " + small + "--mode ps --servers 2 --ps-mode sync "
	want := runSummary(t, "train mlp "+small+"--np 2 --transport mem --algorithm naive")["params_sha256"]
	status, out, errs := command(t, "run --np 2 --servers 2 --ps-mode sync -- "+program)
	if status != 0 || sha(t, out) != want {
		t.Errorf("status %d, stdout %q, stderr %q, want sha256 %v", status, out, errs, want)
	}
	checkHolds(t, "stderr", errs, "[ps 1] parameter server 1 of 2 is done: ")

	line := "train mlp --data synthetic --epochs 30 --batch 16 --train-limit 640 --eval-limit 33 --threads 1 --progress none "
	dir := t.TempDir()
	p := start(t, "run --np 2 --servers 2 --ps-mode sync --durability wal --ps-restarts 2 --ps-dir "+dir+" -- "+os.Args[0]+" "+line+"--mode ps --servers 2 --ps-mode sync")
	p.await(&p.out, "epoch  3/")
	if err := syscall.Kill(p.keeper(1), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.checkEnd(0, "parameter server 1 is lost: killed by signal 9 (SIGKILL)", "it is started again (1 of 2)")
	if got, want := sha(t, p.out.String()), runSummary(t, line+"--np 2 --transport mem --algorithm naive")["params_sha256"]; got != want {
		t.Errorf("sha256 %s, want %v", got, want)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(files) != 2 {
		t.Errorf("%v, %v: want a folder of each server", files, err)
	}

	// ringo train finds out how many there are, and not what they do.
	status, out, errs = command(t, "run --np 2 --servers 2 --ps-mode sync -- "+os.Args[0]+" train mlp "+small+"--ps-mode sync")
	if status != 0 || sha(t, out) != want {
		t.Errorf("status %d, stdout %q, stderr %q, want sha256 %v", status, out, errs, want)
	}
	status, _, errs = command(t, "run --np 2 --servers 2 --ps-mode sync -- "+os.Args[0]+" train mlp "+small)
	if status != exitFailed {
		t.Errorf("status %d", status)
	}
	checkHolds(t, "stderr", errs, "2 of them: say what it was told, --ps-mode sync|async|geo|ssp")

	// A program that wants other servers than there are is told so.
	for flags, text := range map[string]string{
		"--servers 2":                             "2 servers keep parameters, but RINGO_PS_ADDRS has 0: say",
		"--servers 1 --ps-mode sync":              "2 servers keep parameters, but RINGO_PS_ADDRS has 1: say",
		"--servers 2 --ps-mode async":             "sync is async on server ",
		"--servers 2 --ps-mode ssp --staleness 1": "sync is ssp on server ",
	} {
		status, _, errs := command(t, "run --np 2 "+flags+" -- "+program)
		if status != exitFailed {
			t.Errorf("%s: status %d", flags, status)
		}
		checkHolds(t, "stderr of "+flags, errs, text)
	}
}

// Its servers know of a lost rank, and the others go on, where the program says so too.
func TestRunTablesLost(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "run.jsonl")
	p := start(t, "run --np 3 --servers 2 --ps-mode async --ps-lost go-on "+lostSoon+"-- "+os.Args[0]+" "+goingOn+"--ps-mode async --json "+file)
	p.hit(1, syscall.SIGKILL)
	p.checkEnd(0, "ringo: rank 1 is lost: killed by signal 9 (SIGKILL)", "; the others go on\n", "[ps 0] ringo: server 0: trainer 1 is lost: its session 0 has been away for 6s")
	checkLost(t, p, file)
}

func TestRunUsage(t *testing.T) {
	run := "run --np 2 --servers 2 "
	for _, c := range [][]string{
		{"run --np 0 --servers -1 --transport mem --join-timeout 0 -- true", "--np 0: want 1", "--servers -1: want 0", `--transport "mem" is not known`, "--join-timeout 0s: want a positive time"},
		{"run --np 2 --ps-mode async -- true", "--ps-mode async needs servers that keep the parameters: say --servers"},
		{run + "--ps-mode often -- true", `--ps-mode "often" is not known: use one of sum, sync, async, geo, ssp`},
		{run + "--durability wal -- true", "--durability has no effect with --ps-mode sum"},
		{run + "--ps-restarts 1 -- true", "--ps-restarts has no effect with --ps-mode sum"},
		{run + "--ps-mode sync --ps-restarts 1 -- true", "--ps-restarts 1 needs --durability wal"},
		{run + "--ps-mode sync --durability wal -- true", `--durability wal and --ps-memory 0 with --ps-dir ""`},
		{run + "--ps-mode sync --staleness 3 -- true", "--staleness 3: want 0 or more, and --ps-mode ssp"},
		{run + "--ps-mode sync --ps-http 127.0.0.1:65535 -- true", "server 1 would listen at port 65536"},
		{run + "--dead-after 9s -- true", "--dead-after has no effect without servers that keep parameters"},
		{run + "--ps-mode sync --heartbeat 6s --dead-after 12s -- true", "--heartbeat 6s: want at most 5s"},
		{run + "--ps-mode sync --ps-lost go-on --transport tcp -- true", "--transport tcp is not for --ps-lost go-on"},
	} {
		checkRefused(t, exitUsage, c[0], c[1:]...)
	}
}
