package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringo-ml/ringo/internal/crc32c"
)

func TestReopen(t *testing.T) {
	for _, log := range []bool{false, true} {
		m, r, dir := newModel(), rand.New(rand.NewPCG(5, 6)), t.TempDir()
		for range 4 {
			d := mustOpen(t, dir, Config{Log: log})
			m.check(t, d)
			if _, err := Open(dir, Config{}); !errors.Is(err, ErrHeld) {
				t.Errorf("opened twice: %v", err)
			}
			for _, table := range tables {
				m.put(t, d, r, table, 100, false)
				m.remove(t, d, r, table, 30, false)
			}
			must(t, d.Close())
		}
		d := mustOpen(t, dir, Config{Log: !log}) // with or without is a matter of each run
		m.check(t, d)
		must(t, d.Close())
	}
}

func TestStrangeDirectories(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "notes"), nil, 0o666))
	if _, err := Open(dir, Config{}); err == nil || !strings.Contains(err.Error(), "it has notes and no FORMAT: it is no store") {
		t.Errorf("somebody else's directory: %v", err)
	}
	dir = t.TempDir()
	must(t, mustOpen(t, dir, Config{}).Close())
	format := filepath.Join(dir, formatFile)
	must(t, os.WriteFile(format, []byte("ringo store 2\n"), 0o666))
	if _, err := Open(dir, Config{}); !errors.Is(err, ErrVersion) {
		t.Errorf("a format of the future: %v", err)
	}
	if err := Restore(dir, filepath.Join(t.TempDir(), "r")); !errors.Is(err, ErrVersion) {
		t.Errorf("a checkpoint of the future: %v", err)
	}
	must(t, os.WriteFile(format, []byte("ringo"), 0o666))
	var d *DamageError
	if _, err := Open(dir, Config{}); !errors.As(err, &d) || d.Path != format {
		t.Errorf("half a format: %v", err)
	}
	must(t, os.WriteFile(format, []byte(formatText), 0o666))
	must(t, os.Remove(filepath.Join(dir, listFile)))
	marker, err := filepath.Glob(filepath.Join(dir, rowsFolder, "marker.format-version.*"))
	if err != nil || len(marker) != 1 {
		t.Fatal(marker, err)
	}
	must(t, os.Rename(marker[0], filepath.Join(dir, rowsFolder, "marker.format-version.000099.999")))
	if _, err := Open(dir, Config{}); !errors.Is(err, ErrVersion) {
		t.Errorf("a format of a later Pebble: %v", err)
	}
}

// damaged is a closed store with rows in files.
func damaged(t *testing.T) (dir string, keys []uint64) {
	t.Helper()
	dir = t.TempDir()
	d := mustOpen(t, dir, Config{})
	var rows Rows
	for k := range uint64(2000) {
		rows.Add(k, bytes.Repeat([]byte{byte(k)}, 100))
	}
	must(t, d.Put(1, &rows))
	must(t, d.Compact(context.Background()))
	must(t, d.Close())
	return dir, rows.Keys
}

func files(t *testing.T, dir, pattern string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, rowsFolder, pattern))
	if err != nil || len(all) == 0 {
		t.Fatal(pattern, all, err)
	}
	return all
}

func TestDamage(t *testing.T) {
	dir, keys := damaged(t)
	path := files(t, dir, "*.sst")[0]
	b, err := os.ReadFile(path)
	must(t, err)
	b[len(b)/3] ^= 4
	must(t, os.WriteFile(path, b, 0o666))
	d := mustOpen(t, dir, Config{})
	var found Rows
	var damage *DamageError
	if err := d.Get(1, keys, &found); !errors.As(err, &damage) || damage.Path != path || found.Len() != 0 {
		t.Errorf("a bit of %s: %v", path, err)
	}
	if err := d.Iterate(1, func(uint64, []byte) error { return nil }); !errors.As(err, &damage) || damage.Path != path {
		t.Errorf("a bit of %s: %v", path, err)
	}
	must(t, d.Get(1, keys[len(keys)-1:], &found)) // other blocks can be read
	if err := d.Put(1, &found); !errors.As(err, &damage) {
		t.Errorf("a put after damage: %v", err)
	}
	must(t, d.Close())

	for _, pattern := range []string{"*.sst", "MANIFEST-*", "OPTIONS-*"} {
		dir, _ := damaged(t)
		checkpoint := filepath.Join(t.TempDir(), "checkpoint")
		must(t, Restore(dir, checkpoint)) // a store at rest is one, too
		for _, in := range []string{dir, checkpoint} {
			f := files(t, in, pattern)[0]
			must(t, os.Truncate(f, 40))
			if _, err := Open(in, Config{}); !errors.As(err, &damage) || damage.Path != f {
				t.Errorf("%s cut short: %v", f, err)
			}
			if err := Restore(in, filepath.Join(t.TempDir(), "r")); !errors.As(err, &damage) || damage.Path != f {
				t.Errorf("%s cut short, and restored: %v", f, err)
			}
			must(t, os.Remove(f))
			if _, err := Open(in, Config{}); !errors.As(err, &damage) || damage.Path != f || !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is missing: %v", f, err)
			}
		}
	}
	dir, _ = damaged(t)
	list := filepath.Join(dir, listFile)
	must(t, os.Truncate(list, 30))
	if _, err := Open(dir, Config{}); !errors.As(err, &damage) || damage.Path != list {
		t.Errorf("half a list: %v", err)
	}
}

