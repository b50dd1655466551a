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

const tuning2 = "train mlp --data synthetic --batch 16 --train-limit 3200 --eval-limit 33 --threads 1 --progress none --np 2 --epochs 2 "

// pretrain trains mlp and returns its folder and a safetensors file of the same weights, of which line tells the trainings with them.
func pretrain(t *testing.T) (dir, file string) {
	t.Helper()
	dir, file = filepath.Join(t.TempDir(), "pre"), filepath.Join(t.TempDir(), "pre.safetensors")
	hashOf(t, tuning2+"--epochs 1 --checkpoint "+dir)
	if status, _, errs := command(t, "export "+dir+" --out "+file); status != 0 {
		t.Fatal(errs)
	}
	return dir, file
}

// A fine-tuning begins with the same bits from a run's folder and from what was exported of it, whoever keeps the parameters.
func TestFineTuning(t *testing.T) {
	t.Parallel()
	dir, file := pretrain(t)
	const how = "--set training.init-except=out.* --set training.freeze=hidden.* --init-from "
	want := hashOf(t, tuning2+how+dir)
	for _, other := range []string{file, dir + " --sync aggregate", file + " --sync bsp --servers 2", dir + " --np 2 --transport mem"} {
		if got := hashOf(t, tuning2+how+other); got != want {
			t.Errorf("%s: sha256 %s, want %s", other, got, want)
		}
	}
	rates := hashOf(t, tuning2+how+dir+" --sync geo --set ps.geo-steps=3 --set training.lr-multipliers=out.*=0.5")
	if once := hashOf(t, tuning2+how+dir+" --sync geo --set ps.geo-steps=3"); once == rates {
		t.Error("another rate under geo changes nothing")
	}
	checkRefused(t, exitUsage, tuning2+"--sync bsp --set training.lr-multipliers=out.*=0.5", "training.lr-multipliers", "one rate for all")
	checkRefused(t, exitFailed, tuning2+"--init-from "+filepath.Join(dir, "none"), "none")
	checkRefused(t, exitUsage, tuning2+"--set training.init-except=hidden.*", "training.init-except", "--init-from")
}

// A fine-tuning that was killed goes on with the same bits, and does not need the file that it began with; another beginning is refused.
func TestKilledFineTuning(t *testing.T) {
	t.Parallel()
	pre, file := pretrain(t)
	for _, sync := range []string{"", "--sync bsp --servers 2 "} {
		line := tuning2 + sync + "--epochs 4 --momentum 0.9 --set training.freeze=hidden.*,out.bias --init-from " + pre + " "
		if sync != "" {
			line = strings.Replace(line, "--momentum 0.9", "--optimizer adam", 1)
		}
		want := hashOf(t, line)
		dir := filepath.Join(t.TempDir(), "saved")
		p := start(t, line+"--checkpoint-every 20 --checkpoint "+dir)
		eventually(t, "a checkpoint", func() bool {
			steps, _ := checkpoint.Steps(dir)
			return len(steps) > 1
		})
		if err := syscall.Kill(p.cmd.Process.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if p.wait() == 0 {
			t.Fatal("it had ended before it was killed")
		}
		p.checkGone()
		resume := "train mlp --resume --progress none --checkpoint " + dir
		checkRefused(t, exitUsage, resume+" --init-from "+file, "--init-from "+file, "was started with "+pre)
		if err := os.Rename(pre, pre+".gone"); err != nil {
			t.Fatal(err)
		}
		status, out, errs := command(t, resume)
		if status != 0 || sha(t, out) != want {
			t.Errorf("%s: status %d, stderr %s, stdout %s, want sha256 %s", sync, status, errs, out, want)
		}
		if strings.Contains(out, "begun with") || !strings.Contains(out, "resumed after") || !strings.Contains(out, "frozen: 3 tensors") {
			t.Errorf("%s: told %s", sync, out)
		}
		if status, _, errs := command(t, "eval "+dir); status != 0 {
			t.Errorf("%s: eval: %s", sync, errs)
		}
		if err := os.Rename(pre+".gone", pre); err != nil {
			t.Fatal(err)
		}
	}
}

// Tables begin with rows of a run of ranks, of servers, and of a file, by key: whoever keeps the rows, before and now, the bits are the same.
func TestTablesBegin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ranks, servers, file := filepath.Join(dir, "ranks"), filepath.Join(dir, "servers"), filepath.Join(dir, "w.safetensors")
	const alone = "--transport mem --collective-algorithm naive "
	before := hashOf(t, fewClicks+"--np 2 --epochs 1 "+alone+"--checkpoint "+ranks)
	if got := hashOf(t, fewClicks+"--np 2 --epochs 1 --sync bsp --servers 2 --checkpoint "+servers); got != before {
		t.Fatalf("bsp has other bits than ranks: %s, %s", got, before)
	}
	if status, _, errs := command(t, "export "+ranks+" --out "+file); status != 0 {
		t.Fatal(errs)
	}
	checkRefused(t, exitFailed, "export "+servers+" --out "+file, "`ringo ps export` writes them, and --format onnx the rest of the model")
	want := hashOf(t, fewClicks+"--np 2 --epochs 1 "+alone+"--init-from "+ranks)
	for _, how := range []string{
		alone + "--init-from " + servers, "--sync bsp --servers 2 --init-from " + servers,
		"--sync bsp --ps-memory 800KiB --ps-dir " + filepath.Join(dir, "ps") + " --init-from " + file,
	} {
		if got := hashOf(t, fewClicks+"--np 2 --epochs 1 "+how); got != want {
			t.Errorf("%s: sha256 %s, want %s", how, got, want)
		}
	}
	checkRefused(t, exitFailed, fewClicks+"--set data.table-rows=4000 --init-from "+servers, "embedding: the file has [5000 10], the model has [4000 10]", "training.init-except")
	checkRefused(t, exitUsage, fewClicks+"--sync bsp --set ps.init-from="+filepath.Join(servers, "start-1")+" --init-from "+ranks, "ps.init-from", "--init-from")
	checkRefused(t, exitFailed, "train mlp --data synthetic --train-limit 64 --eval-limit 33 --progress none --init-from "+servers, "it is of model ctr-dnn")
	checkRefused(t, exitUsage, "server --index 0 --np 2 --sync bsp --ps-addresses localhost:1 --init-from "+file, "--set model=NAME")
	mark, both := ticket(), "--np 2 --sync bsp --ps-addresses "+freeport.Address(t)+","+freeport.Address(t)+" "
	byHand := func(told string) (ranks, servers []*program) {
		line := fewClicks + "--epochs 1 --servers 2 --init-from " + file + " --rendezvous " + freeport.Address(t) + " " + both
		for i := range 2 {
			servers = append(servers, start(t, fmt.Sprintf("server --index %d ", i)+both+told, mark))
		}
		return []*program{start(t, line+"--rank 0", mark), start(t, line+"--rank 1", mark)}, servers
	}
	ranks2, keepers := byHand("--set model=ctr-dnn --set data.table-rows=5000 --init-from " + file)
	for _, p := range append(ranks2, keepers...) {
		p.checkEnd(0)
	}
	if got := sha(t, ranks2[0].out.String()); got != want {
		t.Errorf("by hand: sha256 %s, want %s", got, want)
	}
	ranks2, keepers = byHand("")
	for _, p := range ranks2 {
		p.checkEnd(exitFailed, `is "" on server`, filepath.Base(file))
	}
	for _, p := range keepers { // they would wait for others
		p.cmd.Process.Kill()
		p.wait()
	}
}
