package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/train"
)

// fewClicks are clicks on a table that is small.
const fewClicks = clicks + "--set data.table-rows=5000 "

// awaitSteps waits until a job's folder has the checkpoints of some steps.
func awaitSteps(p *program, dir string, n int) {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		steps, _ := checkpoint.Steps(dir)
		if len(steps) >= n {
			return
		}
		ended := false
		select {
		case err := <-p.done:
			p.done <- err // for wait
			ended = true
		default:
		}
		if ended || time.Now().After(end) {
			p.t.Fatalf("%s: %d of %d checkpoints in %v; stdout:\n%s\nstderr:\n%s", p.line, len(steps), n, patience, &p.out, &p.errs)
		}
	}
}

// backTo removes a folder's checkpoints after a step: as if a run had been stopped before them.
func backTo(t *testing.T, dir string, step int64) {
	t.Helper()
	steps, err := checkpoint.Steps(dir)
	for _, s := range steps {
		if s > step && err == nil {
			err = os.Remove(checkpoint.PathOf(dir, s))
		}
	}
	if _, last, _, found := train.LastServerParts(dir); err != nil || found != nil || last != step {
		t.Fatalf("checkpoints %v: the last one is of step %d, want %d: %v, %v", steps, last, step, err, found)
	}
}

// A job that is killed, whoever it is that dies, goes on with its servers' parts of the last checkpoint, on as many servers
// as one likes, and ends with the bits of one that never stopped: in memory, below it, and with a log, whose rest is left
// out.
func TestJobKilledAndResumed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a dozen runs")
	}
	for _, c := range []struct {
		flags, more string
		never       string // stopped: the same bits
		servers     int
		victim      func(p *program) int
	}{
		{"--optimizer adagrad ", "", "--transport mem --collective-algorithm naive", 2, func(p *program) int { return p.cmd.Process.Pid }},
		{"--optimizer sgd --lr-schedule 2:0.05,4:0.02 --warmup 40 --set data.table-rows=100000 ", "--ps-memory 600KiB --set ps.disk=64MiB ", "--transport mem --collective-algorithm naive", 3, func(p *program) int { return p.keeper(1) }},
		{"--strategy dlgs ", "", "--transport mem --collective-algorithm naive", 1, func(p *program) int { return p.worker(0) }},
		{"--optimizer click ", "--ps-durability wal --set ps.checkpoint-every=20ms --set job.max-restarts=1 ", "--sync bsp", 1, func(p *program) int { return p.worker(1) }},
	} {
		dir := filepath.Join(t.TempDir(), "saved")
		epochs := func(n int) string {
			return strings.Replace(fewClicks, "--epochs 1", fmt.Sprintf("--epochs %d", n), 1) + c.flags + "--np 2 "
		}
		job := c.more + "--sync bsp --checkpoint-every 11 --checkpoint "
		p := start(t, epochs(1000000)+job+dir+" --servers 2")
		awaitSteps(p, dir, 2)
		if strings.Contains(c.more, "wal") {
			if err := syscall.Kill(p.keeper(0), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			p.await(&p.errs, "it is started again (1 of 1)")
			before, _ := checkpoint.Steps(dir)
			eventually(t, "another checkpoint", func() bool {
				now, _ := checkpoint.Steps(dir)
				return len(now) > 0 && now[0] > before[0]
			})
		}
		if err := syscall.Kill(c.victim(p), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if status := p.wait(); status == 0 {
			t.Fatalf("%s: it had ended before it was killed", c.flags)
		}
		p.checkGone()
		_, step, part, err := train.LastServerParts(dir)
		if err != nil {
			t.Fatal(err)
		}
		n := int(step)/7 + 3
		want := hashOf(t, epochs(n)+c.never)
		status, out, errs := command(t, fmt.Sprintf("train ctr-dnn --epochs %d --checkpoint %s --resume --servers %d --threads 1 --progress none", n, dir, c.servers))
		if status != 0 || sha(t, out) != want {
			t.Errorf("%s: status %d, stderr %s, stdout %s, want sha256 %s", c.flags, status, errs, out, want)
		}
		checkHolds(t, c.flags, out, fmt.Sprintf("resumed after %d steps from %s", step, dir))
		checkHolds(t, c.flags, errs, fmt.Sprintf("server 0: it begins with its part of %s: 2 servers, after step %d of the run; what came later is left out", train.AttemptDir(dir, part.Start), step))
	}
}

// A job that stops between its servers' checkpoints and the file that names them goes on from the one before; so does
// one whose newest checkpoint lacks a part, when a person has said so.
func TestJobStopsBetween(t *testing.T) {
	t.Parallel()
	line := strings.Replace(fewClicks, "--epochs 1", "--epochs 3", 1) + "--np 2 --sync bsp --servers 2 --checkpoint-every 5 --checkpoint "
	want := hashOf(t, strings.Replace(fewClicks, "--epochs 1", "--epochs 3", 1)+"--np 2 --transport mem --collective-algorithm naive")
	dir := filepath.Join(t.TempDir(), "saved")
	inTheWay := checkpoint.PathOf(dir, 10)
	if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o777); err != nil {
		t.Fatal(err)
	}
	p := start(t, line+dir)
	p.checkEnd(exitFailed, "checkpoint: saving step 10 in "+dir)
	if found, _ := filepath.Glob(filepath.Join(dir, "start-1", "server-?", "checkpoints", "checkpoint-*2")); len(found) != 2 {
		t.Fatalf("the servers have saved %v", found)
	}
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	checkRefused(t, exitUsage, strings.Replace(line, "--sync bsp --servers 2", "--sync allreduce", 1)+"x --resume --batch 51 --checkpoint "+dir,
		"--sync allreduce: the checkpoint has bsp", "--batch 51: the checkpoint has 50")
	status, out, errs := command(t, "train ctr-dnn --resume --checkpoint "+dir+" --progress none") // with the servers of the first start
	if status != 0 || sha(t, out) != want {
		t.Fatalf("status %d, stderr %s, stdout %s, want sha256 %s", status, errs, out, want)
	}
	checkHolds(t, "stdout", out, "resumed after 5 steps from "+dir)
	starts, err := train.Attempts(dir) // that of the first, of which no checkpoint is left, has gone
	if err != nil || len(starts) != 1 || starts[0] == 1 {
		t.Errorf("starts %v are left, %v", starts, err)
	}
	_, out, _ = command(t, line+dir+" --resume") // there is nothing left to do
	if sha(t, out) != want {
		t.Errorf("an ended job ends as %s, want sha256 %s", out, want)
	}
	file, _, part, err := train.LastServerParts(dir)
	if err != nil {
		t.Fatal(err)
	}
	lost := filepath.Join(train.AttemptDir(dir, part.Start), "server-1")
	if err := os.RemoveAll(lost); err != nil {
		t.Fatal(err)
	}
	checkRefused(t, exitFailed, line+dir+" --resume", "resuming: the servers' checkpoints for "+file+" are incomplete: server 1 of 2: "+lost, "remove "+file+" to continue from an earlier checkpoint")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(checkpoint.PathOf(dir, 20))
	if err == nil {
		err = os.WriteFile(checkpoint.PathOf(dir, 20), b[:len(b)-1], 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	checkRefused(t, exitFailed, line+dir+" --resume", "step-000000020.ringo is damaged at offset", "step-000000015.ringo is whole: remove the damaged file to go on from there")
}

// Out of step a job that goes on trains on what is left, once, and comes to an end like that of one that never
// stopped; a rank alone in geo to its very bits.
func TestJobResumedOutOfStep(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a dozen runs")
	}
	line := strings.Replace(fewClicks, "--epochs 1", "--epochs 2", 1) + "--sync aggregate --checkpoint-every 3 "
	for _, flags := range []string{
		"--np 2 --sync async", "--np 2 --sync ssp --staleness 1 --set ps.trainer-threads=2", "--np 2 --sync geo --geo-steps 2 --set ps.trainer-threads=3 --optimizer adam",
		"--np 1 --sync geo --geo-steps 4 --optimizer adam",
	} {
		dir := t.TempDir()
		np := 1 + strings.Count(flags, "--np 2")
		flags := fmt.Sprintf("%s%s --train-limit %d --checkpoint %s/c ", line, flags, 350*np, dir)
		out := filepath.Join(dir, "run.jsonl")
		want := runSummary(t, flags+"--servers 2")
		backTo(t, filepath.Join(dir, "c"), 9)
		if status, _, errs := command(t, flags+"--servers 1 --resume --json "+out); status != 0 {
			t.Fatalf("%s: status %d: %s", flags, status, errs)
		}
		first, last := epochsOf(t, out)
		figure := func(e map[string]any, name string) float64 {
			v, _ := e[name].(float64)
			return v
		}
		if first["epoch"] != 2.0 || last["epoch"] != 2.0 {
			t.Errorf("%s: epochs %v to %v, want the second", flags, first["epoch"], last["epoch"])
		}
		if k := figure(last, "samples_per_s") * figure(last, "step_ms") / 1000; math.Abs(k-float64(50*np)) > 1e-6 {
			t.Errorf("%s: %v samples a step, want %d", flags, k, 50*np)
		}
		if loss := figure(last, "eval_loss"); !(loss > 0 && loss < 1) { // how well it does depends on which pushes come first
			t.Errorf("%s: a loss of %v, of one that never stopped %v", flags, loss, want["eval_loss"])
		}
		if !strings.Contains(flags, "--np 1") {
			continue
		}
		backTo(t, filepath.Join(dir, "c"), 9)
		if got := runSummary(t, flags+"--servers 3 --resume"); got["params_sha256"] != want["params_sha256"] || want["params_sha256"] == nil {
			t.Errorf("%s: sha256 %v, want %v", flags, got["params_sha256"], want["params_sha256"])
		}
	}
}

// After an epoch another number of ranks may go on, but in geo, where ranks keep state of their own.
func TestJobResumedByOtherRanks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("several runs")
	}
	line := strings.Replace(fewClicks, "--epochs 1", "--epochs 2", 1) + "--sync aggregate --servers 2 --checkpoint "
	for _, mode := range []string{"bsp", "geo"} {
		dir := filepath.Join(t.TempDir(), "saved")
		runSummary(t, line+dir+" --np 2 --sync "+mode)
		backTo(t, dir, 7)
		status, out, errs := command(t, line+dir+" --np 3 --resume --sync "+mode)
		if mode == "geo" {
			if status != exitFailed {
				t.Errorf("status %d", status)
			}
			checkHolds(t, "geo", errs, "job.ranks 3: the checkpoint has 2; in geo each rank has an optimizer's state: continue with 2 ranks", "training.init-from")
			continue
		}
		if status != 0 {
			t.Errorf("status %d: %s", status, errs)
		}
		checkHolds(t, "stdout", out, "resumed after 7 steps", "epoch 2/2", "params sha256")
	}
}

