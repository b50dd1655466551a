package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Each rank tells a profiler what takes its time, by phase, layer and operation, on its helpers' threads, too.
func TestProfiles(t *testing.T) {
	t.Parallel()
	p := start(t, endless+"--np 2 --threads 2 --http 127.0.0.1:0")
	p.await(&p.errs, "dashboard: ")
	p.await(&p.out, "epoch       1/")
	url := pageAddress.FindStringSubmatch(p.errs.String())[1]
	for rank := range 2 {
		client := http.Client{Timeout: time.Minute}
		res, err := client.Get(fmt.Sprintf("%sranks/%d/debug/pprof/profile?seconds=1", url, rank))
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
