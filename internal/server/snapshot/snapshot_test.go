package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// save writes a checkpoint of two files that follow from seed.
func save(t *testing.T, dir string, base uint64, seed int) *Snapshot {
	t.Helper()
	d, err := Begin(dir, "", base)
	must(t, err)
	for i := range 2 {
		w, err := d.Create(fmt.Sprint("file-", i))
		must(t, err)
		_, err = w.Write(content(seed, i))
		must(t, err)
		must(t, w.Close())
	}
	s, err := d.Commit(map[string]int{"seed": seed})
	must(t, err)
	return s
}

func content(seed, i int) []byte { return bytes.Repeat([]byte{byte(seed), byte(i)}, 300_000*i+seed) }

func check(t *testing.T, s *Snapshot, seed int) {
	t.Helper()
	if want := fmt.Sprintf(`{"seed":%d}`, seed); string(s.Meta) != want {
		t.Errorf("checkpoint %d: meta %s, want %s", s.Number, s.Meta, want)
	}
	for i := range 2 {
		r, err := s.Open(fmt.Sprint("file-", i))
		must(t, err)
		b, err := io.ReadAll(r)
		must(t, err)
		must(t, r.Close())
		if !bytes.Equal(b, content(seed, i)) {
			t.Errorf("checkpoint %d: file %d has other bytes", s.Number, i)
		}
	}
}

func numbers(t *testing.T, dir string) []uint64 {
	t.Helper()
	all, err := Numbers(dir)
	must(t, err)
	return all
}

func TestChains(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoints")
	if _, err := Chain(dir, "", 0); !errors.Is(err, ErrNone) {
		t.Fatalf("no directory: %v", err)
	}
	save(t, dir, 0, 11)
	save(t, dir, 1, 12)
	save(t, dir, 2, 13)
	save(t, dir, 0, 14)
	save(t, dir, 4, 15)
	for newest, want := range map[uint64][]uint64{0: {4, 5}, 1: {1}, 2: {1, 2}, 3: {1, 2, 3}, 4: {4}} {
		chain, err := Chain(dir, "", newest)
		must(t, err)
		var got []uint64
		for _, s := range chain {
			got = append(got, s.Number)
			check(t, s, 10+int(s.Number))
		}
		if !slices.Equal(got, want) {
			t.Errorf("chain of %d: %v, want %v", newest, got, want)
		}
	}
	for _, step := range []struct {
		keep int
		want []uint64
	}{{0, []uint64{1, 2, 3, 4, 5}}, {3, []uint64{1, 2, 3, 4, 5}}, {2, []uint64{4, 5}}, {1, []uint64{4, 5}}} {
		must(t, Prune(dir, step.keep))
		if got := numbers(t, dir); !slices.Equal(got, step.want) {
			t.Fatalf("of which %d are kept: %v, want %v", step.keep, got, step.want)
		}
	}
	if s := save(t, dir, 0, 16); s.Number != 6 {
		t.Errorf("the next one is %d", s.Number)
	}
}

func TestWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, 0, 1)
	d, err := Begin(dir, "", 0)
	must(t, err)
	w, err := d.Create("a")
	must(t, err)
	if got := numbers(t, dir); len(got) != 1 {
		t.Fatalf("a checkpoint that is being written is seen: %v", got)
	}
	if _, err := d.Commit(nil); err == nil {
		t.Fatal("committed with a file that is open")
	}
	_ = w.Close()
	d, err = Begin(dir, "", 0) // a crash leaves its folder
	must(t, err)
	if d.Number() != 2 {
		t.Fatalf("number %d", d.Number())
	}
	must(t, Prune(dir, 0))
	entries, err := os.ReadDir(dir)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("left after a crash: %v", entries)
	}
	if _, err := Begin(dir, "", 9); !errors.Is(err, ErrNone) {
		t.Errorf("a delta to what is not there: %v", err)
	}
	d, err = Begin(dir, "", 0)
	must(t, err)
	for _, name := range []string{"", "..", "a/b", "/a", manifestName, "a\x00"} {
		if _, err := d.Create(name); err == nil {
			t.Errorf("a file named %q was made", name)
		}
	}
	d.Abandon()
}

