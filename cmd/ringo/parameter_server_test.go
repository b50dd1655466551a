package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/ringo-ml/ringo/internal/freeport"
	"github.com/ringo-ml/ringo/internal/launch"
)

const clicks = "train ctr-dnn --data synthetic --train-limit 700 --eval-limit 101 --batch 50 --epochs 1 --progress none --threads 1 "

// Parameters on servers that are in step have the bits of those with the ranks by the naive
// algorithm: dense ones and tables, whatever the optimizer and however many servers.
func TestParametersOnServers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("tables of ten million values")
	}
	for _, c := range []struct {
		line        string
		np, servers int
	}{
		{"train mlp " + small, 3, 2}, {"train mlp " + small + "--optimizer adam ", 2, 1}, {clicks + "--set data.table-rows=20000 ", 2, 2}, {fewClicks + "--optimizer sgd --lr-schedule 1:0.05 ", 3, 1},
		{"train mlp " + small + "--optimizer adam --warmup 7 ", 2, 2}, {fewClicks + "--warmup 0.5epochs --lr-schedule cosine ", 2, 1},
	} {
		want := runSummary(t, fmt.Sprintf("%s--np %d --transport mem --collective-algorithm naive", c.line, c.np))
		got := runSummary(t, fmt.Sprintf("%s--np %d --sync bsp --servers %d", c.line, c.np, c.servers))
		if got["servers"] != float64(c.servers) {
			t.Errorf("%+v: %v servers", c, got["servers"])
		}
		for _, field := range []string{"params_sha256", "eval_loss", "params"} {
			if got[field] != want[field] || got[field] == nil {
				t.Errorf("%+v: %s is %v, with the ranks %v", c, field, got[field], want[field])
			}
		}
	}
}

// Rows that memory has no room for lie below it, and change nothing.
func TestParametersBelowMemory(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("tables of ten million values")
	}
	line := strings.Replace(clicks, "700", "4000", 1) + "--np 2 --sync bsp --servers 1 "
	want := runSummary(t, line)
	got := runSummary(t, line+"--ps-memory 800KiB --set ps.disk=64MiB --ps-dir "+t.TempDir())
	if got["params_sha256"] != want["params_sha256"] || want["params_sha256"] == nil {
		t.Errorf("%v, in memory %v", got, want)
	}
}

// Ranks that go on by themselves train as well, and each role says when it is up and
// how it ended.
func TestParametersOutOfStep(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"async", "ssp --staleness 2"} {
		status, out, errs := command(t, fewClicks+"--verbose --np 2 --servers 2 --sync "+mode)
		if status != 0 {
			t.Fatalf("%s: status %d: %s", mode, status, errs)
		}
		checkHolds(t, "stdout", out, "test log-loss", "params sha256")
		errs = regexp.MustCompile(`127.0.0.1:\d+|[\d.]+ [kMG]?B\b|[\d,]+ (rows|pulled|pushed)`).ReplaceAllString(errs, "N")
		name, _, _ := strings.Cut(mode, " ")
		if strings.Contains(errs, "has connected") {
			t.Errorf("%s: connections are reported:\n%s", mode, errs)
		}
		checkHolds(t, "stderr", errs, "[ps 0] parameter server 0 of 2 is up at N, for 2 trainers, "+name+"\n", "trainer 0 of 2 is up, with 2 servers\n",
			"[rank 1] trainer 1 of 2 is done\n", "[ps 1] parameter server 1 of 2 is done: N, N, N, N received, N sent\n")
	}
	for _, flags := range []string{"--lr 1e30 --set ps.trainer-threads=3 --sync ssp", "--lr 1e30 --set ps.trainer-threads=2 --sync geo"} { // a thread's fault ends the others' waits; which tells first, of its loss or of a gradient, is by chance
		status, _, errs := command(t, fewClicks+"--np 1 --sync aggregate --servers 2 "+flags)
		if want := "has diverged"; status != exitFailed || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, stderr %q, want %q", flags, status, errs, want)
		}
	}
	status, _, errs := command(t, "train lstm --data synthetic --np 1 --sync async --set ps.trainer-threads=2 --epochs 1 --train-limit 2000 --eval-limit 500 --clip-norm 0 --progress none")
	if want := "model lstm carries state from batch to batch: it cannot train on 2 threads at once"; status != exitFailed || !strings.Contains(errs, want) {
		t.Errorf("status %d, stderr %q, want %q", status, errs, want)
	}
}

