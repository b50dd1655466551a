package wal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Last says what Stats says of the open log, and after a torn write what Open finds.
func TestLast(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	last := func(want uint64) {
		t.Helper()
		if got, err := Last(dir); err != nil || got != want {
			t.Fatalf("record %d, %v, want %d", got, err, want)
		}
	}
	last(0)
	for round := range uint64(3) {
		l, err := Open(dir, Config{SegmentBytes: 4096, BufferBytes: 1024})
		if err != nil {
			t.Fatal(err)
		}
		for range 40 {
			p, err := l.Append(make([]byte, 100))
			if err == nil {
				err = l.Wait(p)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		last(40 * (round + 1))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	all, err := list(dir)
	if err != nil || len(all) < 3 {
		t.Fatal(all, err)
	}
	path := all[len(all)-1].path
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[int]uint64{len(b) - 1: 119, segmentHeader: all[len(all)-1].first - 1, 3: all[len(all)-1].first - 1} {
		if err := os.WriteFile(path, b[:at], 0o666); err != nil {
			t.Fatal(err)
		}
		last(want)
	}
	b[segmentHeader+recordHeader+5] ^= 1
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	var d *DamageError
	if _, err := Last(dir); !errors.As(err, &d) || d.Path != path {
		t.Errorf("got %v", err)
	}
}
