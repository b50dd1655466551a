package loadgen

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// job is servers of tables in this process.
type job struct {
	cfg    Config
	cancel context.CancelFunc
	ended  chan server.Stats
}

// serve starts servers for the clients of a configuration, which it completes.
func serve(t testing.TB, servers int, cfg Config, change func(*server.Config)) *job {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	j := &job{cfg: cfg, cancel: cancel, ended: make(chan server.Stats, servers)}
	j.cfg.Ticket, j.cfg.Version = transport.NewTicket(), "1"
	for i := range servers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		j.cfg.Servers = append(j.cfg.Servers, l.Addr().String())
		sc := server.Config{
			Listener: l, Ticket: j.cfg.Ticket, Version: "1", Index: i, Servers: servers, Trainers: max(1, cfg.Clients),
			Mode: engine.Async, Durability: engine.None,
		}
		if change != nil {
			change(&sc)
		}
		go func() {
			f, err := server.Run(ctx, sc)
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			j.ended <- f
		}()
	}
	t.Cleanup(cancel)
	return j
}

// rows waits for the servers' end and returns how many rows they had.
func (j *job) rows() (rows int64) {
	for range j.cfg.Servers {
		for _, t := range (<-j.ended).Tables.Tables {
			rows += t.Rows + t.StoredRows
		}
	}
	return rows
}

func tableOf(rule string, dim int) schema.Sparse {
	return schema.Sparse{Name: "bench", Dim: dim, Rule: schema.Rule{Name: rule, LR: 0.05}, Init: schema.Init{Name: "uniform", Value: 0.1}}
}

const short = 5 * time.Millisecond

// Whatever is asked of them, by however many, servers have the rows that the oracle
// has, and as many as there are keys.
func TestRowsAreRight(t *testing.T) {
	leakcheck.Check(t)
	const keys = 20_000 // several parts of the filling
	rules := optim.RowRules()
	if testing.Short() {
		rules = rules[:3]
	}
	for i, rule := range rules {
		clients, servers := 1+i%3, 1+i%2
		j := serve(t, servers, Config{Table: tableOf(rule, 3+i), Keys: keys, Clients: clients, Seed: uint64(i)}, nil)
		l, err := Dial(t.Context(), j.cfg)
		must(t, err)
		parts, last := 0, uint64(0)
		filled, err := l.Fill(t.Context(), func(rows uint64) error {
			if parts++; rows <= last {
				t.Errorf("%d rows after %d", rows, last)
			}
			last = rows
			return nil
		})
		must(t, err)
		if filled.Rows != keys || last != keys || parts != (keys+fillBatch-1)/fillBatch {
			t.Errorf("%s: filled %+v in %d parts up to %d", rule, filled, parts, last)
		}
		check := func(what string, least int) {
			t.Helper()
			if n, err := l.Check(t.Context()); err != nil || n < least {
				t.Errorf("%s, %d clients, %d servers: %s: %d rows checked: %v", rule, clients, servers, what, n, err)
			}
		}
		check("filling", watched)
		inserted := int64(0)
		for _, op := range []Op{Pull, Push, Both} {
			for k, w := range []Work{{Op: op, Batch: 100}, {Op: op, Batch: 1000, Dist: Dist{1.2}, Insert: 0.1, InFlight: 2}} {
				for _, measure := range []func(context.Context, Work, time.Duration) (Result, error){l.Stream, l.Single} {
					r, err := measure(t.Context(), w, short)
					must(t, err)
					checkResult(t, w, r, clients)
					inserted += r.Inserted
					if got := r.Inserted > 0; got != (k == 1) {
						t.Errorf("%s: %+v: %d keys are new", rule, w, r.Inserted)
					}
				}
				check(string(op), watched)
			}
		}
		if l.Keys() != uint64(keys+inserted) {
			t.Errorf("%s: %d keys, want %d", rule, l.Keys(), keys+inserted)
		}
		must(t, l.Leave(t.Context()))
		if got := j.rows(); got != keys+inserted {
			t.Errorf("%s: %d rows, want %d", rule, got, keys+inserted)
		}
	}
}

// checkResult checks what follows from the work.
func checkResult(t *testing.T, w Work, r Result, clients int) {
	t.Helper()
	if r.Rows != r.Batches*int64(w.Batch) || r.Batches < int64(clients) || r.Seconds <= 0 {
		t.Errorf("%+v: %+v", w, r)
	}
	if fresh := int64(w.Insert*float64(w.Batch)) * r.Batches; r.Inserted != fresh {
		t.Errorf("%+v: %d of %d rows are new, want %d", w, r.Inserted, r.Rows, fresh)
	}
	for i, us := range r.MicrosecondsEachSorted {
		if us <= 0 || i > 0 && us < r.MicrosecondsEachSorted[i-1] {
			t.Fatalf("%+v: %v", w, r.MicrosecondsEachSorted)
		}
	}
	if n := int64(len(r.MicrosecondsEachSorted)); n != 0 && n != r.Batches {
		t.Errorf("%+v: %d of %d batches are timed", w, n, r.Batches)
	}
}

