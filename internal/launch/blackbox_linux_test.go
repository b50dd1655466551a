package launch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/blackbox"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// playRecorded is a rank that ends one operation, of which rank 1 dies before the next, for which the others wait, or with "well" in
// place of a file in none.
func playRecorded(env RankEnv, args []string) int {
	r := env.Recorder()
	r.BeginStep(6)
	begin := func(seq uint32) record.Op {
		return r.Begin(&record.Event{
			Kind: record.Operation, Name: r.Name("allreduce"), Seq: seq, Size: 64, Bucket: 2, Label: r.Name("bucket 2 (fc.bias)"), Other: -1, Peer: -1, Sent: -1, Begun: r.Now(),
		})
	}
	begin(0).End(r.Now(), 32, false)
	if args[0] == "well" {
		return env.Rank // rank 1 fails
	}
	if env.Rank == 1 {
		for other := range 3 {
			if other != 1 {
				awaitFile(args[0] + string(rune('0'+other)))
			}
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	begin(1).Wait().For(1, r.Now())
	if os.WriteFile(args[0]+string(rune('0'+env.Rank)), nil, 0o666) != nil {
		return 9
	}
	time.Sleep(forever)
	return 0
}

// What a killed rank, and those that waited for it, had recorded is in the error and in a file.
func TestBlackBox(t *testing.T) {
	boxes := t.TempDir()
	l := launch(t, context.Background(), 3, "recorded", []string{filepath.Join(t.TempDir(), "waits")}, func(c *Config) { c.BlackBox = boxes })
	var recorded *RecordedError
	var death *LostProcessError
	if !errors.As(l.err, &recorded) || !errors.As(l.err, &death) || death.Rank != 1 || recorded.Unwritten != nil {
		t.Fatalf("%v, rank %+v", l.err, death)
	}
	const finds = "operation 1 (allreduce of 64 bytes), bucket 2 (fc.bias), in step 7: rank 1 had not begun it (killed by signal 9 (SIGKILL)); rank 0 waited for rank 1; rank 2 waited for rank 1"
	if got := recorded.Finding.String(); got != finds {
		t.Errorf("it shows %s\n   want %s", got, finds)
	}
	if text := l.err.Error(); !strings.HasPrefix(text, death.Error()+"\n  black box: operation 1 ") || !strings.HasSuffix(text, "\n  black box: last operations of each process: ringo blackbox "+recorded.File) {
		t.Errorf("error %s", text)
	}
	f, err := os.Open(recorded.File)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	box, err := blackbox.Read(f)
	if err != nil || len(box.Processes) != 3 || box.Find().String() != finds || box.Why != death.Error() {
		t.Errorf("%v: the file has %+v", err, box)
	}
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 || filepath.Dir(recorded.File) != boxes {
		t.Errorf("%s has mode %v, %v", recorded.File, info.Mode(), err)
	}
}

// There is no box of ranks that have ended all they began, and none of processes that record nothing; where it cannot be written the
// error says so, and what it shows.
func TestNoBlackBox(t *testing.T) {
	boxes := t.TempDir()
	for _, c := range []struct{ role, arg string }{{"recorded", "well"}, {"exit", "1"}} {
		l := launch(t, context.Background(), 2, c.role, []string{c.arg, "3"}, func(c *Config) { c.BlackBox = boxes })
		var death *LostProcessError
		if recorded := (*RecordedError)(nil); errors.As(l.err, &recorded) || !errors.As(l.err, &death) {
			t.Errorf("%s: %v", c.role, l.err)
		}
	}
	if left, err := os.ReadDir(boxes); err != nil || len(left) > 0 {
		t.Errorf("%v: %v", err, left)
	}
	for folder, want := range map[string]string{"": "", filepath.Join(boxes, "none"): "\n  black box: it cannot be written: "} {
		l := launch(t, context.Background(), 3, "recorded", []string{filepath.Join(t.TempDir(), "waits")}, func(c *Config) { c.BlackBox = folder })
		var recorded *RecordedError
		if !errors.As(l.err, &recorded) || recorded.File != "" || (recorded.Unwritten == nil) != (want == "") || !strings.Contains(l.err.Error(), want) || !strings.Contains(l.err.Error(), "black box: operation 1 ") {
			t.Errorf("in %q: %v", folder, l.err)
		}
	}
}

// TestBlackBoxesKeepTheNewest removes the oldest files of a folder that has more than it keeps, and no other file.
func TestBlackBoxesKeepTheNewest(t *testing.T) {
	folder := t.TempDir()
	other := filepath.Join(folder, "ringo-record-1-rank-0")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for i := range maxBoxes + 3 {
		path, err := writeBox(folder, &blackbox.File{Written: time.Unix(1.7e9, 0)})
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
		if err := os.Chtimes(path, time.Time{}, time.Unix(int64(1000+i), 0)); err != nil {
			t.Fatal(err)
		}
	}
	for i, path := range append(paths, other) {
		if _, err := os.Stat(path); (err == nil) != (i >= 3) {
			t.Errorf("file %d of %d: %v", i, len(paths), err)
		}
	}
}

// TestNoBlackBoxOfOwnError tells a process that failed by itself from one that failed in an exchange.
func TestNoBlackBoxOfOwnError(t *testing.T) {
	well := blackbox.Entry{Kind: record.Operation.String()}
	for _, c := range []struct {
		death LostProcessError
		ended []blackbox.Entry
		want  bool
	}{
		{LostProcessError{Name: "rank 1", Failed: "a.csv: line 3: no number"}, []blackbox.Entry{well}, true},
		{LostProcessError{Name: "rank 1", Failed: "a.csv: line 3: no number"}, nil, true},
		{LostProcessError{Name: "rank 1", Failed: "allreduce: no message for 10m"}, []blackbox.Entry{well, {Kind: record.Operation.String(), Failed: true}}, false},
		{LostProcessError{Name: "rank 1", Failed: "rank 0 has another size"}, []blackbox.Entry{well, {Kind: record.Fault.String()}}, false},
		{LostProcessError{Name: "rank 1", ExitStatus: "exit status 3"}, []blackbox.Entry{well}, false},
		{LostProcessError{Name: "rank 7", Failed: "a.csv: line 3: no number"}, nil, false},
	} {
		box := &blackbox.File{Processes: []blackbox.Process{{Name: "rank 0", Ended: []blackbox.Entry{{Failed: true}}}, {Name: "rank 1", Ended: c.ended}}}
		if got := c.death.ownError(box); got != c.want {
			t.Errorf("%+v: %v", c.death, got)
		}
	}
}
