package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/crc32c"
)

// image is a log's files by path.
type image map[string][]byte

func read(t *testing.T, dir string) (image, []segment) {
	t.Helper()
	all, err := list(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := image{}
	for _, s := range all {
		if m[s.path], err = os.ReadFile(s.path); err != nil {
			t.Fatal(err)
		}
	}
	return m, all
}

// restore puts a log's files back, as a version that kept no mark has left them.
func (m image) restore(t *testing.T, dir string) {
	t.Helper()
	forget(t, dir)
	now, err := list(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range now {
		if m[s.path] == nil {
			must(t, os.Remove(s.path))
		}
	}
	for path, b := range m {
		overwrite(t, path, b)
	}
}

// forget removes what says which records were acknowledged.
func forget(t *testing.T, dir string) {
	t.Helper()
	if err := os.Remove(markPath(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

// overwrite replaces what a file has. It does not empty the file before, for which
// some file systems wait for the disk.
func overwrite(t *testing.T, path string, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	must(t, err)
	_, err = f.WriteAt(b, 0)
	must(t, errors.Join(err, f.Truncate(int64(len(b))), f.Close()))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// openAndReplay is what a server does when it starts.
func openAndReplay(t *testing.T, dir string, c Config) (last uint64, err error) {
	t.Helper()
	l, err := Open(dir, c)
	if err != nil {
		return 0, err
	}
	defer mustClose(t, l)
	return numbers(t, l, 0)
}

// The last write cut off anywhere is as if it had never been, and the log goes on.
func TestTornTail(t *testing.T) {
	for _, sync := range []bool{false, true} {
		c, dir := small, t.TempDir()
		c.Sync = sync
		l := mustOpen(t, dir, c)
		fill(t, l, 6)
		mustClose(t, l)
		whole, all := read(t, dir)
		path := all[len(all)-1].path
		from := len(whole[path]) - recordHeader - len(text(6))
		step := 1
		if sync {
			step = 9 // a sync takes its time
		}
		for size := from; size < len(whole[path]); size += step {
			whole.restore(t, dir)
			must(t, os.Truncate(path, int64(size)))
			wants(t, dir, c, 5)
			l := mustOpen(t, dir, c)
			fill(t, l, 7)
			mustClose(t, l)
			wants(t, dir, c, 7)
		}
	}
}

// A crash may leave a new segment without its header.
func TestUnbornSegment(t *testing.T) {
	for _, records := range []uint64{0, 6} {
		for _, size := range []int{0, 1, segmentHeader - 1, segmentHeader} {
			dir := t.TempDir()
			l := mustOpen(t, dir, small)
			fill(t, l, records)
			mustClose(t, l)
			must(t, os.WriteFile(segmentPath(dir, records+1), make([]byte, size), 0o666))
			wants(t, dir, small, records)
			l = mustOpen(t, dir, small)
			fill(t, l, records+2)
			mustClose(t, l)
			wants(t, dir, small, records+2)
		}
	}
	dir := t.TempDir()
	must(t, os.WriteFile(segmentPath(dir, 9), nil, 0o666))
	var d *DamageError
	if _, err := Open(dir, small); !errors.As(err, &d) {
		t.Errorf("nothing but an empty segment 9: %v", err)
	}
}

// A flip of any bit is found, and its file named. Only that in the last record
// looks like a write cut short.
func TestFlips(t *testing.T) {
	dir, c := t.TempDir(), Config{SegmentBytes: 140 + ownerBytes, BufferBytes: 110}
	l := mustOpen(t, dir, c)
	fill(t, l, 9)
	mustClose(t, l)
	whole, all := read(t, dir)
	if len(all) < 3 {
		t.Fatalf("%d segments: want some", len(all))
	}
	for i, s := range all {
		tail := len(whole[s.path])
		if i == len(all)-1 {
			tail -= recordHeader + len(text(9))
		}
		for at := range whole[s.path] {
			whole.restore(t, dir)
			b := append([]byte(nil), whole[s.path]...)
			b[at] ^= 1 << (at % 8)
			overwrite(t, s.path, b)
			last, err := openAndReplay(t, dir, c)
			var d *DamageError
			switch {
			case at >= tail:
				if last != 8 || err != nil {
					t.Fatalf("byte %d of the last record: %d, %v", at-tail, last, err)
				}
			case at >= 8 && at < 12:
				if !errors.Is(err, ErrVersion) {
					t.Fatalf("%s, the version: %v", s.path, err)
				}
			case !errors.As(err, &d) || d.Path != s.path || d.Offset > int64(at):
				t.Fatalf("%s, byte %d: %d, %v", s.path, at, last, err)
			}
		}
	}
	for i, s := range all[:len(all)-1] { // cut short, or gone
		whole.restore(t, dir)
		must(t, os.Truncate(s.path, int64(len(whole[s.path])-recordHeader-len(text(all[i+1].first-1)))))
		var d *DamageError
		if _, err := openAndReplay(t, dir, c); !errors.As(err, &d) || d.Path != s.path {
			t.Errorf("%s without its last record: %v", s.path, err)
		}
		must(t, os.Remove(s.path))
		_, err := openAndReplay(t, dir, c)
		if i > 0 && (!errors.As(err, &d) || d.Path != all[i-1].path) {
			t.Errorf("%s is missing: %v", s.path, err)
		}
	}
}

// A loss of power may lose any pages of the last write. Without Sync nothing is
// promised of one, and the same is damage.
func TestTornGroup(t *testing.T) {
	for _, sync := range []bool{false, true} {
		for lost := uint64(4); lost <= 6; lost++ {
			dir, c := t.TempDir(), Config{Sync: sync, SegmentBytes: 1000, BufferBytes: 500}
			l := mustOpen(t, dir, c)
			fill(t, l, 6) // two groups
			mustClose(t, l)
			forget(t, dir)
			path := segmentPath(dir, 1)
			b, err := os.ReadFile(path)
			must(t, err)
			at := segmentHeader
			for n := uint64(1); n < lost; n++ {
				at += recordHeader + len(text(n))
			}
			clear(b[at : at+recordHeader+len(text(lost))])
			must(t, os.WriteFile(path, b, 0o666))
			last, err := openAndReplay(t, dir, c)
			var d *DamageError
			if sync || lost == 6 {
				if last != lost-1 || err != nil {
					t.Errorf("record %d of the last group lost: %d, %v", lost, last, err)
				}
			} else if !errors.As(err, &d) || d.Offset != int64(at) {
				t.Errorf("record %d is zero at %d, without sync: %v", lost, at, err)
			}
		}
	}
	// Of the group before, no record may be lost.
	dir, c := t.TempDir(), Config{Sync: true, SegmentBytes: 1000, BufferBytes: 500}
	l := mustOpen(t, dir, c)
	fill(t, l, 6)
	mustClose(t, l)
	b, err := os.ReadFile(segmentPath(dir, 1))
	must(t, err)
	clear(b[segmentHeader : segmentHeader+recordHeader])
	must(t, os.WriteFile(segmentPath(dir, 1), b, 0o666))
	var d *DamageError
	if _, err := Open(dir, c); !errors.As(err, &d) {
		t.Errorf("a group lost before the last: %v", err)
	}
}

func TestStrangers(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"segment-1", "segment-00000000000000000000", "notes", "segment-x"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o666))
	}
	l := mustOpen(t, dir, small)
	fill(t, l, 20)
	mustClose(t, l)
	wants(t, dir, small, 20)
	must(t, os.WriteFile(segmentPath(dir, 21), []byte(strings.Repeat("x", 200)), 0o666))
	var d *DamageError
	if _, err := Open(dir, small); !errors.As(err, &d) || d.Offset != 0 {
		t.Errorf("a file of something else: %v", err)
	}
	b := appendSegmentHeader(nil, 21, false, "")
	b[12] = 8
	binary.LittleEndian.PutUint32(b[segmentHeader-4:], crc32c.Checksum(b[:segmentHeader-4]))
	must(t, os.WriteFile(segmentPath(dir, 21), append(b, 0), 0o666))
	if _, err := Open(dir, small); err == nil || !strings.Contains(err.Error(), "unknown flags 0x8") {
		t.Errorf("flags of the future: %v", err)
	}
}

// FuzzScan: no input makes scanning panic or read outside, and what it accepts is
// a log that goes on.
func FuzzScan(f *testing.F) {
	for _, sync := range []bool{false, true} {
		b := appendSegmentHeader(nil, 5, sync, "")
		for n := uint64(5); n < 9; n++ {
			b = withRecord(b, n, uint32(n%2))
		}
		f.Add(b)
		f.Add(b[:len(b)-1])
		b[60]++
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var seen []string
		keep := func(r record) error {
			seen = append(seen, fmt.Sprint(r.number, r.before, r.payload))
			return nil
		}
		end, next, err := scan("f", b, 5, "", true, keep)
		if err != nil {
			return
		}
		if end > len(b) || next != 5+uint64(len(seen)) {
			t.Fatalf("%d of %d bytes, next record %d after %d", end, len(b), next, len(seen))
		}
		before := seen
		seen = nil
		more := withRecord(b[:end:end], next, 0)
		if at, n, err := scan("f", more, 5, "", false, keep); at != len(more) || n != next+1 || err != nil {
			t.Fatalf("with one more record: %d of %d bytes, next %d, %v", at, len(more), n, err)
		}
		if fmt.Sprint(seen[:len(before)]) != fmt.Sprint(before) {
			t.Fatalf("%v became %v", before, seen)
		}
	})
}

func withRecord(b []byte, n uint64, before uint32) []byte {
	s := text(n)
	if len(s) > 100 {
		s = s[:100]
	}
	b = appendHeader(b, len(s), before, n, crc32c.Checksum([]byte(s)))
	return append(b, s...)
}
