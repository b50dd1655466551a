package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/dashboard"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/jobregistry"
)

// seenNow is what `ringo status` says of a program's job, as text and as JSON.
func seenNow(t *testing.T, p *program) (text string, s dashboard.Status) {
	t.Helper()
	name := fmt.Sprint(p.cmd.Process.Pid)
	status, text, errs := command(t, "status "+name)
	if status != 0 {
		t.Fatalf("status %d: %s", status, errs)
	}
	status, out, errs := command(t, "status --json - "+name)
	if err := json.Unmarshal([]byte(out), &s); status != 0 || err != nil {
		t.Fatalf("status %d: %s; %v: %s", status, errs, err, out)
	}
	return text, s
}

// lastRecord is the last one of a kind in a file of --json, nil before the first.
func lastRecord(t *testing.T, path, event string) (last map[string]any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var r map[string]any
		if json.Unmarshal([]byte(line), &r) == nil && r["event"] == event {
			last = r
		}
	}
	return last
}

// A job without a page tells who asks what its records tell, and when it was killed it is gone for who asks next.
func TestStatus(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "run.jsonl")
	p := start(t, endless+"--np 2 --log-every 1 --json "+path)
	p.await(&p.out, "epoch       2/")
	before := lastRecord(t, path, "step")
	var text string
	var s dashboard.Status
	// Ranks tell of themselves beside their training: on a busy machine what has been told may be an epoch or two behind the file.
	eventually(t, "the status to come to the epoch of --json", func() bool {
		text, s = seenNow(t, p)
		return float64(s.Epoch) >= before["epoch"].(float64)
	})
	after := lastRecord(t, path, "step")
	if s.PID != p.cmd.Process.Pid || s.State != "training" || s.Ranks != 2 || s.Servers != 0 || len(s.Processes) != 2 || len(s.Faults) != 0 || s.RunningS <= 0 {
		t.Errorf("status: %+v", s)
	}
	for rank, r := range s.Processes {
		if r.Rank != rank || r.PID != p.worker(rank) || r.Ended != "" || r.Steps < 1 || float64(r.Steps) > after["done"].(float64)+1 || !(r.StepMS > 0) || !(r.OwnMS > 0) || r.OwnMS > r.StepMS*1.01 {
			t.Errorf("rank %d: %+v, its step by --json %v to %v", rank, r, before["done"], after["done"])
		}
	}
	if float64(s.Epoch) > after["epoch"].(float64)+1 || s.Model != lastRecord(t, path, "run")["model"] {
		t.Errorf("epoch %d of %s, by --json %v", s.Epoch, s.Model, after["epoch"])
	}
	sum := s.Step.ComputeMS + s.Step.DataWaitMS + s.Step.PullWaitMS + s.Step.CompressMS + s.Step.ExposedCommMS + s.Step.UpdateMS
	if whole := s.Step.StepMS; sum < whole/2 || sum > 1.01*whole {
		t.Errorf("parts of a step of %v ms: %+v", whole, s.Step)
	}
	checkHolds(t, "the text", text, "job "+s.Job+": training", "2 ranks", "\n  rank 0 ", "\n  rank 1 ", "samples/s", "a step of rank 0")
	_ = p.cmd.Process.Kill()
	p.wait()
	if status, out, errs := command(t, "status "+fmt.Sprint(p.cmd.Process.Pid)); status != exitFailed || out != "" || !strings.Contains(errs, "no job of yours on this host is called") {
		t.Errorf("of a job that was killed: status %d, %s%s", status, out, errs)
	}
	for _, j := range jobregistry.Jobs(jobregistry.Base()) {
		if j.Name == s.Job {
			t.Error("a job that was killed is still there")
		}
	}
	p.checkGone()
}

// Ranks that are goroutines, and programs of one's own, are seen, too.
func TestStatusOfOtherJobs(t *testing.T) {
	t.Parallel()
	p := start(t, endless+"--np 2 --transport mem")
	p.await(&p.out, "epoch       2/")
	if _, s := seenNow(t, p); len(s.Processes) != 2 || s.Processes[1].PID != p.cmd.Process.Pid || s.Processes[1].Steps < 1 || !(s.Processes[1].StepMS > 0) {
		t.Errorf("ranks of one process: %+v", s)
	}
	_ = p.cmd.Process.Kill()
	p.wait()
	q := start(t, "run --np 2 --servers 1 -- sleep 60")
	var text string
	eventually(t, "a program of one's own is seen", func() bool {
		status, out, _ := command(t, "status "+fmt.Sprint(q.cmd.Process.Pid))
		text = out
		return status == 0 && strings.Contains(out, "server 0")
	})
	checkHolds(t, "the text", text, "2 ranks, 1 server", "\n  rank 1", "\n  rank 2 (server 0)")
	_ = q.cmd.Process.Kill()
	q.wait()
}
