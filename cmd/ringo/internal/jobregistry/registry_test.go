package jobregistry

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// names are the jobs below base.
func names(base string) (out []string) {
	for _, j := range Jobs(base) {
		out = append(out, j.Name)
	}
	return out
}

// A job is found and asked while it is there, by its user alone.
func TestEntry(t *testing.T) {
	base := t.TempDir()
	e, err := Enter(base)
	if err != nil {
		t.Fatal(err)
	}
	l, err := e.Listen()
	if err != nil {
		t.Fatal(err)
	}
	site := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/never" {
			<-r.Context().Done()
		}
		if r.URL.Path != "/status" {
			http.NotFound(w, r)
		}
		_, _ = io.WriteString(w, "well")
	})}
	go func() { _ = site.Serve(l) }()
	defer site.Close()
	jobs := Jobs(base)
	if len(jobs) != 1 || jobs[0].Name != e.Name() || !strings.HasPrefix(e.Name(), fmt.Sprint(os.Getpid())+"-") {
		t.Fatalf("jobs %v, want %s", jobs, e.Name())
	}
	if text, err := jobs[0].Ask(t.Context(), "/status"); string(text) != "well" || err != nil {
		t.Errorf("it answers %q, %v", text, err)
	}
	if _, err := jobs[0].Ask(t.Context(), "/other"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("what it does not know: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := jobs[0].Ask(short, "/never"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a job that does not answer: %v", err)
	}
	for path, want := range map[string]os.FileMode{e.Socket(): 0o600, filepath.Dir(e.Socket()): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	e.Leave()
	if left, _ := os.ReadDir(base); len(left) > 0 {
		t.Errorf("after the end there are %v", left)
	}
	if _, err := jobs[0].Ask(t.Context(), "/status"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a job that has ended: %v", err)
	}
}

// victim says where the test's program is to enter and be killed.
const victim = "REGISTRY_TEST_VICTIM"

// The folder of a job that was killed is removed by who looks, those of living jobs and what is none are not.
func TestSweep(t *testing.T) {
	if base := os.Getenv(victim); base != "" {
		e, err := Enter(base)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Listen(); err != nil {
			t.Fatal(err)
		}
		fmt.Println(e.Name())
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
	}
	base := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestSweep$")
	cmd.Env = append(os.Environ(), victim+"="+base)
	in, _ := cmd.StdinPipe()
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if got := names(base); len(got) != 1 || got[0]+"\n" != line {
		t.Errorf("while it lives: %v, it said %q", got, line)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	foreign := ours(base) + "link"
	if err := os.Symlink(t.TempDir(), foreign); err != nil {
		t.Fatal(err)
	}
	e, err := Enter(base)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Leave()
	if got := names(base); len(got) != 1 || got[0] != e.Name() {
		t.Errorf("after it was killed: %v, want %s alone", got, e.Name())
	}
	if left, _ := os.ReadDir(base); len(left) != 2 {
		t.Errorf("folders: %v", left)
	}
}

// Folders that others may write are none of this user's jobs, whatever is in them.
func TestOthersFolders(t *testing.T) {
	base := t.TempDir()
	e, err := Enter(base)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Leave()
	for i := range 2 * mostJobs {
		path := fmt.Sprintf("%s0000-%d", ours(base), i) // before the job's in the order of names
		if err := errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, 0o777)); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(base); len(got) != 1 || got[0] != e.Name() {
		t.Errorf("%d jobs, want %s alone", len(got), e.Name())
	}
}
