package remotepath_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/remotepath"
)

func put(t *testing.T, path string, age time.Duration) {
	t.Helper()
	at := time.Now().Add(-age)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte("x"), 0o666), os.Chtimes(path, at, at)); err != nil {
		t.Fatal(err)
	}
}

// What is said of a folder of this host names the place that it stands for.
func TestShown(t *testing.T) {
	for text, want := range map[string]string{
		"no folder":                    "no folder",
		"/tmp/ringo-0/spool-1/file:/a": "/tmp/ringo-0/spool-1/file:/a", // a person's
		"/data/file:/a":                "/data/file:/a",
		`saving "/tmp/ringo-0/spool-0123456789abcdef/file:/a/run/step-1.ringo": disk full`: `saving "file:///a/run/step-1.ringo": disk full`,
		"/t/spool-0123456789abcdef/s3:/b/run and /t/spool-fedcba9876543210/azblob:/c/d":    "s3://b/run and azblob://c/d",
	} {
		if got := remotepath.WithURLs(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// A folder's file: URL is read where it is; what a spool does with it follows from what it is wanted for: another run is kept out, parts that
// no checkpoint has go once they are old, and those that may be on their way stay. Nothing of the spool is left.
func TestSpool(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	far := filepath.Join(t.TempDir(), "far")
	part := filepath.Join(far, "start-1", "server-0", "checkpoints")
	put(t, filepath.Join(part, "checkpoint-000000000001", "dense-0"), 2*time.Hour)
	put(t, filepath.Join(part, "checkpoint-000000000002", "dense-0"), time.Minute)
	var lines []string
	open := func(want remotepath.Mode) (*remotepath.Spool, error) {
		return remotepath.Open(t.Context(), "file://"+far, "", want, func(line string) { lines = append(lines, line) })
	}
	s, err := open(remotepath.Write)
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(s.Dir, "step-000000007.ringo"), 0)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "what is saved goes to file://"+far) {
		t.Errorf("%q", lines)
	}
	for name, want := range map[string]bool{"step-000000007.ringo": true, "start-1/server-0/checkpoints/checkpoint-000000000001/dense-0": false, "start-1/server-0/checkpoints/checkpoint-000000000002/dense-0": true} {
		if _, err := os.Stat(filepath.Join(far, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	var held *remotepath.HeldError
	if _, err := open(remotepath.Write); !errors.As(err, &held) || held.Last != "step-000000007.ringo" {
		t.Errorf("%v", err)
	}
	if path, err := remotepath.Data(t.Context(), "file://"+far, nil); err != nil || path != far {
		t.Errorf("%s, %v", path, err)
	}
	none := func(string) (string, error) { return "", nil }
	if _, _, err := remotepath.Checkpoint(context.Background(), "file://"+far+"/none", none); err == nil || !strings.Contains(err.Error(), "/none: no checkpoint is there") {
		t.Errorf("%v", err)
	}
	if left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*", "spool-*")); err != nil || len(left) > 0 {
		t.Errorf("%q are left, %v", left, err)
	}
}

// What could not be carried stays, also when later commands sweep: for a person, whom the error tells where.
func TestKept(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	far := filepath.Join(t.TempDir(), "far")
	s, err := remotepath.Open(t.Context(), "file://"+far, "", remotepath.Write, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(s.Dir, "step-000000007.ringo"), 0)
	if err := errors.Join(os.Remove(far), os.WriteFile(far, nil, 0o666)); err != nil { // in place of the folder
		t.Fatal(err)
	}
	err = s.Close()
	if err == nil {
		t.Fatal("it was carried below a file")
	}
	at := regexp.MustCompile(`below (\S+):`).FindStringSubmatch(err.Error())
	if at == nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-48 * time.Hour)
	if err := errors.Join(os.Chtimes(at[1], old, old), os.Remove(far)); err != nil {
		t.Fatal(err)
	}
	next, err := remotepath.Open(t.Context(), "file://"+far, "", remotepath.Write, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	found := 0
	if err := filepath.WalkDir(at[1], func(path string, _ os.DirEntry, err error) error {
		found += strings.Count(filepath.Base(path), "step-000000007.ringo")
		return err
	}); err != nil || found != 1 {
		t.Errorf("%d files, %v", found, err)
	}
}