// Every byte of every file is covered: what is changed is noticed, and named.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	s := save(t, dir, 0, 3)
	readAll := func() error {
		chain, err := Chain(dir, "", 0)
		if err != nil {
			return err
		}
		for _, f := range chain[0].Files {
			r, err := chain[0].Open(f.Name)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, r)
			if err := errors.Join(err, r.Close()); err != nil {
				return err
			}
		}
		return nil
	}
	must(t, readAll())
	for _, name := range []string{manifestName, "file-0", "file-1"} {
		path := filepath.Join(s.Dir, name)
		good, err := os.ReadFile(path)
		must(t, err)
		for _, at := range []int{0, len(good) / 2, len(good) - 1} {
			bad := slices.Clone(good)
			bad[at] ^= 0x20
			must(t, os.WriteFile(path, bad, 0o666))
			var damage *DamageError
			if err := readAll(); !errors.As(err, &damage) || damage.Path != path {
				t.Errorf("%s changed at %d: %v", name, at, err)
			}
		}
		must(t, os.WriteFile(path, good[:len(good)-1], 0o666))
		if err := readAll(); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s cut short: %v", name, err)
		}
		must(t, os.Remove(path))
		if err := readAll(); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s removed: %v", name, err)
		}
		must(t, os.WriteFile(path, good, 0o666))
	}
	must(t, readAll())
	if _, err := s.Open("none"); err == nil {
		t.Error("a file that is not there was opened")
	}
}

func TestVersion(t *testing.T) {
	dir := t.TempDir()
	s := save(t, dir, 0, 1)
	m := s.Manifest
	m.Version++
	b, err := encode(m)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(s.Dir, manifestName), b, 0o666))
	if _, err := Chain(dir, "", 0); !errors.Is(err, ErrVersion) {
		t.Errorf("another version: %v", err)
	}
}

func TestMissingBase(t *testing.T) {
	dir := t.TempDir()
	s := save(t, dir, 0, 1)
	save(t, dir, 1, 2)
	must(t, os.RemoveAll(s.Dir))
	if _, err := Chain(dir, "", 0); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "checkpoint 2 is a delta to checkpoint 1") {
		t.Errorf("a base that is gone: %v", err)
	}
}

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	d, err := Begin(dir, "", 0)
	must(t, err)
	_, err = d.Folder("table")
	must(t, err)
	if _, err := d.Folder("../table"); err == nil {
		t.Error("a folder outside was given")
	}
	if _, err := d.Commit(nil); err == nil {
		t.Fatal("committed without its folder")
	}
	d, err = Begin(dir, "", 0)
	must(t, err)
	path, err := d.Folder("table")
	must(t, err)
	must(t, os.Mkdir(path, 0o777))
	s, err := d.Commit(nil)
	must(t, err)
	path, err = s.Folder("table")
	must(t, err)
	if _, err := s.Folder("other"); err == nil {
		t.Error("a folder that is not there")
	}
	must(t, os.Remove(path))
	if _, err := Chain(dir, "", 0); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a folder that is gone: %v", err)
	}
}

func FuzzManifest(f *testing.F) {
	for _, m := range []Manifest{
		{Version: 1, Number: 1, Meta: []byte("{}"), Files: []File{{"a", 3, 4}}},
		{Version: 1, Number: 2, Base: 1, Meta: []byte("[1]")},
		{Version: 1, Number: 2, Base: 2, Meta: []byte("[1]"), Files: []File{{"../a", 1, 1}}},
	} {
		b, err := encode(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode("file", b)
		if err != nil {
			return
		}
		again, err := encode(m)
		must(t, err)
		back, err := decode("file", again)
		must(t, err)
		if back.Number != m.Number || back.Base != m.Base || !slices.Equal(back.Files, m.Files) || !slices.Equal(back.Folders, m.Folders) || m.Base >= m.Number {
			t.Fatalf("%+v became %+v", m, back)
		}
		for _, file := range m.Files {
			if !goodName(file.Name) {
				t.Fatalf("a file named %q", file.Name)
			}
		}
	})
}
