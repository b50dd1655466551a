package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/freeport"
)

// A job that was killed goes on from its last checkpoint and ends with the
// parameters of one that never stopped.
func TestKilledAndResumed(t *testing.T) {
	t.Parallel()
	job := endless + "--momentum 0.9 "
	for _, c := range []struct{ np, flags string }{
		{"1", ""},
		{"2", "--strategy dlgs --spars 0.02 --set exchange.dlgs-every=5 "}, // residuals of ranks
		{"2", "--clip-norm 1 "}, // optimizer state of each rank's part
	} {
		np, line := c.np, job+c.flags
		dir := filepath.Join(t.TempDir(), "saved")
		flags := line + "--np " + np + " --checkpoint " + dir + " --checkpoint-every 37 "
		p := start(t, flags)
		victim := p.cmd.Process.Pid
		if np == "2" {
			victim = p.worker(1)
		}
		eventually(t, "a checkpoint", func() bool {
			files, _ := filepath.Glob(filepath.Join(dir, "*.ringo"))
			return len(files) > 1
		})
		if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if status := p.wait(); status == 0 {
			t.Fatalf("np %s: it had ended before it was killed", np)
		}
		p.checkGone()
		steps, err := checkpoint.Steps(dir)
		if err != nil {
			t.Fatal(err)
		}
		perEpoch := map[string]int64{"1": 100, "2": 50}[np]
		epochs := func(n int64) string { return fmt.Sprintf(" --epochs %d ", steps[0]/perEpoch+n) }
		want := hashOf(t, strings.Replace(line, " --epochs 1000000 ", epochs(1), 1)+"--np "+np)
		status, out, errs := command(t, "train mlp --resume --checkpoint "+dir+" --progress none"+epochs(1)) // all else is as it was begun
		if status != 0 || sha(t, out) != want {
			t.Errorf("np %s: status %d, stderr %s, stdout %s, want sha256 %s", np, status, errs, out, want)
		}
		checkHolds(t, "np "+np, out, "resumed after ", " steps from "+dir)
		checkRefused(t, exitUsage, strings.Replace(flags, "--momentum 0.9", "--optimizer adam --eval-limit 34", 1)+"--resume --batch 17",
			"--optimizer adam: the checkpoint has sgd", "--batch 17: the checkpoint has 16", dir)
		status, out, errs = command(t, "train mlp --resume --checkpoint "+dir+" --progress none --lr 0.001"+epochs(2))
		if status != 0 || sha(t, out) == want {
			t.Errorf("np %s, another rate: status %d, stderr %s, stdout %s", np, status, errs, out)
		}
		checkHolds(t, "another rate", out, fmt.Sprintf("from here on with training.epochs %d instead of %d, training.lr 0.001 instead of 0.00", steps[0]/perEpoch+2, steps[0]/perEpoch+1))
	}
}

// A run that does not resume keeps out of a folder with another run's
// checkpoints, and a folder that cannot be is found before the first step.
func TestFolderOfAnotherRun(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "saved")
	line := "train mlp --data synthetic --epochs 1 --batch 16 --train-limit 64 --eval-limit 3 --progress none --checkpoint " + dir
	hashOf(t, line)
	for _, np := range []string{" --np 1", " --np 2"} {
		checkRefused(t, exitFailed, line+np, dir+" already has checkpoints of a run, the last one in step-000000004.ringo", "--resume")
		checkRefused(t, exitFailed, line+"/step-000000004.ringo"+np, "preparing "+dir)
	}
}

// hashOf is the hash of a run.
func hashOf(t *testing.T, line string) string {
	t.Helper()
	status, out, errs := command(t, line)
	if status != 0 {
		t.Fatalf("ringo %s: status %d, stderr %s", line, status, errs)
	}
	return sha(t, out)
}

// A folder of checkpoints is one job's, however its ranks are started: the second is told whose it is, the first goes on.
func TestFolderOfARunningJob(t *testing.T) {
	t.Parallel()
	line := endless + "--checkpoint-every 20 --checkpoint "
	for _, how := range []string{"--np 1", "--np 2", "--np 2 --transport mem", "by hand"} {
		dir := filepath.Join(t.TempDir(), "saved")
		var first, one *program
		if how == "by hand" {
			address, ticket := freeport.Address(t), ticket()
			first, one = byHand(t, line+dir, "0", address, ticket), byHand(t, line+dir+"1", "1", address, ticket)
		} else {
			first = start(t, line+dir+" "+how)
		}
		awaitSteps(first, dir, 1)
		pid := first.cmd.Process.Pid
		if how == "--np 2" {
			pid = first.worker(0)
		}
		for _, second := range []string{"--np 1", "--np 2 --resume", "run"} {
			if second == "run" { // whose launcher knows of no folder: its rank 0 finds out
				p := start(t, "run --np 2 -- "+os.Args[0]+" "+line+dir+" --np 2")
				p.checkEnd(exitFailed, "another job saves to "+dir, fmt.Sprintf("process %d on host ", pid))
				continue
			}
			checkRefused(t, exitFailed, line+dir+" "+second, "another job saves to "+dir, fmt.Sprintf("process %d on host ", pid), "train mlp", "choose another folder")
		}
		steps, err := checkpoint.Steps(dir)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "another checkpoint of the first job", func() bool {
			now, _ := checkpoint.Steps(dir)
			return len(now) > 0 && now[0] > steps[0]
		})
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil { // what it leaves is in nobody's way
			t.Fatal(err)
		}
		first.wait()
		if one != nil {
			one.wait()
		}
		last, err := checkpoint.Steps(dir)
		if err != nil {
			t.Fatal(err)
		}
		np := 2
		if how == "--np 1" {
			np = 1
		}
		longer := strings.Replace(line, "--epochs 1000000", fmt.Sprintf("--epochs %d", last[0]*int64(np)/100+1), 1)
		status, out, errs := command(t, fmt.Sprintf("%s%s --resume --transport mem --np %d", longer, dir, np))
		if status != 0 {
			t.Errorf("%s: status %d: %s", how, status, errs)
		}
		checkHolds(t, how, out, "resumed after ")
	}
}
