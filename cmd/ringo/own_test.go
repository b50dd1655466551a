package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// likes builds examples/heter, a program of one's own, with a wrapper whose heter-trainer 1 has another part.
func likes(t *testing.T) (program, spoilt string) {
	t.Helper()
	dir := t.TempDir()
	program, spoilt = filepath.Join(dir, "likes"), filepath.Join(dir, "spoilt")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "../../examples/heter").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	script := "#!/bin/sh\n[ \"$RINGO_HETER_INDEX\" = 1 ] && set -- -hidden 16\nexec " + program + " \"$@\"\n"
	if err := os.WriteFile(spoilt, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return program, spoilt
}

// `ringo run --heter` starts a program as ranks and heter-trainers: in each mode, on hosts, saved and resumed, told to end, and with
// heter-trainers that are lost or another program.
func TestRunHeter(t *testing.T) {
	t.Parallel()
	likely, spoilt := likes(t)
	two := func(sync, flags string) string {
		return fmt.Sprintf("run --np 2 --servers 1 --heter 2 --sync %s %s -- %s -sync %[1]s ", sync, flags, likely)
	}
	done := []string{"heter 0] heter-trainer 0 of 2 is done: ", "heter 1] heter-trainer 1 of 2 is done: ", "parameter server 0 of 1 is done"}
	for _, mode := range []string{"bsp", "ssp", "async", "geo"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := start(t, two(mode, "")+"-epochs 2")
			p.checkEnd(0, done...)
			checkHolds(t, "stdout", p.out.String(), "accuracy 1.000, AUC 1.000\n")
		})
	}
	t.Run("hosts", func(t *testing.T) {
		t.Parallel()
		line := strings.Replace(two("bsp", "--set heter.hosts=c,d --set job.ssh="+fakeSSH(t)), "--np 2", "--hosts a,b", 1)
		start(t, line+"-epochs 1").checkEnd(0, append(done, "[c: heter 0] ", "[d: heter 1] ")...)
	})
	t.Run("saved", func(t *testing.T) {
		t.Parallel()
		one := func(dir, flags, own string) *program {
			return start(t, "run --np 1 --servers 1 --heter 1 --checkpoint "+dir+flags+" -- "+likely+" -micros 1 "+own)
		}
		dir := t.TempDir()
		whole := one(t.TempDir(), "", "-epochs 2")
		whole.checkEnd(0)
		one(dir, "", "-epochs 1").checkEnd(0, "its newest checkpoint is number 1")
		one(dir, "", "-epochs 1").checkEnd(1, "--checkpoint "+dir+" already has checkpoints of a run")
		p := one(dir, " --resume", "-epochs 2")
		p.checkEnd(0, "it begins with its part of "+dir)
		if got, want := p.out.String(), whole.out.String(); got != want {
			t.Errorf("resumed: %q, want %q", got, want)
		}
		p = one(dir, " --resume", "-epochs 1000")
		p.await(&p.errs, "its part of "+dir)
		p.await(&p.errs, "is up at")
		eventually(t, "a checkpoint", func() bool { files, _ := filepath.Glob(dir + "/*.ringo"); return len(files) > 2 })
		p.cmd.Process.Signal(syscall.SIGTERM)
		p.checkEnd(143, "ringo: stopped by SIGTERM after step ", ": --resume continues from there")
	})
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			p := start(t, two("bsp", "--set job.max-restarts=2 --heartbeat-timeout 2s")+"-epochs 4")
			p.await(&p.errs, "heter-trainer 1 of 2 is up")
			p.await(&p.errs, "from them  the output")
			if err := syscall.Kill(p.process("RINGO_HETER_INDEX", 1), sig); err != nil {
				t.Fatal(err)
			}
			p.checkEnd(0, append(done, "ringo: heter-trainer 1 is lost: ", "; it is started again (1 of 2)")...)
		})
	}
	t.Run("refused", func(t *testing.T) {
		p := start(t, "run --np 2 --servers 1 --heter 2 -- "+spoilt)
		p.checkEnd(1, "ringo: heter-trainer 1 failed: this heter-trainer has another part of a model (that of likes")
		start(t, two("bsp", "")+"-sync async").checkEnd(1, "sync is bsp on server 0 and async on trainer ", ": give all processes of a job the same")
		checkRefused(t, exitUsage, "run --np 2 --servers 1 --checkpoint RUN -- "+likely, "--checkpoint RUN: is for parameter servers (--sync)")
		start(t, two("bsp", "--set network.tls=on")).checkEnd(1, "the end that was called encrypts connections, the caller does not: give both the same network.tls")
	})
}
