package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a process prints is in a file of its own, also what it prints after it was started again; a folder that is not there is told once.
func TestLogs(t *testing.T) {
	dir := t.TempDir()
	var told []string
	j := &job{cfg: Config{LogDir: dir, Report: func(line string) { told = append(told, line) }}}
	seen := ""
	sink := func(_ stream, b []byte) { seen += string(b) }
	print := func(j *job, restarts int, words ...string) {
		p := &process{role: &roleGroup{Role: Role{Name: "ps"}}, index: 3, restarts: restarts}
		to := j.logged(p, sink)
		for _, w := range words {
			to(stdout, []byte(w))
		}
		to(stderr, nil)
		if err := p.log.Close(); err != nil && j.cfg.LogDir == dir {
			t.Error(err)
		}
	}
	print(j, 0, "of a job before\n")
	print(j, 0, "one\n", "two\n")
	print(j, 1, "three\n")
	if b, err := os.ReadFile(filepath.Join(dir, "ps-3.log")); err != nil || string(b) != "one\ntwo\nthree\n" {
		t.Errorf("%q, %v", b, err)
	}
	j.cfg.LogDir = filepath.Join(dir, "none")
	print(j, 0, "four\n", "five\n")
	if len(told) != 1 || !strings.HasPrefix(told[0], "what ps 3 prints is not all in a file: open "+j.cfg.LogDir) {
		t.Errorf("%q", told)
	}
	j.cfg.LogDir = ""
	j.logged(&process{}, sink)(stdout, []byte("six\n"))
	if want := "of a job before\none\ntwo\nthree\nfour\nfive\nsix\n"; seen != want {
		t.Errorf("%q", seen)
	}
}
