package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/shard"
	"github.com/ringo-ml/ringo/ps/offline"
	"github.com/ringo-ml/ringo/transport"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually polls until something is so, for long: others use the machine, too.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain for " + what)
		}
	}
}

// A server that was killed after its time to save saves when it begins again, so that the next one replays
// less, however often it is killed. What its log alone had is then no other job's to miss.
func TestSavesOverRestarts(t *testing.T) {
	leakcheck.Check(t)
	ticket, dir := transport.NewTicket(), t.TempDir()
	hourly := func(dir string) func(c *Config) {
		return func(c *Config) { c.Durability, c.Dir, c.SaveEvery = engine.WAL, dir, time.Hour }
	}
	r := run(t, ticket, hourly(dir))
	c := r.dial(t, ticket)
	must(t, c.Session(0).SetDense(0, make([]float32, 5)))
	for step := uint64(1); step < 5; step++ {
		push(t, c, step)
	}
	killed := t.TempDir() // what a kill would leave
	must(t, os.CopyFS(killed, os.DirFS(dir)))
	must(t, errors.Join(c.Leave(context.Background()), <-r.end))
	if _, err := offline.Begin(killed); err == nil || !strings.Contains(err.Error(), "records ahead") {
		t.Errorf("got %v", err)
	}
	newest := func() uint64 {
		j, err := offline.Open(killed)
		if err != nil {
			return 0 // an older one is just removed
		}
		return j.Servers[0].Chain[len(j.Servers[0].Chain)-1].Number
	}
	if n := newest(); n != 1 {
		t.Fatalf("checkpoint %d before the kill", n)
	}
	for want := uint64(2); want <= 4; want++ { // and again, without a step between
		past := time.Now().Add(-2 * time.Hour)
		found, err := filepath.Glob(filepath.Join(killed, "server-0", "checkpoints", "*", "MANIFEST"))
		must(t, err)
		for _, path := range found {
			must(t, os.Chtimes(path, past, past))
		}
		again := run(t, ticket, hourly(killed))
		c := again.dial(t, ticket)
		eventually(t, "a checkpoint", func() bool { return newest() == want })
		if got := row(t, c, 5); got[0] != -4 {
			t.Errorf("row 7 is %v, want -4", got)
		}
		var next string
		eventually(t, "a copy", func() bool { // not while an older checkpoint is removed
			next = t.TempDir()
			err := os.CopyFS(next, os.DirFS(killed))
			if !errors.Is(err, fs.ErrNotExist) {
				must(t, err)
			}
			return err == nil
		})
		again.stop()
		<-again.end
		_ = c.Close()
		killed = next
	}
	j, err := offline.Begin(killed)
	must(t, err)
	rows := 0
	must(t, j.Each(context.Background(), 0, func(keys []uint64, weights []float32) error {
		if rows += len(keys); keys[0] != 7 || weights[0] != -4 {
			t.Errorf("key %d has %v", keys[0], weights)
		}
		return nil
	}))
	if rows != 1 {
		t.Errorf("%d rows", rows)
	}
}

// table are the statistics of the table.
func (r *running) table(t *testing.T) map[string]any {
	t.Helper()
	_, out := r.ask(t, "GET", "/stats")
	return out["tables"].(map[string]any)["tables"].([]any)[0].(map[string]any)
}

// savedRows is how many rows the newest checkpoint has, -1 where there is none.
func savedRows(dir string) int {
	j, err := offline.Open(dir)
	if err != nil {
		return -1
	}
	rows := 0
	if err := j.Each(context.Background(), 0, func(keys []uint64, _ []float32) error { rows += len(keys); return nil }); err != nil {
		return -1
	}
	return rows
}

// Keys that are not admitted have no row; rows that nobody has seen for days are deleted, from checkpoints
// too.
func TestRowsComeAndGo(t *testing.T) {
	leakcheck.Check(t)
	ticket, dir := transport.NewTicket(), t.TempDir()
	r := run(t, ticket, func(c *Config) {
		c.Durability, c.Dir, c.Admission, c.DeleteAfter = engine.Checkpoint, dir, shard.Admission{Count: 2}, 1
	})
	c := r.dial(t, ticket)
	must(t, c.Session(0).SetDense(0, make([]float32, 5)))
	push(t, c, 1)
	if f := r.table(t); f["rows"] != 0.0 || f["denied_keys"] != 1.0 {
		t.Errorf("a row that nobody has pulled: %v", f)
	}
	for i, want := range []float64{0, 1} {
		if got := row(t, c, 2); got[0] != 0 || r.table(t)["rows"] != want {
			t.Errorf("pull %d: the row is %v, %v", i, got, r.table(t))
		}
	}
	push(t, c, 2)
	if got := row(t, c, 3); got[0] != -1 {
		t.Errorf("the row is %v after a push", got)
	}
	if _, out := r.ask(t, "POST", "/save"); out["number"] == nil || savedRows(dir) != 1 {
		t.Errorf("%v with %d rows", out, savedRows(dir))
	}
	for day, deleted := range []float64{0, 1, 0} {
		if _, out := r.ask(t, "POST", "/shrink"); out["deleted_rows"] != deleted || savedRows(dir) != max(0, 1-day) {
			t.Errorf("day %d: %v, and %d rows saved", day, out, savedRows(dir))
		}
	}
	if got := row(t, c, 3); got[0] != 0 {
		t.Errorf("a row that was deleted is %v", got)
	}
	must(t, errors.Join(c.Leave(context.Background()), <-r.end))
}

