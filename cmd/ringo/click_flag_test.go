package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const clickRun = clicks + "--set data.table-rows=20000 --np 2 --servers 2 --optimizer click "

// A click table trains in step to the same bits each time, with rows below memory too, and what servers have saved says
// its policy. Only rows that were worth it have more than their first weight.
func TestClickTable(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "ps")
	line := strings.Replace(clickRun, "700", "4000", 1) + "--sync bsp --set ps.click=extend_at=2,decay=0.9 "
	want := runSummary(t, line+"--ps-durability checkpoint --set ps.shrink-every=24h --ps-dir "+dir)
	if want["optimizer"] != "click" || want["params_sha256"] == nil {
		t.Errorf("%v", want)
	}
	for _, flags := range []string{"", "--servers 1 --ps-memory 800KiB --ps-dir " + t.TempDir()} {
		if got := runSummary(t, line+flags); got["params_sha256"] != want["params_sha256"] || got["eval_loss"] != want["eval_loss"] {
			t.Errorf("%q: sha256 %v, want %v", flags, got["params_sha256"], want["params_sha256"])
		}
	}
	status, out, errs := command(t, "ps show "+dir)
	if status != 0 || errs != "" {
		t.Fatalf("status %d: %s", status, errs)
	}
	checkHolds(t, "stdout", out, " rows of 10 weights, click, learning rate 0.01 at first; bound 10, click 1, cold_after 1, decay 0.9, delete_after 30, delete_below 0.8, extend_at 2, initial 3, no_click 0.1, rate 5\n",
		"array dense: ", " values, adagrad, learning rate 0.01 at first\n")
	_, text, _ := command(t, "ps export --progress none --out - "+dir)
	whole, first := 0, 0
	for _, row := range strings.Split(strings.TrimSpace(text), "\n") {
		if strings.HasSuffix(row, strings.Repeat(" 0", 9)) {
			first++
		} else {
			whole++
		}
	}
	if whole < 100 || first < 100 {
		t.Errorf("%d rows have all weights, and %d the first alone", whole, first)
	}
	from := runSummary(t, strings.Replace(line, "--servers 2", "--servers 1", 1)+"--set ps.init-from="+dir)
	if a, b := from["train_loss"].(float64), want["train_loss"].(float64); a >= b {
		t.Errorf("the loss of a second epoch is %v, that of the first %v", a, b)
	}
}

// Out of step, with values of few bits and on several threads, click tables learn too.
func TestClickTableOutOfStep(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("several runs")
	}
	for _, flags := range []string{"async --set ps.wire-dtype=int8", "ssp --staleness 2 --set ps.trainer-threads=2", "async --set ps.admission=count:2"} {
		out := filepath.Join(t.TempDir(), "run.jsonl")
		line := strings.Replace(clickRun, "--epochs 1", "--epochs 3", 1) + "--lr 0.005 " // whose losses hardly differ from run to run
		if status, _, errs := command(t, line+"--sync "+flags+" --json "+out); status != 0 {
			t.Fatalf("%s: status %d: %s", flags, status, errs)
		}
		first, last := epochsOf(t, out)
		if a, b := first["train_loss"].(float64), last["train_loss"].(float64); !(b < a && b < 0.69) {
			t.Errorf("%s: the loss goes from %v to %v", flags, a, b)
		}
	}
}

// A server that is killed comes back with what it has counted: the run has the bits of one that nothing has disturbed.
func TestClickTableKilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("TestKeeperKilled with another table")
	}
	line := strings.Replace(clickRun, "--epochs 1", "--epochs 14", 1) + "--sync bsp "
	want := runSummary(t, line)["params_sha256"]
	p := start(t, line+"--ps-durability wal --set job.max-restarts=3 --set ps.checkpoint-every=50ms --ps-dir "+t.TempDir())
	for i, epoch := range []string{"epoch  2/", "epoch  5/"} {
		p.await(&p.out, epoch)
		if err := syscall.Kill(p.keeper(i), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	p.checkEnd(0, "ringo: parameter server 0 is lost: killed by signal 9 (SIGKILL)", "it is started again (1 of 3)")
	if got := sha(t, p.out.String()); got != want || want == nil {
		t.Errorf("sha256 %s, want %s", got, want)
	}
}

// A job that begins with another one's servers needs the columns in their order: it ends with an
// error, not with a model of other inputs.
func TestServersFromOtherColumns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	layout := func(name string, columns ...string) string {
		text := "header: true\nseparator: comma\ncolumns:\n  - {name: clicked, kind: label}\n"
		for _, c := range columns {
			text += "  - {name: " + c + "}\n"
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	price, user, item := "price, kind: number", "user, kind: category, make: {values: 50}", "item, kind: category, make: {values: 50}"
	first, second := layout("first.yaml", price, user, item), layout("second.yaml", price, item, user)
	if status, _, errs := command(t, "data clicks --layout "+first+" --generate 600 --out "+filepath.Join(dir, "d")); status != 0 {
		t.Fatal(errs)
	}
	line := "train wide-deep --data " + filepath.Join(dir, "d") + " --batch 16 --epochs 1 --threads 1 --progress none --np 2 --servers 2 --sync bsp "
	runSummary(t, line+"--layout "+first+" --ps-durability checkpoint --ps-dir "+filepath.Join(dir, "ps"))
	from := "--set ps.init-from=" + filepath.Join(dir, "ps") + " "
	runSummary(t, line+from+"--layout "+first)
	start(t, line+from+"--layout "+second).checkEnd(exitFailed, "ringo: parameter server ", `number 2 of 4 is "user category text of table user", this job's of 4 "item category text of table item"`, "training.init-from")
}
