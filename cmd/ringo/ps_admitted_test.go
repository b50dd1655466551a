package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A job whose servers count keys before they have rows goes on from its checkpoint with the bits of
// one that never stopped.
func TestCountsOfAdmissionAreResumed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	want := runSummary(t, "train ctr-dnn --data synthetic --np 2 --servers 2 --sync bsp --set ps.admission=count:2 --batch 64 --train-limit 4000 --eval-limit 500 --epochs 2 --progress none --checkpoint-every 20 --checkpoint "+dir)["params_sha256"]
	files, err := filepath.Glob(filepath.Join(dir, "step-*"))
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files[1:] {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if got := runSummary(t, "train ctr-dnn --resume --checkpoint "+dir)["params_sha256"]; got != want {
		t.Errorf("sha256 %v, want %v", got, want)
	}
}