// Ranks that move copies of their own, on several threads or one, and values that travel in fewer
// bits come near to what training in step does: one rank alone that exchanges copies to within
// roundings.
func TestParametersNearSync(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a dozen runs")
	}
	line := strings.Replace(clicks, "--epochs 1", "--epochs 3", 1) + "--set data.table-rows=20000 "
	figure := func(summary map[string]any, name string) float64 {
		v, _ := summary[name].(float64)
		return v
	}
	want := runSummary(t, line+"--np 1 --transport mem")
	for _, c := range []struct {
		flags  string
		within float64 // of the evaluation's loss
	}{
		{"geo --geo-steps 1", 1e-3}, {"geo --geo-steps 5", 1e-3}, {"bsp --set ps.wire-dtype=fp16", 0.1}, {"bsp --set ps.wire-dtype=int8", 0.1},
	} {
		got := runSummary(t, line+"--np 1 --servers 2 --sync "+c.flags)
		if diff := math.Abs(figure(got, "eval_loss") - figure(want, "eval_loss")); diff > c.within {
			t.Errorf("%s: loss %v, want %v within %v", c.flags, got["eval_loss"], want["eval_loss"], c.within)
		}
		if strings.HasPrefix(c.flags, "bsp") && got["params_sha256"] == want["params_sha256"] {
			t.Errorf("%s: it has the bits of plain training: nothing was rounded", c.flags)
		}
	}
	// Adagrad's first steps have the whole rate however small gradients are, and those of threads that begin with the same values add up: at a rate of 0.005 the
	// first epoch's loss is 0.62 to 5 by who comes when, and the least where steps come in turn, of which nothing is seen any more once they overlap. At this
	// one evaluation's is within 0.015 of training in step, whether they do one, the other, or one after the other, or one thread is slow.
	const slow = "--lr 0.001 "
	inStep := runSummary(t, line+slow+"--np 2 --servers 2 --sync bsp")
	for _, flags := range []string{"geo --geo-steps 3", "async --set ps.trainer-threads=2", "ssp --staleness 1 --set ps.trainer-threads=3", "geo --set ps.trainer-threads=2", "async --set ps.wire-dtype=bf16"} {
		out := filepath.Join(t.TempDir(), "run.jsonl")
		if status, _, errs := command(t, line+slow+"--np 2 --servers 2 --sync "+flags+" --json "+out); status != 0 {
			t.Fatalf("%s: status %d: %s", flags, status, errs)
		}
		first, last := epochsOf(t, out)
		if !(figure(last, "train_loss") < figure(first, "train_loss")) || !(math.Abs(figure(last, "eval_loss")-figure(inStep, "eval_loss")) < 0.03) {
			t.Errorf("%s: the loss goes from %v to %v, %v in evaluation, in step %v", flags, first["train_loss"], last["train_loss"], last["eval_loss"], inStep["eval_loss"])
		}
		if k := 101 * figure(last, "eval_accuracy"); math.Abs(k-math.Round(k)) > 1e-9 {
			t.Errorf("%s: evaluation accuracy %v is not a share of 101 samples: some were seen twice or not at all", flags, last["eval_accuracy"])
		}
		if samples, ms := figure(last, "samples_per_s"), figure(last, "step_ms"); math.Abs(samples*ms/1000/100-1) > 1e-6 || figure(last, "pull_wait_ms") <= 0 {
			t.Errorf("%s: %v samples/s, %v ms a step of 100, waits of %v ms", flags, samples, ms, last["pull_wait_ms"])
		}
	}
}

// epochsOf are the first and the last epoch of a run.
func epochsOf(t *testing.T, path string) (first, last map[string]any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e["event"] != "epoch" {
			continue
		}
		if last = e; first == nil {
			first = e
		}
	}
	return first, last
}

// keeper is the process of a server that keeps parameters.
func (p *program) keeper(index int) (pid int) { return p.process(launch.TableVar, index) }