// Days pass by themselves.
func TestShrinkEvery(t *testing.T) {
	leakcheck.Check(t)
	ticket, dir := transport.NewTicket(), t.TempDir()
	var mu sync.Mutex
	said := ""
	r := run(t, ticket, func(c *Config) {
		c.Durability, c.Dir, c.DeleteAfter, c.ShrinkEvery = engine.Checkpoint, dir, 1, 20*time.Millisecond
		c.Report = func(line string) { mu.Lock(); defer mu.Unlock(); said += line + "\n" }
	})
	c := r.dial(t, ticket)
	must(t, c.Session(0).SetDense(0, make([]float32, 5)))
	push(t, c, 1)
	eventually(t, "the row's end", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(said, "server 0: a day has passed, rows deleted: 1\n")
	})
	eventually(t, "a checkpoint without it", func() bool { return savedRows(dir) == 0 })
	must(t, errors.Join(c.Leave(context.Background()), <-r.end))
}

// What a server is to begin with is looked at before anybody comes.
func TestFromFaults(t *testing.T) {
	leakcheck.Check(t)
	dir := t.TempDir()
	for want, change := range map[string]func(c *Config){
		"no such file":            func(c *Config) { c.From = filepath.Join(dir, "none") },
		"has no folder server-0":  func(c *Config) { c.From = dir },
		"needs a separate folder": func(c *Config) { c.From, c.Dir, c.Durability = dir, dir+"/", engine.WAL },
		"shrink-every -1ns":       func(c *Config) { c.ShrinkEvery = -1 },
		"admission after 16":      func(c *Config) { c.Admission.Count = 16 },
	} {
		r := run(t, transport.NewTicket(), change)
		if err := <-r.end; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

// saves are what an engine that saves comes to, one after the other.
type saves struct {
	faults []error
	at     time.Time
	tried  int
}

func (s *saves) SavedAt() time.Time       { return s.at }
func (s *saves) LogFull() <-chan struct{} { return nil }
func (s *saves) LogDue() bool             { return false }

func (s *saves) Checkpoint(context.Context) (engine.Saved, error) {
	if s.tried++; s.tried <= len(s.faults) && s.faults[s.tried-1] != nil {
		return engine.Saved{}, s.faults[s.tried-1]
	}
	s.at = time.Now()
	return engine.Saved{}, nil
}

// A full disk puts a checkpoint off, and is told; another fault ends the server.
func TestFullDisk(t *testing.T) {
	full := fmt.Errorf("dense-0: %w", syscall.EDQUOT)
	e := &saves{faults: []error{nil, full, full, nil, full, nil, os.ErrPermission}}
	var said []string
	s := &server{cfg: Config{SaveEvery: time.Microsecond, Report: func(line string) { said = append(said, line) }}}
	var ended error
	s.checkpointLoop(context.Background(), e, time.Millisecond, func(cause error) { ended = cause })
	if e.tried != 7 || len(said) != 3 || !errors.Is(ended, os.ErrPermission) {
		t.Errorf("%d trials, %v, %q", e.tried, ended, said)
	}
	for _, line := range said {
		if !strings.Contains(line, "server 0: there is no room for a checkpoint: dense-0: ") || !strings.HasSuffix(line, "make some, it tries again every 1ms") {
			t.Errorf("said %q", line)
		}
	}
}

// A server whose disk is full at its end waits for room, and says so; in vain it says what is lost.
func TestFullAtTheEnd(t *testing.T) {
	full := fmt.Errorf("dense-0: %w", syscall.ENOSPC)
	for _, c := range []struct {
		wait   time.Duration
		faults []error // of the trials; then one succeeds
		trials int
		ok     bool
	}{
		{0, []error{full}, 1, false}, {0, nil, 1, true}, {time.Minute, []error{full, full}, 3, true},
		{time.Minute, []error{full, os.ErrPermission}, 2, false}, {time.Nanosecond, []error{full, full, full, full}, 1, false},
	} {
		var said []string
		s := &server{cfg: Config{FullWait: c.wait, Report: func(line string) { said = append(said, line) }}}
		trials := 0
		err := s.saveLast(context.Background(), time.Millisecond, func(context.Context) error {
			if trials++; trials <= len(c.faults) {
				return c.faults[trials-1]
			}
			return nil
		})
		if trials != c.trials || (err == nil) != c.ok || len(said) != trials-1 {
			t.Errorf("%+v: %d trials, %v, %q", c, trials, err, said)
		}
		if err != nil && !strings.Contains(err.Error(), "its last checkpoint could not be written: ") {
			t.Error(err)
		}
	}
}

// An order of the job's trainers waits for room, too, and ends with them.
func TestFullAtAnOrder(t *testing.T) {
	full := fmt.Errorf("dense-0: %w", syscall.ENOSPC)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var said []string
	s := &server{cfg: Config{FullWait: time.Minute, Report: func(line string) { said = append(said, line) }}}
	for _, c := range []struct {
		faults int
		cancel bool
		trials int
		want   error
	}{{3, false, 4, nil}, {1 << 30, true, 2, full}} {
		said = nil
		trials := 0
		err := s.retryWhileDiskFull(ctx, time.Millisecond, "its part", func(context.Context) error {
			if trials++; trials == 2 && c.cancel {
				cancel()
			}
			if trials <= c.faults {
				return full
			}
			return nil
		})
		if trials != c.trials || !errors.Is(err, c.want) || len(said) != trials-1 || !strings.Contains(said[0], "no room for its part: dense-0: ") {
			t.Errorf("%+v: %d trials, %v, %q", c, trials, err, said)
		}
	}
}