// FuzzParseList: no list makes reading panic, and no name leads elsewhere.
func FuzzParseList(f *testing.F) {
	for _, body := range []string{"", "12 a.sst\n0 b\n", "1 ../x\n", "-1 a\n", "a", "1 \n"} {
		f.Add(body, true)
		f.Add(body, false)
	}
	f.Fuzz(func(t *testing.T, body string, sum bool) {
		text := body
		if sum {
			text += fmt.Sprintf("%08x\n", crc32c.Checksum([]byte(body)))
		}
		files, err := parseList(text)
		for name, size := range files {
			if err != nil || size < 0 || strings.Contains(name, "/") || !strings.Contains(text, " "+name+"\n") {
				t.Fatalf("%q: %q with %d bytes, %v", text, name, size, err)
			}
		}
	})
}

// A Get allocates per call and not per row.
func TestGetAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	dir, keys := damaged(t)
	d := mustOpen(t, dir, Config{})
	var found Rows
	must(t, d.Get(1, keys, &found))
	allocs := testing.AllocsPerRun(20, func() {
		if err := d.Get(1, keys, &found); err != nil || found.Len() != len(keys) {
			t.Fatal(found.Len(), err)
		}
	})
	if allocs > 30 {
		t.Errorf("%v allocations for %d rows", allocs, len(keys))
	}
	must(t, d.Close())
}

// The ledger says what the files have, whatever Pebble does with them.
func TestLedger(t *testing.T) {
	m, r, dir := newModel(), rand.New(rand.NewPCG(7, 8)), t.TempDir()
	d := mustOpen(t, dir, Config{Log: true, LimitBytes: MinLimitBytes})
	for step := range 60 {
		m.put(t, d, r, tables[step%4], 200, true)
	}
	must(t, d.Checkpoint(filepath.Join(t.TempDir(), "c")))
	must(t, d.Compact(context.Background()))
	must(t, d.db.Close()) // every file is as it will stay
	now, peak := d.ledger.used()
	fresh, err := newLedger(vfs.Default, filepath.Join(dir, rowsFolder))
	must(t, err)
	if has, _ := fresh.used(); has != now || peak < now || peak > MinLimitBytes {
		t.Errorf("the ledger says %d bytes (at most %d), the files have %d", now, peak, has)
	}
	must(t, d.lock.Release())
}

func TestLedgerFiles(t *testing.T) {
	dir := t.TempDir()
	l, err := newLedger(vfs.Default, dir)
	must(t, err)
	wants := func(now, most int64) {
		t.Helper()
		if n, peak := l.used(); n != now || peak != most {
			t.Errorf("%d bytes, at most %d: want %d, %d", n, peak, now, most)
		}
	}
	a, b, other := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(t.TempDir(), "a")
	create := func(path string, n int) {
		t.Helper()
		f, err := l.Create(path, vfs.WriteCategoryUnspecified)
		must(t, err)
		_, err = f.Write(make([]byte, n))
		must(t, errors.Join(err, f.Preallocate(0, 1000), f.Close()))
	}
	create(a, 10)
	create(b, 5)
	create(other, 100)
	wants(15, 15)
	must(t, l.Rename(a, b))
	wants(10, 15)
	create(b, 7) // in its place
	wants(7, 15)
	f, err := l.ReuseForWrite(b, a, vfs.WriteCategoryUnspecified)
	must(t, err)
	wants(0, 15)
	must(t, l.Remove(a))
	_, err = f.Write([]byte("nobody sees it"))
	must(t, errors.Join(err, f.Close()))
	wants(0, 15)
	l.limit, l.spare = 100, 60
	create(a, 41)
	if _, err := l.Create(b, compaction); !errors.Is(err, errNoRoom) {
		t.Errorf("a compaction beyond the limit: %v", err)
	}
	create(b, 41) // a flush has the spare room
	if err := l.Remove(other); err != nil {
		t.Error(err)
	}
	if err := l.Remove(other); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	wants(82, 82)
}

func TestSizes(t *testing.T) {
	a, b := TableSize{3, 400}, TableSize{-1, -50}
	for _, err := range []error{errors.Join(new(sum).add(nil), nil), new(sum).MergeOlder(make([]byte, 15))} {
		if err == nil {
			t.Error("a size of the wrong length was accepted")
		}
	}
	m, err := counts.Merge(nil, appendSize(nil, a))
	must(t, err)
	must(t, errors.Join(m.MergeNewer(appendSize(nil, b)), m.MergeOlder(appendSize(nil, b))))
	out, _, err := m.Finish(true)
	must(t, err)
	if got, err := decodeSize(out); err != nil || got != (TableSize{1, 300}) {
		t.Errorf("%+v, %v", got, err)
	}
}
