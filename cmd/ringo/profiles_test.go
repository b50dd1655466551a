package main

import (
	"compress/gzip"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Each rank tells a profiler what takes its time, by phase, layer and operation, on its helpers' threads, too.
func TestProfiles(t *testing.T) {
	t.Parallel()
	p := start(t, endless+"--np 2 --threads 2 --set output.pprof=127.0.0.1:0")
	p.await(&p.errs, "profiles of rank 0: ")
	p.await(&p.errs, "profiles of rank 1: ")
	p.await(&p.out, "epoch       1/")
	for _, found := range regexp.MustCompile(`profiles of rank \d: (\S+)\n`).FindAllStringSubmatch(p.errs.String(), -1) {
		client := http.Client{Timeout: time.Minute}
		res, err := client.Get(found[1] + "profile?seconds=1")
		if err != nil {
			t.Fatal(err)
		}
		profile, err := gzip.NewReader(res.Body)
		if err != nil {
			t.Fatalf("%s: %v", res.Status, err)
		}
		text, err := io.ReadAll(profile) // a table of all its words is within
		_ = res.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"phase", "forward", "backward", "layer", "op", "dense"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("a profile without %q", want)
			}
		}
	}
	_ = p.cmd.Process.Kill()
	p.wait()
	p.checkGone()
}

func TestProfilesAreRefused(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{"0.0.0.0:0": "want 127.0.0.1, ::1 or localhost", "127.0.0.1": "want HOST:PORT", "127.0.0.1:65535": "rank 1 would listen at port 65536"} {
		if status, _, errs := command(t, "train mlp --data synthetic --np 2 --set output.pprof="+at); status != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, %s", at, status, errs)
		}
	}
}
