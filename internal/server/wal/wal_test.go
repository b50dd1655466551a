package wal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ringo-ml/ringo/internal/dirlock"
)

// small makes many segments of few records.
var small = Config{SegmentBytes: 300 + ownerBytes, BufferBytes: 200}

func mustOpen(t *testing.T, dir string, c Config) *Log {
	t.Helper()
	l, err := Open(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustClose(t *testing.T, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// text is the record with a number: lengths from 0 on.
func text(number uint64) string {
	return strings.Repeat(fmt.Sprintf("%d.", number), int(number*7%11))
}

// fill appends records up to a number, in groups of three.
func fill(t *testing.T, l *Log, last uint64) {
	t.Helper()
	for n := l.Stats().Last + 1; n <= last; n++ {
		s := text(n)
		p, err := l.Append([]byte(s[:len(s)/2]), []byte(s[len(s)/2:]))
		if err != nil || p.Number != n {
			t.Fatalf("append gave %d, %v, want %d", p.Number, err, n)
		}
		if n%3 == 0 || n == last {
			if err := l.Wait(p); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// numbers replays a log and checks each record; it returns the last number.
func numbers(t *testing.T, l *Log, first uint64) (last uint64, err error) {
	t.Helper()
	err = l.Replay(first, func(n uint64, record []byte) error {
		if last != 0 && n != last+1 || string(record) != text(n) {
			t.Fatalf("record %d after %d: %q, want %q", n, last, record, text(n))
		}
		last = n
		return nil
	})
	return last, err
}

// wants checks that a directory holds the records up to a number.
func wants(t *testing.T, dir string, c Config, last uint64) {
	t.Helper()
	l := mustOpen(t, dir, c)
	if got, err := numbers(t, l, 0); err != nil || got != last {
		t.Fatalf("replayed up to %d, %v, want %d", got, err, last)
	}
	mustClose(t, l)
}

// Where there is no descriptor for the next segment, because others have them all, the one at hand takes what comes; the log goes on to
// the next when it can.
func TestNoDescriptorForASegment(t *testing.T) {
	for _, fault := range []error{syscall.EMFILE, syscall.ENFILE} {
		var out error
		c, dir := small, t.TempDir()
		c.create = func(path string) (file, error) {
			if out != nil {
				return nil, &os.PathError{Op: "open", Path: path, Err: out}
			}
			return createFile(path)
		}
		l := mustOpen(t, dir, c)
		out = fault
		fill(t, l, 60)
		if n := l.Stats().Segments; n != 1 {
			t.Errorf("%v: %d segments, want one", fault, n)
		}
		out = nil
		fill(t, l, 90)
		if n := l.Stats().Segments; n < 3 {
			t.Errorf("%v has passed: %d segments, want more", fault, n)
		}
		out = syscall.EACCES
		last := l.Stats().Last
		for l.Stats().Last < last+60 {
			p, err := l.Append(make([]byte, 100))
			if err == nil {
				err = l.Wait(p)
			}
			if err != nil {
				break
			}
		}
		if err := l.Close(); !errors.Is(err, out) {
			t.Errorf("another fault ends the log: %v", err)
		}
		l = mustOpen(t, dir, small)
		got, err := uint64(0), l.Replay(0, func(n uint64, record []byte) error { return nil })
		if got = l.Stats().Last; err != nil || got < 90 {
			t.Errorf("%v: replayed up to %d, %v", fault, got, err)
		}
		mustClose(t, l)
	}
}

func TestReplay(t *testing.T) {
	for _, sync := range []bool{false, true} {
		c, dir := small, filepath.Join(t.TempDir(), "new")
		c.Sync = sync
		for last := uint64(0); last < 60; last += 7 { // opened again and again
			l := mustOpen(t, dir, c)
			if got, err := numbers(t, l, 0); err != nil || got != max(last, 7)-7 {
				t.Fatalf("replayed up to %d, %v, want %d", got, err, max(last, 7)-7)
			}
			fill(t, l, last)
			s := l.Stats()
			if s.First != 1 || s.Last != last || s.Safe != last || s.Syncs != s.Writes && sync || s.Syncs != 0 && !sync {
				t.Fatalf("%+v, want records up to %d", s, last)
			}
			mustClose(t, l)
		}
		l := mustOpen(t, dir, c)
		if n := l.Stats().Segments; n < 5 {
			t.Errorf("%d segments of %d bytes", n, c.SegmentBytes)
		}
		for first := uint64(1); first <= 57; first++ {
			n := 0
			if err := l.Replay(first, func(uint64, []byte) error { n++; return nil }); err != nil || n != int(57-first) {
				t.Fatalf("from %d: %d records, %v", first, n, err)
			}
		}
		if err := l.Replay(58, nil); err == nil || !strings.Contains(err.Error(), "the log has 1 to 56") {
			t.Errorf("a checkpoint that the log does not reach: %v", err)
		}
		stop := errors.New("stop")
		if err := l.Replay(3, func(uint64, []byte) error { return stop }); !errors.Is(err, stop) {
			t.Error(err)
		}
		mustClose(t, l)
		all, err := list(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if info, err := os.Stat(s.path); err != nil || info.Size() > c.SegmentBytes {
				t.Errorf("%s has %d bytes of %d", s.path, info.Size(), c.SegmentBytes)
			}
		}
	}
}

func TestTruncate(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, small)
	fill(t, l, 50)
	before := l.Stats().Segments
	if err := l.Truncate(20); err != nil {
		t.Fatal(err)
	}
	s := l.Stats()
	if s.First > 20 || s.First < 10 || s.Segments >= before {
		t.Fatalf("truncated to 20: %+v", s)
	}
	if err := l.Truncate(1000); err != nil || l.Stats().Segments != 1 {
		t.Fatalf("%v, %+v", err, l.Stats())
	}
	fill(t, l, 51) // with the next number
	mustClose(t, l)
	l = mustOpen(t, dir, small)
	if got, err := numbers(t, l, 51); err != nil || got != 51 {
		t.Fatal(got, err)
	}
	if err := l.Replay(1, nil); err == nil || !strings.Contains(err.Error(), "does not continue this checkpoint") {
		t.Errorf("records that are gone: %v", err)
	}
	mustClose(t, l)
}

func TestMisuse(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, small)
	if _, err := Open(dir, small); !errors.Is(err, dirlock.ErrHeld) {
		t.Errorf("opened twice: %v", err)
	}
	if _, err := l.Append(make([]byte, small.MaxRecord()+1)); err == nil || !strings.Contains(err.Error(), "at most 180") {
		t.Errorf("a record too long: %v", err)
	}
	if p, err := l.Append(make([]byte, small.MaxRecord())); err != nil || l.Wait(p) != nil {
		t.Errorf("the longest record: %v", err)
	}
	if err := l.Wait(LSN{Number: 2}); err == nil {
		t.Error("waited for a record that is yet to come")
	}
	if err := l.Replay(0, nil); err == nil || !strings.Contains(err.Error(), "replay comes first") {
		t.Errorf("a late replay: %v", err)
	}
	mustClose(t, l)
	_, appended := l.Append(nil)
	for _, err := range []error{appended, l.Close(), l.Replay(0, nil)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	_, err := Open(dir, Config{BufferBytes: 3, SegmentBytes: 10})
	if err == nil || !strings.Contains(err.Error(), "buffer of 3") || !strings.Contains(err.Error(), "segments of 10") {
		t.Errorf("both faults of a Config: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, small); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a file for a directory: %v", err)
	}
}

// What has been appended and never waited for is written by Close.
func TestCloseWrites(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, small)
	for n := uint64(1); n <= 4; n++ {
		if _, err := l.Append([]byte(text(n))); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, l)
	wants(t, dir, small, 4)
}

func TestAppendAllocatesNothing(t *testing.T) {
	l := mustOpen(t, t.TempDir(), Config{})
	head, body := make([]byte, 24), make([]byte, 4000)
	allocs := testing.AllocsPerRun(100, func() {
		var p LSN
		var err error
		for range 3 {
			if p, err = l.Append(head, body); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Wait(p); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations per group", allocs)
	}
	mustClose(t, l)
}

func BenchmarkAppend(b *testing.B) {
	for _, sync := range []bool{false, true} {
		for _, appenders := range []int{1, 16} {
			b.Run(fmt.Sprintf("sync=%v/appenders=%d", sync, appenders), func(b *testing.B) {
				l, err := Open(b.TempDir(), Config{Sync: sync})
				if err != nil {
					b.Fatal(err)
				}
				record := make([]byte, 64<<10) // 1000 rows of 64 bytes
				b.SetBytes(int64(len(record)))
				b.SetParallelism(appenders)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						p, err := l.Append(record)
						if err == nil {
							err = l.Wait(p)
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
				b.ReportMetric(float64(l.Stats().Records)/float64(max(l.Stats().Writes, 1)), "records/write")
				if err := l.Close(); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
