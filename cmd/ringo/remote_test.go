package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// A job that saves elsewhere is stopped by SIGTERM, and goes on on a host that has nothing of it, with the bits of one that ran through. What
// lies there is read by other commands, and another run is kept out.
func TestSavedElsewhere(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "far")
	far := "file://" + dir
	saving := " --np 2 --checkpoint-every 37 --checkpoint " + far + "/run --resume=auto"
	p := start(t, endless+saving)
	eventually(t, "a checkpoint", func() bool { // on its way
		files, _ := filepath.Glob(filepath.Join(os.TempDir(), "ringo-*", "spool-*", "file:", dir, "run", "*.ringo"))
		return len(files) > 0
	})
	if err := syscall.Kill(p.cmd.Process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.checkEnd(128+int(syscall.SIGTERM), "what is saved goes to "+far+"/run, by way of ", "--resume continues from there")
	steps, err := checkpoint.Steps(dir + "/run")
	if err != nil {
		t.Fatal(err)
	}
	epochs := steps[0]/50 + 1
	job := strings.Replace(endless, "--epochs 1000000", fmt.Sprintf("--epochs %d", epochs), 1)
	want := hashOf(t, job+"--np 2")
	p = start(t, job+saving)
	if status := p.wait(); status != 0 || sha(t, p.out.String()) != want {
		t.Errorf("status %d, %s%s, want sha256 %s", status, p.out.String(), p.errs.String(), want)
	}
	checkHolds(t, "resumed", p.out.String(), "resumed after ", " from "+far+"/run/step-")
	checkRefused(t, exitUsage, job+"--checkpoint "+far+"/run", "--checkpoint "+far+fmt.Sprintf("/run already has checkpoints of a run, the last one in step-%09d.ringo: resume it (--resume)", 50*epochs))
	for _, line := range []string{"eval " + far + "/run", "eval " + far + "/run/last", fmt.Sprintf("eval %s/run/step-%09d.ringo", far, 50*epochs)} {
		status, out, errs := command(t, line+" --progress none")
		if status != 0 || !strings.Contains(out, "after "+quantity.Count(50*epochs, "step")) {
			t.Errorf("%s: status %d, %s%s", line, status, out, errs)
		}
	}
	checkRefused(t, exitFailed, "eval "+far+"/none", "file://"+dir+"/none: no checkpoint is there")
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "ringo-*", "spool-*"))
	for _, path := range left {
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > time.Minute {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// Servers' parts travel with the ranks' file, and data are read where they are; a later start knows them by their URLs.
func TestServersSavedElsewhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	far := "file://" + dir + "/far"
	var rows strings.Builder
	for i := range 200 {
		rows.WriteString([]string{"0,1.5,a\n", "1,-1.5,b\n"}[i%2])
	}
	if err := errors.Join(os.Mkdir(dir+"/far", 0o777), os.WriteFile(dir+"/far/x.csv", []byte("kind,size,town\n"+rows.String()), 0o666)); err != nil {
		t.Fatal(err)
	}
	table := "train mlp --data " + far + "/x.csv --set data.target=kind --batch 16 --epochs 1 --progress none --checkpoint " + far + "/table"
	status, out, errs := command(t, table)
	if status != 0 || !strings.Contains(out, far[len("file://"):]+"/x.csv") {
		t.Fatalf("status %d, %s%s", status, out, errs)
	}
	status, out, errs = command(t, "train mlp --resume --epochs 2 --progress none --checkpoint "+far+"/table") // the data are as they were said
	if status != 0 || !strings.Contains(out, "epoch 2/2") {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	job := "train ctr-dnn --data synthetic --train-limit 2000 --eval-limit 100 --batch 100 --np 2 --servers 2 --sync bsp --progress none "
	want := hashOf(t, job+"--epochs 2")
	hashOf(t, job+"--epochs 1 --checkpoint "+far+"/clicks")
	if got := hashOf(t, job+"--epochs 2 --resume --checkpoint "+far+"/clicks"); got != want {
		t.Errorf("sha256 %s, want %s", got, want)
	}
	status, out, errs = command(t, "eval "+far+"/clicks --progress none")
	if status != 0 || !strings.Contains(out, "after 20 steps") {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	for line, want := range map[string]string{"show " + far + "/clicks/start-2": "embedding", "export " + far + "/clicks/start-2 --progress none --out " + dir + "/rows": " of embedding with "} {
		if status, out, errs := command(t, "ps "+line); status != 0 || !strings.Contains(out, want) {
			t.Errorf("ps %s: status %d, %s%s", line, status, out, errs)
		}
	}
	checkRefused(t, exitUsage, "ps recover "+far+"/clicks/start-2", "`ringo ps recover` changes the folder, and "+far+"/clicks/start-2 lies elsewhere")
	checkRefused(t, exitFailed, "ps show "+far+"/none", "none")
	checkRefused(t, exitUsage, "train ctr-dnn --data synthetic --np 2 --servers 2 --sync async --ps-durability wal --ps-dir "+far+"/wal", "checkpoints alone are carried")
	checkRefused(t, exitUsage, "train mlp --data synthetic --hosts elsewhere.example:2 --checkpoint "+far+"/x", "it is this host that carries what is saved")
	checkRefused(t, exitUsage, "train mlp --data synthetic --checkpoint s3://b/run", "--checkpoint s3://b/run: this binary reaches no buckets", "go build -C modules/cloud")
}
