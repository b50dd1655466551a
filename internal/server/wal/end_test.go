package wal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// asKilled leaves a log as a kill does: the mark, exact, says that it was not closed.
func asKilled(t *testing.T, dir string, safe uint64) {
	t.Helper()
	must(t, os.WriteFile(markPath(dir), ackState{safe: safe}.append(nil, ""), 0o666))
}

// Ends says what Stats says of the open log, and changes nothing.
func TestEnds(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	wants := func(last uint64, closed bool) {
		t.Helper()
		if e, err := Ends(dir, ""); err != nil || e.Last != last || e.Marked != (e.Path != "") || e.Acknowledged != last || e.Closed != closed || e.Torn != 0 {
			t.Fatalf("%+v, %v, want record %d", e, err, last)
		}
	}
	wants(0, false)
	for round := range uint64(3) {
		l := mustOpen(t, dir, small)
		if e := l.End(); e.Last != 20*round || e.Closed != (round > 0) {
			t.Errorf("opened at %+v", e)
		}
		wants(20*round, false)
		fill(t, l, 20*(round+1))
		wants(20*(round+1), false)
		mustClose(t, l)
		wants(20*(round+1), true)
	}
}

// A last segment that was cut anywhere is told from a write that a crash cut short: acknowledged records do not go without a word.
// A log of a version that kept no mark does not know, and says so.
func TestCutTail(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, small)
	fill(t, l, 40)
	mustClose(t, l)
	whole, all := read(t, dir)
	last := all[len(all)-1]
	for size := 0; size <= len(whole[last.path]); size++ {
		for _, what := range []string{"closed", "killed", "killed before the last record was acknowledged", "no mark", "a torn mark"} {
			whole.restore(t, dir)
			acknowledged := uint64(40)
			switch what {
			case "closed":
				must(t, os.WriteFile(markPath(dir), ackState{40, true}.append(nil, ""), 0o666))
			case "killed":
				asKilled(t, dir, 40)
			case "killed before the last record was acknowledged":
				acknowledged = 39
				asKilled(t, dir, 39)
			case "no mark":
				acknowledged = 0
			case "a torn mark":
				acknowledged = 0
				must(t, os.WriteFile(markPath(dir), ackState{safe: 40}.append(nil, "")[:20], 0o666))
			}
			must(t, os.Truncate(last.path, int64(size)))
			end, err := Ends(dir, "")
			there := end.Last
			var lost *LostError
			if there < acknowledged != errors.As(err, &lost) || (err != nil) != (lost != nil) {
				t.Fatalf("%s, cut to %d bytes: %+v, %v", what, size, end, err)
			}
			if lost != nil && !strings.Contains(err.Error(), last.path) {
				t.Fatalf("%s, cut to %d bytes: %v does not name %s", what, size, err, last.path)
			}
			if lost != nil {
				if _, err := Open(dir, small); !errors.As(err, &lost) || !strings.Contains(err.Error(), fmt.Sprintf("records up to %d had been acknowledged", acknowledged)) {
					t.Fatalf("%s, cut to %d bytes: opened, %v", what, size, err)
				}
				if info, err := os.Stat(last.path); err != nil || info.Size() != int64(size) {
					t.Fatalf("%s, cut to %d bytes: the file was changed: %v, %v", what, size, info, err)
				}
				forget(t, dir) // as the error says
			}
			if size%8 > 0 {
				continue
			}
			if end.Marked != strings.HasPrefix(what, "killed") && what != "closed" {
				t.Fatalf("%s: %+v", what, end)
			}
			l := mustOpen(t, dir, small)
			if s := l.Stats(); s.Last != there {
				t.Fatalf("%s, cut to %d bytes: %+v, want record %d", what, size, s, there)
			}
			fill(t, l, 45)
			mustClose(t, l)
			wants(t, dir, small, 45)
		}
	}
	whole.restore(t, dir)
	asKilled(t, dir, 40)
	for _, s := range all {
		must(t, os.Remove(s.path))
	}
	var lost *LostError
	if _, err := Open(dir, small); !errors.As(err, &lost) || !strings.Contains(err.Error(), "no segment is left") {
		t.Errorf("all segments are gone: %v", err)
	}
	whole.restore(t, dir)
	must(t, os.WriteFile(markPath(dir), ackState{40, true}.append(nil, ""), 0o666))
	overwrite(t, last.path, append(whole[last.path], 1, 2, 3))
	var damage *DamageError
	if _, err := Open(dir, small); !errors.As(err, &damage) || damage.Path != last.path {
		t.Errorf("bytes after the end of a closed log: %v", err)
	}
}

// What a person reads of a log's end.
func TestEndInWords(t *testing.T) {
	e := End{Last: 7, Path: "log/segment-1", Offset: 300}
	for _, c := range []struct {
		change func(e *End)
		want   string
	}{
		{func(e *End) { *e = End{} }, "there is no log"},
		{func(e *End) { e.Marked, e.Acknowledged, e.Closed = true, 7, true }, "ends with record 7, at byte 300 of log/segment-1, where it was closed in good order"},
		{func(e *End) { e.Marked, e.Acknowledged = true, 6 }, "ends with record 7, at byte 300 of log/segment-1; it was not closed, and has all records that were acknowledged (up to 6)"},
		{func(e *End) { e.Marked, e.Acknowledged, e.Torn = true, 7, 5 }, "ends with record 7, at byte 300 of log/segment-1; it was not closed, and has all records that were acknowledged (up to 7); the 5 bytes after it are of a write that was cut short"},
		{func(e *End) { e.Torn = 5 }, "ends with record 7, at byte 300 of log/segment-1; whether records after it are lost cannot be known: no file acknowledged says what was acknowledged; the 5 bytes after it are of a write that was cut short"},
	} {
		e := e
		if c.change(&e); e.String() != c.want {
			t.Errorf("%q, want %q", e, c.want)
		}
	}
	lost := &LostError{Dir: "log", End: End{Last: 7, Path: "log/segment-1", Offset: 300, Acknowledged: 9}}
	const want = "the log has lost its end: it ends with record 7, at byte 300 of log/segment-1, but records up to 9 had been acknowledged: the file was cut, or the host lost power while the log was not forced to the disk; bring it back from a copy, or remove log/acknowledged to go on without records 8 to 9"
	if lost.Error() != want {
		t.Errorf("%q, want %q", lost, want)
	}
	lost.Headless = "log/segment-8"
	if want := strings.Replace(want, "log/segment-1,", "log/segment-1 (log/segment-8 has no whole header),", 1); lost.Error() != want {
		t.Errorf("%q, want %q", lost, want)
	}
}

// A log that has failed is not called closed, and a full disk leaves the mark where the log is.
func TestMarkOfAFailedLog(t *testing.T) {
	for _, fault := range []error{syscall.ENOSPC, syscall.EIO} {
		dir := t.TempDir()
		l, g := gatedLog(t, dir, Config{})
		fill(t, l, 6)
		g.fail, g.part = fault, 7
		p, err := l.Append([]byte("lost"))
		must(t, err)
		if err := l.Wait(p); !errors.Is(err, fault) {
			t.Fatalf("got %v", err)
		}
		if err := l.Close(); !errors.Is(err, fault) {
			t.Fatalf("got %v", err)
		}
		if e, err := Ends(dir, ""); err != nil || e.Last != 6 || e.Acknowledged != 6 || e.Closed || (e.Torn > 0) != (fault == syscall.EIO) {
			t.Errorf("%v: %+v, %v", fault, e, err)
		}
		wants(t, dir, Config{}, 6)
	}
}
