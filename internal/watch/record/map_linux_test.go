package record

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// victim says that the test's program is to record and be killed.
const victim = "RECORD_TEST_VICTIM"

// A process that is killed in the middle of an operation leaves what it has recorded, also for whom it waited.
func TestMemoryOutlivesItsProcess(t *testing.T) {
	if os.Getenv(victim) != "" {
		r, err := Map(os.NewFile(3, "memory"))
		if err != nil {
			t.Fatal(err)
		}
		r.BeginStep(12)
		for i := range uint32(2000) {
			r.Begin(operation(i)).End(1, 1, false)
		}
		e := operation(2000)
		e.Label = r.Name("bucket 3")
		r.Begin(e).Wait().For(1, 7)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	f, err := Create(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if s, err := Read(f); s != nil || err != nil {
		t.Errorf("before: %v, %v", s, err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestMemoryOutlivesItsProcess$")
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), victim+"=1"), []*os.File{f}
	if err := cmd.Run(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the process ended with %v", err)
	}
	s, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Operations) != DefaultOperations || s.Operations[DefaultOperations-1].Seq != 1999 || s.Step != 12 || s.Process != cmd.Process.Pid {
		t.Errorf("%d operations in step %d of process %d", len(s.Operations), s.Step, s.Process)
	}
	if len(s.Open) != 1 || s.Open[0].Seq != 2000 || s.Open[0].Peer != 1 || s.Text(s.Open[0].Label) != "bucket 3" {
		t.Errorf("under way: %+v", s.Open)
	}
}

// Memory is used again from its beginning, and no other file is taken for it.
func TestMap(t *testing.T) {
	f, err := Create(small)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 2 {
		r, err := Map(f)
		if err != nil {
			t.Fatal(err)
		}
		r.Add(operation(r.Name2()))
		s, err := Read(f)
		if err != nil || !slices.Equal(seqs(s.Operations), []uint32{1}) {
			t.Errorf("%v: %+v", err, s)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	other, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Truncate(int64(small.Bytes())); err != nil {
		t.Fatal(err)
	}
	if _, err := Map(other); err == nil || !strings.Contains(err.Error(), "not memory for a recorder") {
		t.Errorf("error %v", err)
	}
	if _, err := Create(Config{Operations: 3}); err == nil {
		t.Error("a bad configuration was taken")
	}
}

// Name2 is the number of a name that only a recorder that begins anew gives.
func (r *Recorder) Name2() uint32 { return uint32(r.Name("again")) }

// Two recorders of one process never have the same memory at a time; when the first is released the second may have it.
func TestMemoryIsHeld(t *testing.T) {
	f, err := Create(small)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	first, err := Map(f)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	first.SetProcess(Identity{AggregationServer, 3})
	if _, err := Map(f); err != ErrHeld {
		t.Errorf("error %v, want %v", err, ErrHeld)
	}
	if s, err := Read(f); err != nil || !s.Active || s.Identity != (Identity{AggregationServer, 3}) {
		t.Errorf("%v: %+v", err, s)
	}
	first.Release()
	if s, err := Read(f); err != nil || s.Active {
		t.Errorf("released: %v: %+v", err, s)
	}
	second, err := Map(f)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := Read(f); err != nil || !s.Active || s.Identity != (Identity{}) {
		t.Errorf("again: %v: %+v", err, s)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

// What is recorded in a file stays there, for its owner alone; a new recorder takes the place of an old file, and not of what that links to.
func TestInFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rank-0")
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, path); err != nil {
		t.Fatal(err)
	}
	r, err := InFile(path, small)
	if err != nil {
		t.Fatal(err)
	}
	r.Add(operation(7))
	if err := r.Close(); err != nil || r.File() != path {
		t.Errorf("%v, in %q", err, r.File())
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	s, fault := Read(f)
	if err != nil || fault != nil || info.Mode() != 0o600 || !slices.Equal(seqs(s.Operations), []uint32{7}) || s.Active {
		t.Errorf("%v, %v: %v, %+v", err, fault, info.Mode(), s)
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "kept" {
		t.Errorf("%v: the file behind a link has %q", err, text)
	}
	if _, err := InFile(filepath.Join(path, "below"), small); err == nil {
		t.Error("a file within a file was made")
	}
	if _, err := InFile(path, Config{Operations: 1 << 20, Phases: 1 << 20, Lanes: 64}); err == nil || !strings.Contains(err.Error(), "bytes: want at most") {
		t.Errorf("too much memory: %v", err)
	}
}
