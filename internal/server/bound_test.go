package server

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/tiers"
	"github.com/ringo-ml/ringo/ps/schema"
)

// folderBytes is what the files of a folder have.
func folderBytes(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				n += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was just removed
		}
		return err
	})
	must(t, err)
	return n
}

// A small table that is trained for long takes bounded room: checkpoints follow by the log's length, without any time given. The
// replay after a kill is as short.
func TestLogIsBounded(t *testing.T) {
	leakcheck.Check(t)
	const floor, buffer, batch, dim = 1 << 20, 128 << 10, 512, 16
	sc := schema.Schema{Sparse: []schema.Sparse{{Name: "items", Dim: dim, Rule: schema.Rule{Name: "sgd", LR: 1}}}}
	ti, err := tiers.Open(tiers.Config{Deltas: true}, sc)
	must(t, err)
	dir := t.TempDir()
	config := engine.Config{Trainers: 1, Mode: engine.Async, Durability: engine.WAL, Dir: dir, LogFloor: floor, LogBuffer: buffer, Make: ti.Make}
	e, err := engine.Open(config, sc)
	must(t, err)
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		(&server{cfg: Config{Report: func(line string) { t.Error(line) }}}).checkpointLoop(ctx, e, time.Millisecond, cancel)
	}()
	keys, grads := make([]uint64, batch), make([]float32, batch*dim)
	for i := range keys {
		keys[i] = uint64(i)
	}
	most, pushed := int64(0), int64(0)
	for seq := uint64(1); pushed < 40*floor; seq++ {
		ticket, err := e.PushRows(0, seq, 0, seq, keys, grads)
		must(t, err)
		must(t, e.Durable(ticket))
		pushed += batch * (8 + 4*dim)
		if seq%16 == 0 { // a loaded machine may write checkpoints as slowly as it likes: until then come at most
			eventually(t, "a checkpoint to bound the log", func() bool { return e.Stats().LogPast < 2*floor })
			most = max(most, folderBytes(t, dir))
		}
	}
	cancel(nil)
	<-ended
	const between = 2*floor + 16*batch*(8+4*dim) + floor/8 // bytes between checkpoints, instead of the limit
	// The log goes back to the checkpoint before the newest, and while another one is written to the one before that. A segment is
	// kept for any record in it. Checkpoints are five times the table at most.
	const bound = 3*between + 2*max(floor/4, 2*buffer) + 5*batch*(12+4*dim) + 64<<10
	if most > bound {
		t.Errorf("a folder of %d bytes for a table of %d rows, after %d bytes were pushed: want %d at most", most, batch, pushed, bound)
	}
	if s := e.Stats(); s.Saved < 20 || s.LogMost != floor {
		t.Errorf("%d checkpoints, a limit of %d bytes", s.Saved, s.LogMost)
	}
	past := e.Stats().LogPast
	must(t, errors.Join(e.Close(), ti.Close()))
	ti, err = tiers.Open(tiers.Config{Deltas: true}, sc)
	must(t, err)
	config.Make = ti.Make
	e, err = engine.Open(config, sc)
	must(t, err)
	if got := e.Stats().LogPast; got < past || got > past+1000 || got > between {
		t.Errorf("a replay of %d bytes, %d were past the checkpoint", got, past)
	}
	must(t, errors.Join(e.Close(), ti.Close()))
}

// A table that is larger than the floor is itself the limit.
func TestLogMayBeAsLongAsTables(t *testing.T) {
	const dim, n, floor = 8, 2000, 64 << 10
	sc := schema.Schema{
		Sparse: []schema.Sparse{{Name: "items", Dim: dim, Rule: schema.Rule{Name: "adagrad", LR: 1}}},
		Dense:  []schema.Dense{{Name: "net", Len: 30_000, Rule: schema.Rule{Name: "adam", LR: 1}}},
	}
	e, err := engine.Open(engine.Config{Trainers: 1, Mode: engine.Async, Durability: engine.WAL, Dir: t.TempDir(), LogFloor: floor, LogBuffer: 256 << 10}, sc)
	must(t, err)
	defer e.Close()
	const dense = 3 * 4 * 30_000 // values and Adam's two moments
	if got := e.Stats().LogMost; got < dense || got > dense+floor {
		t.Errorf("a limit of %d bytes, want that of arrays of %d", got, dense)
	}
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = uint64(i)
	}
	_, err = e.PushRows(0, 1, 0, 1, keys, make([]float32, n*dim))
	must(t, err)
	if got := e.Stats().LogMost; got < dense+n*2*4*dim {
		t.Errorf("a limit of %d bytes, want that of %d rows more", got, n)
	}
	if e.LogDue() {
		t.Error("a checkpoint is due")
	}
	for seq := uint64(2); !e.LogDue(); seq++ {
		if e.Stats().LogPast > 2*e.Stats().LogMost {
			t.Fatal("no checkpoint is ever due")
		}
		_, err = e.PushRows(0, seq, 0, seq, keys, make([]float32, n*dim))
		must(t, err)
	}
	_, err = e.Checkpoint(t.Context())
	must(t, err)
	if past := e.Stats().LogPast; e.LogDue() || past > 1000 {
		t.Errorf("a checkpoint is due after one; %d bytes are past it", past)
	}
}

// long is an engine whose log is long now and then.
type long struct {
	full  chan struct{}
	due   atomic.Bool
	at    atomic.Pointer[time.Time]
	tried atomic.Int64
}

func (l *long) LogFull() <-chan struct{} { return l.full }
func (l *long) LogDue() bool             { return l.due.Load() }

func (l *long) SavedAt() time.Time {
	if at := l.at.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

func (l *long) Checkpoint(context.Context) (engine.Saved, error) {
	now := time.Now()
	l.due.Store(false)
	l.at.Store(&now)
	l.tried.Add(1)
	return engine.Saved{}, nil
}

// Time and the log's length call for checkpoints, whichever comes first.
func TestSaveByTimeAndLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &long{full: make(chan struct{})}
		var said strings.Builder
		s := &server{cfg: Config{SaveEvery: time.Hour, Report: func(line string) { said.WriteString(line) }}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.checkpointLoop(ctx, l, time.Second, func(err error) { t.Error(err) })
		}()
		saved := func(n int64, after time.Duration) {
			t.Helper()
			time.Sleep(after)
			if synctest.Wait(); l.tried.Load() != n {
				t.Fatalf("%d checkpoints, want %d", l.tried.Load(), n)
			}
		}
		saved(0, 59*time.Minute)
		saved(1, 2*time.Minute)
		l.full <- struct{}{} // in vain
		saved(1, time.Minute)
		l.due.Store(true)
		l.full <- struct{}{}
		saved(2, time.Second)
		saved(2, 59*time.Minute) // the hour begins anew
		saved(3, 2*time.Minute)
		cancel()
		<-ended
	})
}
