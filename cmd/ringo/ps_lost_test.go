package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/freeport"
)

// lostSoon makes ranks lost after a moment.
const lostSoon = "--heartbeat-timeout 6s "

// goingOn is a run of a while whose ranks may be lost.
const goingOn = "train mlp:20 --data synthetic --epochs 40 --batch 16 --train-limit 640 --eval-limit 101 --threads 1 --progress none --verbose --np 3 --servers 2 --ps-failure-policy continue " + lostSoon

// hit sends a rank a signal in the middle of training.
func (p *program) hit(rank int, sig syscall.Signal) {
	p.t.Helper()
	p.await(&p.out, "epoch  2/")
	if err := syscall.Kill(p.worker(rank), sig); err != nil {
		p.t.Fatal(err)
	}
}

// checkLost wants a run to have ended well without rank 1, its evaluations whole.
func checkLost(t *testing.T, p *program, file string) {
	t.Helper()
	checkHolds(t, "stdout of "+p.line, p.out.String(), "1 rank lost on the way (1), and the data still to be trained on there\n", "\ntest accuracy ", " after 40 epochs")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	evaluated := 0
	for _, line := range lines {
		var e struct {
			Event    string  `json:"event"`
			Accuracy float64 `json:"eval_accuracy"`
			Lost     []int   `json:"lost_ranks"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Event != "epoch" && e.Event != "summary" {
			continue
		}
		evaluated++
		right := e.Accuracy * 101
		if math.Abs(right-math.Round(right)) > 1e-9 {
			t.Errorf("%s: %v samples of 101 are right", p.line, right)
		}
		if last := line == lines[len(lines)-1]; last != (fmt.Sprint(e.Lost) == "[1]") {
			t.Errorf("%s: lost %v, last line: %v", p.line, e.Lost, last)
		}
	}
	if evaluated != 41 {
		t.Errorf("%s: %d evaluations", p.line, evaluated)
	}
}

// The others go on without a rank that is killed, whatever the consistency, and evaluate all
// samples.
func TestLostRankIsDoneWithout(t *testing.T) {
	t.Parallel()
	modes := []string{"bsp", "async", "ssp --staleness 2"}
	if testing.Short() {
		modes = modes[:1]
	}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "run.jsonl")
			p := start(t, goingOn+"--sync "+mode+" --json "+file)
			p.hit(1, syscall.SIGKILL)
			p.checkEnd(0, `ringo: rank 1 is lost: killed by signal 9 (SIGKILL); its last line: "trainer 1 of 3 is up, with 2 servers"; the other processes continue`+"\n",
				"[ps 0] ringo: server 0: trainer 1 is lost: its session 0 has been away for 6s", "[rank 2] trainer 2 of 3 is done\n", "trainer 0 of 3 is done\n")
			checkLost(t, p, file)
		})
	}
}

// So they do without one that hangs; it is killed at the end.
func TestStoppedRankIsDoneWithout(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "run.jsonl")
	p := start(t, goingOn+"--sync ssp --staleness 1 --json "+file)
	p.hit(1, syscall.SIGSTOP)
	p.checkEnd(0, "trainer 1 is lost: its session 0 has been away for 6s: the trainer was silent for 6s", "ringo: rank 1 is lost: it still ran after all other processes had ended, and was killed\n")
	checkLost(t, p, file)
}

// Ranks without a mesh have the means of running statistics that those of one have: a model's bits are the same.
func TestRunningStatisticsWithoutMesh(t *testing.T) {
	t.Parallel()
	line := "train cifar-resnet20 --data synthetic --np 2 --epochs 1 --batch 8 --train-limit 32 --eval-limit 17 --threads 1 --progress none "
	want := hashOf(t, line)
	if got := hashOf(t, line+"--sync bsp --ps-failure-policy continue"); got != want {
		t.Errorf("parameters %s, want %s", got, want)
	}
}

// Rank 0 tells of the run: without it all end.
func TestFirstRankCannotBeLost(t *testing.T) {
	t.Parallel()
	for sig, why := range map[syscall.Signal]string{syscall.SIGKILL: "killed by signal 9 (SIGKILL)", syscall.SIGSTOP: "the parameter servers receive no heartbeat from it"} {
		p := start(t, goingOn+"--sync async")
		p.hit(0, sig)
		p.checkEnd(exitFailed, "\nringo: rank 0 is lost: "+why, "ranks 1 and 2 ended because of it")
		if errs := p.errs.String(); strings.Count(errs, "rank 0 is lost") != 1 || !stepped.MatchString(errs) || strings.Contains(errs, "rank 1 is lost") || strings.Contains(errs, "rank 2 is lost") {
			t.Errorf("%s: it is not told once, with the step:\n%s", p.line, errs)
		}
		p.checkGone()
	}
}

// Told to end, all do so with a rank that hangs, by its name.
func TestStoppedRankEnds(t *testing.T) {
	t.Parallel()
	p := start(t, strings.Replace(goingOn, "continue", "fail", 1)+"--sync async")
	p.hit(1, syscall.SIGSTOP)
	p.checkEnd(exitFailed, "\nringo: rank 1 is lost: ")
	p.checkSilent("rank 1", 6*time.Second)
	p.checkGone()
}

// A rank that does not join is named, and not a server that waits for it, whose time has begun before.
func TestMissingRankOfKeepers(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "program")
	text := fmt.Sprintf("#!/bin/sh\nsleep 2\n[ $RINGO_RANK = 1 ] && exec sleep 600\nexec %s train mlp %s--np 2 --sync async --join-timeout 3s\n", os.Args[0], small)
	if err := os.WriteFile(script, []byte(text), 0o777); err != nil {
		t.Fatal(err)
	}
	p := start(t, "run --np 2 --servers 1 --sync async --join-timeout 3s -- "+script)
	p.checkEnd(exitFailed, "\nringo: rank 1 of 2 did not join within 3s")
	if errs := p.errs.String(); strings.Contains(errs, "is lost") {
		t.Errorf("somebody else is blamed:\n%s", errs)
	}
}

// Ranks that are started by hand need no rendezvous, and come to the same parameters; one
// that comes with other settings is named.
func TestApartByHand(t *testing.T) {
	t.Parallel()
	line := "train mlp " + small
	want := runSummary(t, line+"--np 2 --transport mem --collective-algorithm naive")
	addrs := freeport.Address(t) + "," + freeport.Address(t)
	mark := ticket()
	flags := line + "--np 2 --servers 2 --sync bsp --ps-failure-policy continue --ps-addresses " + addrs
	file := filepath.Join(t.TempDir(), "run.jsonl")
	all := []*program{
		start(t, flags+" --rank 1", mark), start(t, flags+" --rank 0 --json "+file, mark),
		start(t, "server --index 1 --np 2 --sync bsp --ps-failure-policy continue --ps-addresses "+addrs, mark),
		start(t, "server --index 0 --np 2 --sync bsp --ps-failure-policy continue --join-timeout 20s --ps-addresses "+addrs, mark),
	}
	for _, p := range all {
		p.checkEnd(0)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var got map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"params_sha256", "train_loss", "eval_loss", "eval_accuracy"} {
		if got[field] != want[field] || got[field] == nil {
			t.Errorf("%s is %v, in a mesh %v", field, got[field], want[field])
		}
	}
	checkHolds(t, "stdout", all[1].out.String(), "2 ranks, 1 thread each, 2 servers\n")
	one := freeport.Address(t)
	flags = line + "--np 2 --sync bsp --ps-failure-policy continue " + lostSoon + "--join-timeout 5s --ps-addresses " + one
	zero := start(t, flags+" --rank 0", mark)
	other := start(t, flags+" --rank 1 --seed 2", mark)
	server := start(t, "server --index 0 --np 2 --sync bsp --ps-failure-policy continue --join-timeout 5s --ps-addresses "+one+" "+lostSoon, mark)
	zero.wait()
	other.wait()
	// The second to come is refused. Without rank 0 there is no job; without the other it goes on.
	checkHolds(t, "both ranks", zero.errs.String()+other.errs.String(), "--seed is ", "on trainer 0", "on trainer 1", "give all processes of a job the same")
	server.wait()
}
