package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ringo-ml/ringo/checkpoint"
)

// TestStrategiesOnServers: in bsp, strategies that select entries and accumulated steps end with
// the bits of ranks that sum by the naive algorithm or on aggregation servers, for any number of
// servers; one rank with a limited norm, too.
func TestStrategiesOnServers(t *testing.T) {
	t.Parallel()
	mlp := "train mlp " + small
	for _, c := range []struct {
		line        string
		np, servers int
	}{
		{mlp + "--strategy dlgs --spars 0.02 ", 2, 1}, {mlp + "--strategy dlgs --accumulate 2 ", 3, 2},
		{mlp + "--strategy topk --set exchange.momentum-correction=0.9 --momentum 0 ", 2, 2}, {mlp + "--strategy lags --optimizer adam ", 3, 1},
		{mlp + "--strategy dgc --set exchange.warmup-density=0.25 ", 2, 2}, {mlp + "--strategy sparseTopK --set exchange.layer-thresholds=true ", 2, 1},
		{mlp + "--strategy sparseThreshold --spars 0.002 --accumulate 2 --set exchange.clip-value=0.01 ", 2, 2}, {mlp + "--accumulate 4 ", 2, 2},
		{clicks + "--set data.table-rows=2000 --strategy dlgs ", 2, 2},
		{mlp + "--clip-norm 0.3 --strategy topk --accumulate 3 --momentum 0.9 ", 1, 1},
		{mlp + "--clip-norm 0.5 --strategy dlgs --optimizer adam ", 1, 2}, {clicks + "--set data.table-rows=2000 --clip-norm 0.05 ", 1, 2},
	} {
		line := fmt.Sprintf("%s--np %d ", c.line, c.np)
		want := runSummary(t, line+"--transport mem --collective-algorithm naive")["params_sha256"]
		if got := runSummary(t, fmt.Sprintf("%s--sync bsp --servers %d", line, c.servers))["params_sha256"]; got != want || want == nil {
			t.Errorf("%+v: %v, with the ranks %v", c, got, want)
		}
		if strings.Contains(line, "dlgs") && !strings.Contains(line, "ctr") {
			if sums := runSummary(t, line+"--sync aggregate --servers 2")["params_sha256"]; sums != want {
				t.Errorf("%+v: %v on aggregation servers, want %v", c, sums, want)
			}
		}
	}
}

// TestCodesOnServers: codes of all values have the same bits with one server and two, in bsp, and
// train in every mode, with several threads and click tables.
func TestCodesOnServers(t *testing.T) {
	t.Parallel()
	line := "train mlp " + small + "--np 2 "
	plain := runSummary(t, line+"--sync bsp --servers 1")
	for _, code := range []string{"fp16", "bf16", "int8"} {
		one := runSummary(t, line+"--sync bsp --servers 1 --strategy "+code)
		two := runSummary(t, line+"--sync bsp --servers 2 --strategy "+code)
		if one["params_sha256"] != two["params_sha256"] || one["params_sha256"] == plain["params_sha256"] {
			t.Errorf("%s: %v with one server, %v with two, %v without a code", code, one["params_sha256"], two["params_sha256"], plain["params_sha256"])
		}
		loss, _ := one["eval_loss"].(float64)
		if want, _ := plain["eval_loss"].(float64); !(loss > 0 && loss < want+0.05) {
			t.Errorf("%s: loss %v, want about %v", code, loss, want)
		}
	}
	for _, flags := range []string{
		"--sync async --strategy dlgs --accumulate 2", "--sync ssp --staleness 1 --strategy int8 --set ps.trainer-threads=2",
		"--sync ssp --accumulate 3 --set ps.row-cache=1MiB", "--sync async --optimizer click --strategy fp16 --accumulate 2",
		"--sync async --clip-norm 0.05 --set ps.trainer-threads=2", "--sync ssp --clip-norm 0.05 --strategy int8 --accumulate 2",
	} {
		if status, out, errs := command(t, fewClicks+"--np 2 --servers 2 "+flags); status != 0 {
			t.Errorf("%s: status %d: %s", flags, status, errs)
		} else {
			checkHolds(t, flags, out, "test log-loss", "params sha256")
		}
	}
}