// A folder is one job's at a time, a job that is told to end saves a last time, and what does not go
// together is refused.
func TestJobCheckpointUsage(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "saved")
	p := start(t, endless+"--verbose --np 2 --sync async --checkpoint-every 50 --checkpoint "+dir)
	awaitSteps(p, dir, 1)
	checkRefused(t, exitFailed, endless+"--np 2 --sync async --resume --checkpoint "+dir, "another job saves to "+dir+", process ", " on host ", "train mlp", "choose another folder")
	p.cmd.Process.Signal(os.Interrupt)
	p.checkEnd(exitInterrupted, "parameter server 0 of 1 is done: ", "stopped by SIGINT after step ")
	if _, _, _, err := train.LastServerParts(dir); err != nil {
		t.Error(err)
	}
	checkHolds(t, "ringo ps show", second(command(t, "ps show "+train.AttemptDir(dir, 1))), "1 server of job", "durability checkpoint", ", after step ")
	checkRefused(t, exitFailed, endless+"--np 2 --sync async --checkpoint "+dir, dir+" already has checkpoints of a run")
	hashOf(t, "train mlp --data synthetic --epochs 1 --batch 16 --train-limit 64 --eval-limit 3 --progress none --checkpoint "+dir+"2")
	checkRefused(t, exitUsage, endless+"--np 1 --sync async --resume --checkpoint "+dir+"2", "is of a run with other settings: ", "--sync async: the checkpoint has allreduce")
}
