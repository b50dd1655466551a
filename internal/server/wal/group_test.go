package wal

import (
	"errors"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
)

// gated is a segment whose writes wait to be let through, and which fails when it
// is told to.
type gated struct {
	file
	mu     sync.Mutex
	gate   chan struct{} // nil lets all through
	writes int
	syncs  int
	fail   error // of the next write
	part   int   // what a failing write writes
	cut    error // of Truncate
}

func (g *gated) WriteAt(b []byte, off int64) (int, error) {
	if off > 0 && g.gate != nil {
		<-g.gate
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if off > 0 {
		g.writes++
	}
	if err := g.fail; err != nil {
		g.fail = nil
		n, _ := g.file.WriteAt(b[:min(g.part, len(b))], off)
		return n, err
	}
	return g.file.WriteAt(b, off)
}

func (g *gated) Sync() error {
	g.syncs++
	return g.file.Sync()
}

func (g *gated) Truncate(size int64) error {
	if g.cut != nil {
		return g.cut
	}
	return g.file.Truncate(size)
}

// gatedLog opens a new log over one gated segment.
func gatedLog(t *testing.T, dir string, c Config) (*Log, *gated) {
	t.Helper()
	g := &gated{}
	c.create = func(path string) (f file, err error) {
		g.file, err = createFile(path)
		return g, err
	}
	return mustOpen(t, dir, c), g
}

// While a group is on its way all other records gather, and share the next write
// and the next sync.
func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, g := gatedLog(t, t.TempDir(), Config{Sync: true})
		g.gate, g.syncs = make(chan struct{}), 0
		var done sync.WaitGroup
		var mu sync.Mutex
		answered := 0
		commit := func() {
			done.Go(func() {
				p, err := l.Append([]byte("record"))
				if err == nil {
					err = l.Wait(p)
				}
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				answered++
				mu.Unlock()
			})
		}
		commit()
		synctest.Wait() // the first one writes
		for range 49 {
			commit()
		}
		synctest.Wait() // the others have gathered
		if answered != 0 {
			t.Errorf("%d answers before anything was written", answered)
		}
		g.gate <- struct{}{}
		g.gate <- struct{}{}
		done.Wait()
		if s := l.Stats(); g.writes != 2 || g.syncs != 2 || s.Writes != 2 || s.Syncs != 2 || s.Safe != 50 || answered != 50 {
			t.Errorf("%d writes, %d syncs, %d answers: %+v, want 2, 2 and 50", g.writes, g.syncs, answered, s)
		}
		close(g.gate)
		mustClose(t, l)
	})
}

// When the disk is slow appenders wait for room in the buffer.
func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, c := t.TempDir(), Config{BufferBytes: small.BufferBytes}
		l, g := gatedLog(t, dir, c)
		g.gate = make(chan struct{})
		var done sync.WaitGroup
		var mu sync.Mutex
		appended := 0
		done.Go(func() {
			for n := uint64(1); n <= 40; n++ {
				if _, err := l.Append([]byte(text(n))); err != nil {
					t.Error(err)
				}
				mu.Lock()
				appended++
				mu.Unlock()
			}
		})
		synctest.Wait() // it writes the first buffer itself, and waits
		if appended == 0 || appended*recordHeader > c.BufferBytes {
			t.Errorf("%d records appended, a buffer has %d bytes", appended, c.BufferBytes)
		}
		close(g.gate)
		done.Wait()
		mustClose(t, l)
		wants(t, dir, c, 40)
	})
}

