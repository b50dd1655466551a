package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		out = append(out, f.Name())
	}
	return out
}

func TestLatest(t *testing.T) {
	dir := t.TempDir()
	for _, none := range []string{dir, filepath.Join(dir, "absent")} {
		if _, err := Latest(none); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), none) {
			t.Errorf("%s: %v", none, err)
		}
		if steps, err := Steps(none); err != nil || len(steps) != 0 {
			t.Errorf("%s: steps %v, %v", none, steps, err)
		}
	}
	for _, step := range []int64{20, 100, 3, 12_345_678_901} {
		s := small(step)
		s.Keep = 0
		save(t, dir, s)
	}
	for _, other := range []string{"step-1.ringo", "step-x.ringo", "step--00000001.ringo", "step-99999999999.ringo.tmp", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(dir, other), []byte("?"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, fileName(99_999_999_999)), 0o777); err != nil {
		t.Fatal(err)
	}
	path, err := Latest(dir)
	if err != nil || filepath.Base(path) != "step-12345678901.ringo" {
		t.Errorf("the latest is %s, %v", path, err)
	}
	steps, err := Steps(dir)
	if err != nil || !slices.Equal(steps, []int64{12_345_678_901, 100, 20, 3}) || PathOf(dir, steps[0]) != path {
		t.Errorf("steps %v, %v; the first in %s", steps, err, PathOf(dir, 12_345_678_901))
	}
}

// Save removes what is older than asked for, and nothing else.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	others := []string{"notes.txt", "other.ringo.tmp", "step-000000007.ringo.tmp"} // another writer's, perhaps
	for _, name := range others {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("torn"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	s := small(0)
	s.Keep = 2
	for _, step := range []int64{10, 20, 30, 30, 5} {
		s.Header.Step = step
		save(t, dir, s)
	}
	want := append(slices.Clone(others), fileName(5), fileName(20), fileName(30)) // 5 was just saved
	slices.Sort(want)
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("the folder holds %v, want %v", got, want)
	}
	s.Header.Step = 31
	save(t, dir, s)
	if got := names(t, dir)[3:]; !slices.Equal(got, []string{fileName(30), fileName(31)}) {
		t.Errorf("the folder holds %v", got)
	}
}

// A damaged newest file is an error that names an older one that is whole, past
// others that are not, and is not passed over.
func TestDamagedNewest(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for _, step := range []int64{1, 2, 3, 4} {
		s := small(step)
		s.Keep = 0
		paths = append(paths, save(t, dir, s))
	}
	spoil := func(path string, edit func(b []byte) []byte) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, edit(b), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	flip := func(b []byte) []byte { b[len(b)-20] ^= 4; return b }
	cut := func(b []byte) []byte { return b[:len(b)-1] }
	spoil(paths[2], flip) // whole in length
	spoil(paths[3], flip)
	check := func(err error, whole string, says ...string) {
		t.Helper()
		var d *DamageError
		if !errors.As(err, &d) || d.Path != paths[3] || d.Whole != whole {
			t.Errorf("%+v, want %s to be whole", err, whole)
			return
		}
		for _, want := range append(says, paths[3], "offset") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not hold %q", err, want)
			}
		}
	}
	_, _, err := readAll(paths[3], small(4))
	check(err, paths[1], paths[1]+" is whole")
	spoil(paths[3], cut)
	_, err = Latest(dir)
	check(err, paths[1], "cut off", paths[1]+" is whole")
	spoil(paths[1], cut)
	if err := os.Remove(paths[0]); err != nil {
		t.Fatal(err)
	}
	_, err = Latest(dir)
	check(err, "", "no older complete checkpoint")
}

func TestSaveFaults(t *testing.T) {
	dir := t.TempDir()
	s := small(-1)
	s.Keep = -2
	s.Arrays = append(s.Arrays, Floats("params", nil), Bytes("", nil))
	_, err := Save(dir, s)
	for _, want := range []string{"step -1", "keep -2", `array "params" of 0 float32`, `array ""`, dir} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Save(filepath.Join(file, "sub"), small(3)); err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "step 3") {
		t.Errorf("a folder that cannot be: %v", err)
	}
	// A folder where the file should be: the rename fails, nothing is left over.
	if err := os.Mkdir(filepath.Join(dir, fileName(4)), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Save(dir, small(4)); err == nil || !strings.Contains(err.Error(), fileName(4)) {
		t.Errorf("a folder in the file's place: %v", err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"file", fileName(4)}) {
		t.Errorf("the folder holds %v", got)
	}
	big := small(5)
	big.Header.More = map[string]string{"big": strings.Repeat("x", maxHeader)}
	if _, err := Save(dir, big); err == nil || !strings.Contains(err.Error(), "the header has") {
		t.Errorf("a header too large: %v", err)
	}
}

func TestLoadFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "absent.ringo")
	if _, err := Load(path); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("a folder was loaded")
	}
}

// BenchmarkSave is a new file each time; with pruning, the time to remove the
// one before is counted, too.
func BenchmarkSave(b *testing.B) {
	const n = 25_000_000
	s := State{Arrays: []Array{Floats("params", make([]float32, n))}}
	for name, keep := range map[string]int{"new": 0, "prune": 1} {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			s.Keep = keep
			b.SetBytes(4 * n)
			for b.Loop() {
				s.Header.Step++
				path := save(b, dir, s)
				if keep == 0 {
					b.StopTimer()
					if err := os.Remove(path); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	const n = 25_000_000
	s := State{Arrays: []Array{Floats("params", make([]float32, n))}}
	path := save(b, b.TempDir(), s)
	b.SetBytes(4 * n)
	for b.Loop() {
		f, err := Load(path)
		if err != nil {
			b.Fatal(err)
		}
		if err := f.Read(s.Arrays...); err != nil {
			b.Fatal(err)
		}
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
