package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/dirlock"
)

// A folder is made, or refused, before anything is trained.
func TestPrepare(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "deep")
	for range 2 {
		if err := Prepare(dir, true); err != nil {
			t.Fatal(err)
		}
	}
	if left := names(t, dir); !slices.Equal(left, []string{"LOCK"}) {
		t.Errorf("it left %v", left)
	}
	save(t, dir, small(7))
	if err := Prepare(dir, false); err != nil {
		t.Error(err)
	}
	err := Prepare(dir, true)
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "the last one in step-000000007.ringo") {
		t.Errorf("a folder of another run: %v", err)
	}
	file := filepath.Join(dir, "step-000000007.ringo")
	for _, place := range []string{file, filepath.Join(file, "below")} {
		if err := Prepare(place, false); err == nil || !strings.Contains(err.Error(), "preparing "+place) {
			t.Errorf("%s: %v", place, err)
		}
	}
}

// A folder has one holder, who is named to others before they are told what else is wrong there.
func TestTake(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, small(7))
	h, warning, err := Take(dir, false)
	if err != nil || warning != "" {
		t.Fatalf("%q, %v", warning, err)
	}
	for _, fresh := range []bool{true, false} {
		err := Prepare(dir, fresh)
		if !errors.Is(err, ErrHeld) {
			t.Fatalf("a second holder: %v", err)
		}
		host, _ := os.Hostname()
		for _, want := range []string{"another job saves to " + dir, fmt.Sprintf("process %d on host %s since 20", os.Getpid(), host), os.Args[0], "choose another folder"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in %v", want, err)
			}
		}
	}
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(dir, false); err != nil {
		t.Errorf("after its release: %v", err)
	}
	if err := (*Hold)(nil).Release(); err != nil {
		t.Error(err)
	}
}

// Whoever takes a folder removes what killed writers left: those of this host, whom the lock keeps out, and others that
// have not been touched for long.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	f, err := dirlock.Create(PathOf(dir, 3))
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Base(f.Name())
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	far := fileName(4) + ".00000000" + own[len(own)-12:]
	for _, name := range []string{far, "old-" + far, fileName(5) + ".tmp", fileName(6) + ".tmp", "other.ringo.tmp", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("torn"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-2 * leftAlone)
	gone := fileName(7) + ".00000000" + own[len(own)-12:]
	if err := errors.Join(os.Rename(filepath.Join(dir, "old-"+far), filepath.Join(dir, gone)), os.Chtimes(filepath.Join(dir, gone), long, long), os.Chtimes(filepath.Join(dir, fileName(6)+".tmp"), long, long)); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(dir, true); err != nil {
		t.Fatal(err)
	}
	want := []string{"LOCK", "notes.txt", "other.ringo.tmp", far, fileName(5) + ".tmp"}
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("the folder holds %v, want %v", got, want)
	}
}

// Two that save the same step at once, without a lock between them as on a network file system, are not in
// each other's way.
func TestTwoWriters(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		all.Go(func() {
			for step := range int64(20) {
				s := small(step)
				s.Keep = 0
				_, err := Save(dir, s)
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); len(got) != 20 {
		t.Errorf("the folder holds %v", got)
	}
	for step := range int64(20) {
		if _, _, err := readAll(PathOf(dir, step), small(step)); err != nil {
			t.Error(err)
		}
	}
}

// smallDisk is a file on a disk that has room for so many bytes.
type smallDisk struct {
	*os.File
	room int
}

func (d *smallDisk) Write(b []byte) (int, error) {
	if len(b) > d.room {
		return 0, syscall.ENOSPC
	}
	d.room -= len(b)
	return d.File.Write(b)
}

// Where the disk is full what passes goes by all the same, once and to its end, and nothing is left.
func TestFullDisk(t *testing.T) {
	const n = 3*PassingPart + 5
	for _, c := range []struct {
		room  int
		where string
		open  error
	}{{0, "the header", nil}, {1000, `array "params"`, nil}, {PassingPart * 6, `array "far" of`, nil}, {0, "the header", syscall.EDQUOT}} {
		dir, passed := t.TempDir(), 0
		s := State{Header: Header{Step: 9}, Arrays: []Array{Floats("params", make([]float32, n/3)), Passing("far", n, func(part []float32) error {
			passed += len(part)
			return nil
		})}}
		s.Create = func(path string) (WriteFile, error) {
			if c.open != nil {
				return nil, c.open
			}
			f, err := dirlock.Create(path)
			return &smallDisk{f, c.room}, err
		}
		_, err := Save(dir, s)
		if !dirlock.Full(err) || !strings.Contains(err.Error(), "writing "+c.where) || !strings.Contains(err.Error(), "saving step 9 in "+dir) || !strings.Contains(err.Error(), "the file needs ") {
			t.Errorf("room for %d bytes: %v", c.room, err)
		}
		if passed != n || len(names(t, dir)) != 0 {
			t.Errorf("room for %d bytes: %d of %d values went by, and %v is left", c.room, passed, n, names(t, dir))
		}
		lost := errors.New("lost")
		s.Arrays[1] = Passing("far", n, func([]float32) error { return lost })
		if _, err := Save(dir, s); !errors.Is(err, lost) {
			t.Errorf("who passes fails: %v", err)
		}
	}
}