// A server that is killed comes back with all that it has acknowledged, and training ends
// with the bits of a run that nothing has disturbed. Without a log it ends the job, by name.
func TestKeeperKilled(t *testing.T) {
	t.Parallel()
	line := "train mlp:20 --data synthetic --epochs 40 --batch 16 --train-limit 640 --eval-limit 33 --threads 1 --progress none --np 2 "
	want := runSummary(t, line+"--transport mem --collective-algorithm naive")["params_sha256"]
	p := start(t, line+"--servers 2 --sync bsp --ps-durability wal --set job.max-restarts=3 --ps-dir "+t.TempDir())
	for i, epoch := range []string{"epoch  2/", "epoch  7/", "epoch 12/"} {
		p.await(&p.out, epoch)
		if err := syscall.Kill(p.keeper(i%2), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	p.checkEnd(0, "ringo: parameter server 0 is lost: killed by signal 9 (SIGKILL)", "it is started again (1 of 3)", "it is started again (2 of 3)")
	if got := sha(t, p.out.String()); got != want {
		t.Errorf("sha256 %s, want %s", got, want)
	}
	p = start(t, endless+"--np 2 --sync async")
	p.await(&p.out, "epoch       2/")
	if err := syscall.Kill(p.keeper(0), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.checkEnd(exitFailed, "ringo: parameter server 0 is lost: killed by signal 9 (SIGKILL)", "; ranks 0 and 1 ended because of it", "; it wrote nothing\n")
	if errs := p.errs.String(); strings.Count(errs, " is lost") != 1 || !stepped.MatchString(errs) {
		t.Errorf("it is not told once, with the step:\n%s", errs)
	}
	p.checkGone()
}

// What a copy has moved by is added once, by servers that are killed too: one rank's run has the bits of one that
// nothing has disturbed.
func TestKeeperKilledInGeo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("TestKeeperKilled in another mode")
	}
	line := strings.Replace(clicks, "--epochs 1", "--epochs 14", 1) + "--set data.table-rows=5000 --np 1 --servers 2 --sync geo --geo-steps 3 "
	want := runSummary(t, line)["params_sha256"]
	p := start(t, line+"--ps-durability wal --set job.max-restarts=3 --ps-dir "+t.TempDir())
	for i, epoch := range []string{"epoch  2/", "epoch  5/"} {
		p.await(&p.out, epoch)
		if err := syscall.Kill(p.keeper(i), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	p.checkEnd(0, "ringo: parameter server 0 is lost: killed by signal 9 (SIGKILL)", "it is started again (1 of 3)")
	if got := sha(t, p.out.String()); got != want {
		t.Errorf("sha256 %s, want %s", got, want)
	}
}

// A rank that is killed ends the job, by name.
func TestTrainerOfKeepersKilled(t *testing.T) {
	p := start(t, endless+"--np 2 --sync bsp")
	p.await(&p.out, "epoch       2/")
	if err := syscall.Kill(p.worker(1), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.checkEnd(exitFailed, "\nringo: rank 1 is lost: killed by signal 9 (SIGKILL)", "; rank 0 ended because of it")
	if errs := p.errs.String(); strings.Count(errs, " is lost") != 1 || !stepped.MatchString(errs) {
		t.Errorf("it is not told once, with the step:\n%s", errs)
	}
	p.checkGone()
}

// Servers and ranks that are started by hand find each other by addresses.
func TestKeepersByHand(t *testing.T) {
	t.Parallel()
	line := "train mlp " + small
	want := runSummary(t, line+"--np 2 --transport mem --collective-algorithm naive")["params_sha256"]
	rendezvous, ticket := freeport.Address(t), ticket()
	addrs := freeport.Address(t) + "," + freeport.Address(t)
	server := func(i int) *program {
		return start(t, fmt.Sprintf("server --index %d --np 2 --sync bsp --ps-addresses %s", i, addrs), ticket)
	}
	flags := line + "--servers 2 --sync bsp --ps-addresses " + addrs
	one := server(1)
	ranks := []*program{byHand(t, flags, "0", rendezvous, ticket), byHand(t, flags, "1", rendezvous, ticket)}
	zero := server(0) // they wait for it
	for _, p := range append(ranks, zero, one) {
		p.checkEnd(0)
	}
	if got := sha(t, ranks[0].out.String()); got != want {
		t.Errorf("sha256 %s, want %s", got, want)
	}
	status, _, errs := command(t, "server --index 0 --np 1 --sync bsp --ps-addresses 127.0.0.1:1")
	if status != exitFailed || !strings.Contains(errs, launch.TicketVar) {
		t.Errorf("status %d: %s", status, errs)
	}
}