// A full disk loses nothing that was acknowledged, and the log, opened again when there is
// room, goes on from there.
func TestFullDisk(t *testing.T) {
	for part := 0; part < 100; part += 19 {
		dir := t.TempDir()
		l, g := gatedLog(t, dir, Config{Sync: true, BufferBytes: 500})
		fill(t, l, 6)
		g.fail, g.part = syscall.ENOSPC, part
		lost, err := l.Append(make([]byte, 60))
		must(t, err)
		must(t, l.Wait(LSN{Number: 6}))
		var w *WriteError
		for range 2 { // as often as one likes
			if err := l.Wait(lost); !errors.As(err, &w) || !errors.Is(err, syscall.ENOSPC) || !w.Cut || w.Safe != 6 || w.Last != 7 {
				t.Fatalf("a full disk: %v", err)
			}
		}
		if !strings.Contains(w.Error(), "records up to 6 are safe, later ones are not kept: make room on its disk, then start the server or the job again") {
			t.Error(w)
		}
		if _, err := l.Append(nil); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("appended to a log that has failed: %v", err)
		}
		must(t, l.Wait(LSN{Number: 6}))
		if err := l.Close(); !errors.As(err, &w) {
			t.Errorf("closed a full log: %v", err)
		}
		l = mustOpen(t, dir, Config{Sync: true, BufferBytes: 500})
		fill(t, l, 9)
		mustClose(t, l)
		wants(t, dir, Config{BufferBytes: 500}, 9)
	}
}

// Whatever else fails, fails for good; what was safe is there afterwards.
func TestFailsForGood(t *testing.T) {
	for name, inject := range map[string]func(g *gated){
		"write":            func(g *gated) { g.fail = syscall.EIO },
		"cutting off":      func(g *gated) { g.fail, g.cut = syscall.ENOSPC, syscall.EIO },
		"short, then full": func(g *gated) { g.fail, g.part, g.cut = syscall.ENOSPC, 30, syscall.EIO },
	} {
		dir := t.TempDir()
		l, g := gatedLog(t, dir, Config{})
		fill(t, l, 5)
		inject(g)
		p, err := l.Append([]byte(text(6)))
		must(t, err)
		err = l.Wait(p)
		var w *WriteError
		if !errors.As(err, &w) || w.Cut || !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "up to 5 are safe, later ones may not be") {
			t.Errorf("%s: %v", name, err)
		}
		if err := l.Close(); !errors.As(err, &w) {
			t.Errorf("%s: closing gave %v", name, err)
		}
		g.cut = nil
		l = mustOpen(t, dir, Config{})
		if last, err := numbers(t, l, 0); last != 5 || err != nil {
			t.Errorf("%s: replayed up to %d, %v", name, last, err)
		}
		mustClose(t, l)
	}
}

// A segment that cannot be made leaves the log as it was.
func TestFullDiskAtRotation(t *testing.T) {
	dir, full := t.TempDir(), false
	c := small
	c.create = func(path string) (file, error) {
		f, err := createFile(path)
		if err == nil && full {
			return &gated{file: f, fail: syscall.ENOSPC, part: 10}, nil
		}
		return f, err
	}
	l := mustOpen(t, dir, c)
	full = true
	n := uint64(0)
	var err error
	for ; err == nil; n++ {
		var p LSN
		if p, err = l.Append([]byte(text(n + 1))); err == nil {
			err = l.Wait(p)
		}
	}
	var w *WriteError
	if !errors.As(err, &w) || !w.Cut || w.Safe != n-1 {
		t.Fatal(err)
	}
	all, err := list(dir)
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v: want the first segment alone", all, err)
	}
	full = false
	if err := l.Close(); !errors.As(err, &w) {
		t.Errorf("closed a full log: %v", err)
	}
	l = mustOpen(t, dir, c)
	fill(t, l, 30)
	mustClose(t, l)
	wants(t, dir, small, 30)
}

// A sync that failed says nothing of what is on the disk.
func TestFailedSync(t *testing.T) {
	l, g := gatedLog(t, t.TempDir(), Config{Sync: true})
	g.file = brokenSync{g.file}
	p, err := l.Append([]byte("x"))
	must(t, err)
	var w *WriteError
	if err := l.Wait(p); !errors.As(err, &w) || w.Cut || !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
	if err := l.Close(); !errors.As(err, &w) {
		t.Error(err)
	}
}

type brokenSync struct{ file }

func (brokenSync) Sync() error { return io.ErrShortWrite }
