package engine

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/ps/schema"
)

func TestSessions(t *testing.T) {
	e := open(t, Config{Trainers: 2, Mode: Async, Durability: None}, sparseOnly())
	push := func(session int, seq, step uint64) error {
		_, err := e.PushRows(session, seq, 0, step, []uint64{5}, []float32{1, 2})
		return err
	}
	for _, seq := range []uint64{1, 1, 2, 1, 2, 3} {
		must(t, push(0, seq, 1))
	}
	must(t, push(1, 1, 1))
	var gap *gapError
	if err := push(0, 5, 1); !errors.As(err, &gap) || *gap != (gapError{0, 5, 3}) {
		t.Errorf("a change is missing: %v", err)
	}
	got := make([]float32, 2)
	must(t, e.PullRows(anyPull, 0, []uint64{5}, got))
	if got[0] != -4 || got[1] != -8 {
		t.Errorf("the row is %v", got)
	}
	if e.Last(0) != 3 || e.Last(1) != 1 {
		t.Errorf("last changes %d and %d", e.Last(0), e.Last(1))
	}
	if last, err := e.Join(0, 2, 0); err != nil || last != 3 {
		t.Errorf("Join: %d %v", last, err)
	}
	if _, err := e.Join(0, 5, 0); err == nil || !strings.Contains(err.Error(), "acknowledged changes are lost") {
		t.Errorf("Join with a change missing: %v", err)
	}
	if _, err := e.Leave(0, 4); err != nil {
		t.Error(err)
	}
	if err := push(0, 5, 2); !errors.Is(err, ErrLeft) {
		t.Errorf("a push after leaving: %v", err)
	}
	if err := push(0, 4, 2); err != nil {
		t.Errorf("a change that was taken before leaving, once more: %v", err)
	}
}

// What does not fit is refused, changes nothing, and is not taken: the next one has its
// number.
func TestRefused(t *testing.T) {
	for _, mode := range []Mode{Async, BSP} {
		s := whole(2)
		e := open(t, Config{Trainers: 2, Index: 1, Servers: 2, Mode: mode, Durability: WAL, Dir: t.TempDir(), LogBuffer: 4096}, s)
		c := newClient(t, e, 0)
		c.begin([][]float32{make([]float32, 40)})
		c.clock(-1)
		seq, two := c.seq+1, []float32{1, 1}
		refused := func(what string, want string, call func() error) {
			t.Helper()
			if err := call(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %s: %v", mode, what, err)
			}
		}
		rowsCall := func(session int, seq uint64, table int, step uint64, keys []uint64, grads []float32) func() error {
			return func() error {
				_, err := e.PushRows(session, seq, table, step, keys, grads)
				return err
			}
		}
		denseCall := func(array, lo int, values []float32) func() error {
			return func() error {
				_, err := e.PushDense(0, seq, array, 2, lo, values)
				return err
			}
		}
		refused("session", "session 2", rowsCall(2, 1, 0, 1, []uint64{1}, two))
		refused("table", "table 1 of 1", rowsCall(0, seq, 1, 2, []uint64{1}, two))
		refused("values", "3 values for 1 rows of 2", rowsCall(0, seq, 0, 2, []uint64{1}, make([]float32, 3)))
		refused("step", "want step 2", rowsCall(0, seq, 0, 1, []uint64{1}, two))
		refused("twice", rows.ErrDuplicate.Error(), rowsCall(0, seq, 0, 2, []uint64{1, 1}, make([]float32, 4)))
		refused("large", "the log takes", rowsCall(0, seq, 0, 2, make([]uint64, 500), make([]float32, 1000)))
		refused("array", "array 1 of 1", denseCall(1, 32, two))
		refused("other server's values", "this server holds 16 to 40", denseCall(0, 0, two))
		refused("beyond the end", "this server holds", denseCall(0, 39, two))
		refused("negative", "values from", denseCall(0, -1, two))
		refused("rate", "learning rate NaN", func() error { _, err := e.Clock(0, seq, 2, math.NaN()); return err })
		refused("clock", "want step 2", func() error { _, err := e.Clock(0, seq, 1, -1); return err })
		refused("pull", "table 3", func() error { return e.PullRows(anyPull, 3, []uint64{1}, two) })
		refused("pull array", "array 3", func() error { return e.PullDense(3, 0, two) })
		refused("pull values", "this server holds", func() error { return e.PullDense(0, 0, two) })
		refused("join", "joins with change 0", func() error { _, err := e.Join(0, 0, 0); return err })
		c.rows(0, []uint64{1}, two)
		if e.Err() != nil || c.seq != seq {
			t.Errorf("%s: after what was refused: %v", mode, e.Err())
		}
	}
}

