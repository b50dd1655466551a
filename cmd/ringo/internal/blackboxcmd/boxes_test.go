package blackboxcmd

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/blackbox"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// file writes the box of two ranks of which one died before operation 1, for which the other one waited.
func file(t *testing.T, why string) string {
	t.Helper()
	box := &blackbox.File{Why: why, Written: time.Unix(1700000000, 0).UTC()}
	for rank := range 2 {
		r := record.New(record.Config{})
		for seq := range uint32(2 - rank) {
			op := r.Begin(&record.Event{Kind: record.Operation, Name: r.Name("barrier"), Seq: seq, Bucket: -1, Other: -1, Peer: -1, Sent: -1, Begun: r.Now()})
			if seq == 0 {
				op.End(r.Now(), 0, false)
			} else {
				op.Wait().For(1, r.Now())
			}
		}
		box.Add(blackbox.Process{Name: []string{"rank 0", "rank 1"}[rank], Rank: rank, ExitStatus: []string{"", "killed by signal 9 (SIGKILL)"}[rank]}, r.Snapshot())
	}
	var out bytes.Buffer
	if err := box.Write(&out); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "box.json")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := Command()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(new(bytes.Buffer))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.Execute()
	return out.String(), err
}

func TestBlackBox(t *testing.T) {
	path := file(t, "rank 1 is lost\x1b[2J")
	text, err := run(t, path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"black box of 2 processes, written 2023-11-14T22:13:20Z\nrank 1 is lost�[2J\n",
		"operation 1 (barrier): rank 1 had not begun it (killed by signal 9 (SIGKILL)); rank 0 waited for rank 1\n",
		"\nrank 1: killed by signal 9 (SIGKILL)\n", ", under way, waiting for rank 1\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	text, err = run(t, path, "--json", "-")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if err != nil || len(lines) != 3 {
		t.Fatalf("%v, %d lines:\n%s", err, len(lines), text)
	}
	var f found
	if err := json.Unmarshal([]byte(lines[0]), &f); err != nil || f.Event != "blackbox" || f.File != path || f.Finding == nil || f.Finding.Seq != 1 {
		t.Errorf("%v: %s", err, lines[0])
	}
	var p process
	if err := json.Unmarshal([]byte(lines[1]), &p); err != nil || p.Event != "blackbox_process" || p.Name != "rank 0" || len(p.Open) != 1 {
		t.Errorf("%v: %s", err, lines[1])
	}
}

// The page has a lane per process, with the operation that has not ended to the end of the axis.
func TestBlackBoxPage(t *testing.T) {
	page := filepath.Join(t.TempDir(), "box.html")
	if _, err := run(t, file(t, "a rank died"), "--html", page); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for want, count := range map[string]int{">rank 0<": 1, ">rank 1<": 1, "a rank died": 1, "operation 0 barrier": 2, "operation 1 barrier": 1, "waits for 1, not ended": 1, ` open"`: 1} {
		if n := strings.Count(string(text), want); n != count {
			t.Errorf("%q stands %d times, want %d", want, n, count)
		}
	}
	if _, err := run(t, file(t, "x"), "--html", filepath.Join(t.TempDir(), "none", "box.html")); err == nil || !strings.Contains(err.Error(), "--html") {
		t.Error(err)
	}
}

func TestFilesThatAreNone(t *testing.T) {
	folder := t.TempDir()
	damaged := filepath.Join(folder, "damaged.json")
	if err := os.WriteFile(damaged, []byte(`{"format":"ringo-blackbox","version":1,"processes":[{`), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"a b": "a: no such file", filepath.Join(folder, "none"): "no such file", folder: "folder", damaged: damaged + ": blackbox: at byte ",
		damaged + " " + damaged: "it is read alone",
	} {
		if _, err := run(t, strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", line, err, want)
		}
	}
}

// TestNewestBlackBox reads the newest file of the user's own folder if none is named, and rejects a
// folder that others can read.
func TestNewestBlackBox(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if _, err := run(t); err == nil || !strings.Contains(err.Error(), "no black box in "+home()) {
		t.Errorf("no folder: %v", err)
	}
	dir, err := Folder()
	if info, fault := os.Stat(dir); err != nil || fault != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("%s: %v, %v", dir, info, err)
	}
	for i, why := range []string{"the older fault", "the newer fault"} {
		path := filepath.Join(dir, []string{"ringo-blackbox-2.json", "ringo-blackbox-1.json"}[i])
		if err := os.Rename(file(t, why), path); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Unix(int64(1000+i), 0)); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := run(t); err != nil || !strings.Contains(text, "the newer fault") {
		t.Errorf("%v: %s", err, text)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Folder(); err == nil || !strings.Contains(err.Error(), "output.black-box") || !strings.Contains(err.Error(), "0700") {
		t.Errorf("a folder that others read: %v", err)
	}
}