// TestThreadsShareAccumulatedSteps: threads of a rank train on each batch once, also if the last
// steps have fewer batches than --accumulate or are fewer than the threads.
func TestThreadsShareAccumulatedSteps(t *testing.T) {
	t.Parallel()
	line := "train mlp --data synthetic --batch 16 --train-limit 224 --eval-limit 33 --threads 1 --np 2 --epochs 1 --lr 1e-30 --progress none --sync async --servers 1 "
	want, _ := runSummary(t, line)["train_loss"].(float64)
	for _, flags := range []string{"--set ps.trainer-threads=2 --accumulate 2", "--set ps.trainer-threads=3 --accumulate 2", "--set ps.trainer-threads=2 --accumulate 3"} {
		if got, _ := runSummary(t, line+flags)["train_loss"].(float64); !(want > 0 && math.Abs(got-want) < 1e-6) {
			t.Errorf("%s: mean loss %v, want %v", flags, got, want)
		}
	}
}

// TestResidualsOnServersAreSaved: a bsp run with residuals and accumulated steps, saved in the
// middle of an epoch and resumed, has the bits of one that never stopped. The bits differ if the
// residuals are left out.
func TestResidualsOnServersAreSaved(t *testing.T) {
	t.Parallel()
	line := "train mlp --data synthetic --batch 16 --train-limit 640 --eval-limit 33 --threads 1 --progress none --np 2 --sync bsp --servers 2 "
	for _, flags := range []string{"--strategy dlgs --spars 0.01 ", "--strategy int8 --accumulate 2 "} {
		dir := filepath.Join(t.TempDir(), "saved")
		want := runSummary(t, line+flags+"--epochs 3")["params_sha256"]
		saved := flags + "--checkpoint " + dir + " --checkpoint-every 7 "
		if first := runSummary(t, line+saved+"--epochs 2")["params_sha256"]; first == want || first == nil {
			t.Errorf("%s: an epoch less has the bits %v", flags, first)
		}
		steps, err := checkpoint.Steps(dir)
		if err == nil {
			err = os.Remove(checkpoint.PathOf(dir, slices.Max(steps))) // the end of epoch 2: the one before is in its middle
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := runSummary(t, line+saved+"--epochs 3 --resume")["params_sha256"]; got != want {
			t.Errorf("%s: resumed %v, want %v", flags, got, want)
		}
	}
}

// TestKilledServerAppliesEntriesOnce: a server that is killed and started again under wal applies
// each push of entries once: the run has the bits of one that no kill has disturbed.
func TestKilledServerAppliesEntriesOnce(t *testing.T) {
	t.Parallel()
	line := "train mlp --data synthetic --epochs 30 --batch 16 --train-limit 640 --eval-limit 33 --threads 1 --progress none --np 2 --strategy dlgs --spars 0.02 "
	want := runSummary(t, line+"--transport mem --collective-algorithm naive")["params_sha256"]
	p := start(t, line+"--servers 2 --sync bsp --ps-durability wal --set job.max-restarts=2 --ps-dir "+t.TempDir())
	for i, epoch := range []string{"epoch  2/", "epoch  6/"} {
		p.await(&p.out, epoch)
		if err := syscall.Kill(p.keeper(i%2), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	p.checkEnd(0, "ringo: parameter server 0 is lost: killed by signal 9 (SIGKILL)", "ringo: parameter server 1 is lost: killed by signal 9 (SIGKILL)", "it is started again (1 of 2)")
	if got := sha(t, p.out.String()); got != want {
		t.Errorf("sha256 %s, want %s", got, want)
	}
}