// A peek leaves no trace, and sees what a pull would.
func TestPeek(t *testing.T) {
	s := mixed()
	s.Dense = nil
	e := open(t, Config{Trainers: 1, Mode: Async, Durability: None}, s)
	cl := newClient(t, e, 0)
	cl.rows(0, []uint64{5}, make([]float32, 16))
	keys := []uint64{5, 6, 5, 7}
	peeked, pulled := make([]float32, 64), make([]float32, 64)
	must(t, e.PeekRows(0, keys, peeked))
	if n := e.Stats().Tables[0].Rows; n != 1 {
		t.Errorf("a peek left %d rows", n)
	}
	must(t, e.PullRows(anyPull, 0, keys, pulled))
	if n := e.Stats().Tables[0].Rows; n != 3 || !same(peeked, pulled) || peeked[0] == peeked[16] {
		t.Errorf("%d rows: peeked %v, pulled %v", n, peeked[:20], pulled[:20])
	}
	if err := e.PeekRows(2, keys, peeked); err == nil {
		t.Error("a table that is not there was peeked at")
	}
}

func TestConfigFaultsTogether(t *testing.T) {
	_, err := Open(Config{Index: 3, Servers: 2, Trainers: 0, Sessions: 2000, Mode: "both", Staleness: -1, Durability: "raid", Keep: -1, WaitLimit: -1, MaxRows: -1, LogBuffer: 3}, schema.Schema{})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"server 3 of 2", "0 trainers", `sync "both"`, "ps.staleness -1", `ps.durability "raid"`, "ps.dir is missing", "-1 checkpoints", "wait limit", "-1 rows", "buffer of 3 bytes", "nothing to serve"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not reported in:\n%v", want, err)
		}
	}
}

// A batch is pushed and pulled without garbage.
func TestNoGarbage(t *testing.T) {
	if raceOn {
		t.Skip("the race detector allocates")
	}
	for _, c := range []Config{{Mode: Async, Durability: None}, {Mode: Async, Durability: WAL}, {Mode: BSP, Durability: WAL}, {Mode: SSP, Durability: None}} {
		if c.Durability == WAL {
			c.Dir = t.TempDir()
		}
		c.Trainers = 1
		s := whole(16)
		e := open(t, c, s)
		cl := newClient(t, e, 0)
		cl.begin([][]float32{make([]float32, 40)})
		const n = 3000
		keys, values := make([]uint64, n), make([]float32, n*16)
		for i := range keys {
			keys[i] = uint64(i) * 77
		}
		seq, step := cl.seq, uint64(0)
		run := func() {
			step++
			_, err := e.PushRows(0, seq+1, 0, step, keys, values)
			must(t, err)
			_, err = e.PushDense(0, seq+2, 0, step, 0, values[:40])
			must(t, err)
			ticket, err := e.Clock(0, seq+3, step, -1)
			must(t, err)
			seq += 3
			must(t, e.Durable(ticket))
			must(t, e.Await(context.Background(), 0, step+1))
			must(t, e.PullRows(anyPull, 0, keys, values))
			must(t, e.PeekRows(0, keys, values))
			must(t, e.PullDense(0, 0, values[:40]))
			clear(values)
		}
		for range 5 {
			run()
		}
		if got := testing.AllocsPerRun(20, run); got > 0 {
			t.Errorf("%s %s: %v allocations a step", c.Mode, c.Durability, got)
		}
	}
}