// What travels is keys and rows, and little besides.
func TestBytes(t *testing.T) {
	j := serve(t, 1, Config{Table: tableOf("sgd", 16), Keys: 20_000}, nil)
	l, err := Dial(t.Context(), j.cfg)
	must(t, err)
	_, err = l.Fill(t.Context(), nil)
	must(t, err)
	for op, want := range map[Op][2]float64{Pull: {8, 64}, Push: {72, 0}, Both: {80, 64}} {
		r, err := l.Stream(t.Context(), Work{Op: op, Batch: 2000}, short)
		must(t, err)
		for i, got := range []int64{r.SentBytes, r.ReadBytes} {
			// One more row for each client is asked for at the end.
			if each := float64(got) / float64(r.Rows); each < want[i] || each > want[i]+0.3 {
				t.Errorf("%s: %.3f bytes a row, want %v and some heads", op, each, want[i])
			}
		}
	}
	must(t, l.Leave(t.Context()))
}

// Rows beyond memory are right, too.
func TestRowsBelowMemory(t *testing.T) {
	const keys = 30_000
	j := serve(t, 1, Config{Table: tableOf("adagrad", 16), Keys: keys}, func(c *server.Config) {
		c.Dir, c.MemoryBytes = t.TempDir(), 2<<20
	})
	l, err := Dial(t.Context(), j.cfg)
	must(t, err)
	_, err = l.Fill(t.Context(), nil)
	must(t, err)
	_, err = l.Stream(t.Context(), Work{Op: Both, Dist: Dist{0.99}, Batch: 500, Insert: 0.02}, short)
	must(t, err)
	if _, err := l.Check(t.Context()); err != nil {
		t.Error(err)
	}
	keysNow := l.Keys()
	must(t, l.Leave(t.Context()))
	f := <-j.ended
	s := f.Tables.Tables[0]
	// Rows that are just leaving memory count in both tiers.
	if twice := s.Rows + s.StoredRows - int64(keysNow); twice < 0 || twice > s.Rows || s.StoredRows == 0 || s.Missed == 0 || s.Missed >= s.Pulled+s.Pushed {
		t.Errorf("%+v of %d keys", s, keysNow)
	}
}

// A push that the oracle does not know of shows, and so does one that is lost.
func TestWrongRowsAreFound(t *testing.T) {
	j := serve(t, 1, Config{Table: tableOf("adagrad", 4), Keys: 2000}, nil)
	l, err := Dial(t.Context(), j.cfg)
	must(t, err)
	_, err = l.Fill(t.Context(), nil)
	must(t, err)
	tr := l.clients[0]
	must(t, tr.session.PushRows(0, step, []uint64{Key(5)}, tr.grad(0)))
	_, err = l.Check(t.Context())
	if !errors.Is(err, ErrWrong) || !strings.Contains(err.Error(), "1 of ") {
		t.Errorf("a push behind its back: %v", err)
	}
	l.oracle.push(l.oracle.slots[Key(5)], tr.grad(0))
	if _, err = l.Check(t.Context()); err != nil {
		t.Errorf("it knows now: %v", err)
	}
	l.oracle.push(l.oracle.slots[Key(6)], tr.grad(0))
	if _, err = l.Check(t.Context()); !errors.Is(err, ErrWrong) {
		t.Errorf("a push that never came: %v", err)
	}
	must(t, l.Leave(t.Context()))
}

// Who is told to end does so in the middle, and a fault of who looks on ends the filling.
func TestEnds(t *testing.T) {
	leakcheck.Check(t)
	j := serve(t, 1, Config{Table: tableOf("sgd", 4), Keys: 100_000, Clients: 2}, nil)
	l, err := Dial(t.Context(), j.cfg)
	must(t, err)
	stop := errors.New("seen enough")
	if _, err := l.Fill(t.Context(), func(uint64) error { return stop }); err != stop {
		t.Errorf("filling: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(short, func() { cancel(stop) })
	if _, err := l.Stream(ctx, Work{Op: Both, Batch: 10}, time.Hour); err != stop {
		t.Errorf("%v", err)
	}
	if _, err := l.Check(ctx); err == nil {
		t.Error("checked after the end")
	}
	l.Close()
	j.cancel()
	<-j.ended
}

func TestRefusals(t *testing.T) {
	bad := Config{Clients: -1, Table: tableOf("none", 0)}
	if _, err := Dial(t.Context(), bad); err == nil {
		t.Error("nothing is wrong")
	} else {
		for _, word := range []string{"no server", "0 keys", "-1 clients", `"none" is not known`, "rows of 0 weights"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q is not in: %v", word, err)
			}
		}
	}
	for want, w := range map[string]Work{
		`operation "get"`: {Op: "get", Batch: 1}, "batches of 0": {Op: Pull}, "batches of 126": {Op: Pull, Batch: 126},
		"a share of 1": {Op: Pull, Batch: 1, Insert: 1}, "-1 pulls": {Op: Pull, Batch: 1, InFlight: -1}, "a skew of 9": {Op: Pull, Batch: 1, Dist: Dist{9}},
		"hardly ever drawn": {Op: Pull, Batch: 100, Dist: Dist{3}},
	} {
		if err := w.Validate(1000); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want it to say %q", w, err, want)
		}
	}
}
