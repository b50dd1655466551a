package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// within fails a test that waits where it must not.
func within(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s waits for ever", what)
	}
}

// Wherever a file can be named, a pipe that nobody writes to and a device that never
// ends are refused by name.
func TestNoRegularFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	pipes := []string{"train.txt", "step-000000001.ringo", "train-images-idx3-ubyte", "set.tar.gz", "data_batch_1.bin", "rows.gz"}
	for _, name := range pipes {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	plain, alone := filepath.Join(dir, "plain.tsv"), t.TempDir()
	if err := errors.Join(os.WriteFile(plain, []byte("x"), 0o666), syscall.Mkfifo(filepath.Join(alone, "train.txt"), 0o666)); err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct{ line, file, kind string }{
		{"train lstm --train-file " + in("train.txt") + " --eval-file " + plain, in("train.txt"), "a pipe"},
		{"train lstm --np 2 --data " + alone + " --eval-file " + plain, "ringo: text: open " + filepath.Join(alone, "train.txt"), "a pipe"},
		{"train lstm --train-file " + plain + " --eval-file /dev/zero", "/dev/zero", "a device"},
		{"train ctr-dnn --train-file " + in("train.txt") + " --eval-file " + plain, in("train.txt"), "a pipe"},
		{"train ctr-dnn --stream --train-file " + in("rows.gz") + " --eval-file " + plain, in("rows.gz"), "a pipe"},
		{"train ctr-dnn --stream --train-file " + plain + " --eval-file " + in("rows.gz"), in("rows.gz"), "a pipe"},
		{"train mnist --data " + dir, in("train-images-idx3-ubyte"), "a pipe"},
		{"train resnet50 --data " + in("set.tar.gz"), in("set.tar.gz"), "a pipe"},
		{"train cifar-resnet20 --data " + dir, in("data_batch_1.bin"), "a pipe"},
		{"train mlp --data synthetic --train-limit 64 --eval-limit 8 --np 1 --resume --checkpoint " + dir, in("step-000000001.ringo"), "a pipe"},
		{"plan mlp --np 2 --cost-profile " + in("train.txt"), in("train.txt"), "a pipe"},
		{"data criteo --generate 5 --like " + in("train.txt") + " --out " + in("made"), in("train.txt"), "a pipe"},
		{"data criteo --generate 5 --like /dev/zero --out " + in("made"), "/dev/zero", "a device"},
		{"data cifar10 --from " + in("set.tar.gz") + " --out " + in("made"), in("set.tar.gz"), "a pipe"},
		{brief + "--np 1 --epochs 1 --json " + in("train.txt"), in("train.txt"), "a pipe that nobody reads"},
		{brief + "--np 1 --epochs 1 --trace " + in("train.txt"), in("train.txt"), "a pipe that nobody reads"},
	} {
		within(t, "ringo "+c.line, func() {
			status, _, errs := command(t, c.line)
			if status == 0 || !strings.Contains(errs, c.file) || !strings.Contains(errs, c.kind) {
				t.Errorf("ringo %s: status %d, %s", c.line, status, errs)
			}
		})
	}
}

// What reads the lines of --json from a pipe gets them all, and is not ended by the look
// whether they can be written.
func TestJSONIntoAPipe(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, more := range []string{"", " --resume --checkpoint " + t.TempDir()} {
		status, _, errs := command(t, brief+"--np 2 --epochs 1 --json "+fifo+more)
		got := make([]byte, 1<<16)
		n, err := reader.Read(got)
		if status != 0 || err != nil || !strings.Contains(string(got[:n]), `"event":"summary"`) {
			t.Errorf("status %d, %s, read %q, %v", status, errs, got[:n], errors.Join(err))
		}
	}
}
