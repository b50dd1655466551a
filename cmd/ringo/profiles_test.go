package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// A profile of each rank names phase, layer and operation, for its helpers' threads too. A second
// of a busy machine may hold few samples, so the profiles of a minute count together.
func TestProfiles(t *testing.T) {
	t.Parallel()
	p := start(t, endless+"--np 2 --threads 2 --http 127.0.0.1:0")
	p.await(&p.errs, "dashboard: ")
	p.await(&p.out, "epoch       1/")
	url := pageAddress.FindStringSubmatch(p.errs.String())[1]
	for rank := range 2 {
		address := fmt.Sprintf("%sranks/%d/debug/pprof/profile?seconds=1", url, rank)
		missing := []string{"phase", "forward", "backward", "layer", "op", "dense"}
		for deadline := time.Now().Add(time.Minute); len(missing) > 0 && time.Now().Before(deadline); {
			words := profileWords(t, address)
			missing = slices.DeleteFunc(missing, func(word string) bool { return strings.Contains(words, word) })
		}
		if len(missing) > 0 {
			t.Errorf("profiles of rank %d without %q", rank, missing)
		}
	}
	_ = p.cmd.Process.Kill()
	p.wait()
	p.checkGone()
}

// profileWords fetches a profile and returns its bytes, which contain a table of all its words.
func profileWords(t *testing.T, address string) string {
	client := http.Client{Timeout: time.Minute}
	res, err := client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	profile, err := gzip.NewReader(res.Body)
	if err != nil {
		t.Fatalf("%s: %v", res.Status, err)
	}
	words, err := io.ReadAll(profile)
	if err != nil {
		t.Fatal(err)
	}
	return string(words)
}
