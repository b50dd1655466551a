package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/service"
	"github.com/ringo-ml/ringo/internal/server/service/fake"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

// Whatever is pushed is what is pulled, over any number of servers and sessions, in
// messages of any length, merged or not: a map is the twin.
func TestTwin(t *testing.T) {
	leakcheck.Check(t)
	for _, c := range []struct {
		servers, sessions, maxKeys, maxValues int
		merge                                 bool
	}{
		{1, 1, 0, 0, false}, {1, 1, 7, 0, true}, {2, 2, 0, 300, false}, {3, 1, 5, 0, true}, {5, 3, 0, 256, true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			j := newJob(t, c.servers, 1, c.sessions, nil, func(s *service.Config) { s.MaxKeys, s.MaxValues = c.maxKeys, c.maxValues })
			cl := j.dial(0, func(cfg *Config) { cfg.Merge, cfg.Window, cfg.Pulls = c.merge, 3, 2 })
			twin(t, j, cl, c.merge)
			must(t, cl.Leave(context.Background()))
			for _, r := range j.running {
				<-r.ended
				must(t, r.err)
			}
		})
	}
}

func twin(t *testing.T, j *job, cl *Client, merge bool) {
	r := rand.New(rand.NewPCG(3, 4))
	rows := [2]map[uint64][]float32{{}, {}}
	arrays := [2][]float32{make([]float32, 1000), make([]float32, 7)}
	first := make([]float32, 1000)
	for i := range first {
		first[i] = float32(i)
	}
	copy(arrays[0], first)
	must(t, cl.Session(0).SetDense(0, first))
	must(t, cl.Flush(context.Background()))
	for step := uint64(1); step <= 40; step++ {
		l := cl.Session(r.IntN(j.sessions))
		table := r.IntN(2)
		dim := testSchema().Sparse[table].Dim
		keys := drawKeys(r, []int{0, 1, 2, 17, 60}[r.IntN(5)], merge)
		grads := draw(r, len(keys)*dim)
		must(t, l.PushRows(table, step, keys, grads))
		for i, key := range keys {
			row := rows[table][key]
			if row == nil {
				row = make([]float32, dim)
				rows[table][key] = row
			}
			for k := range row {
				row[k] += grads[i*dim+k]
			}
		}
		array := r.IntN(2)
		lo := r.IntN(len(arrays[array]))
		values := draw(r, r.IntN(len(arrays[array])-lo+1))
		must(t, l.PushDense(array, step, lo, values))
		for i, v := range values {
			arrays[array][lo+i] += v
		}
		must(t, l.Clock(step, float64(step)))

		want := drawKeys(r, r.IntN(50), true) // a pull may always hold a key twice
		got := make([]float32, len(want)*dim)
		read, peeked := l.PullRows, j.peeked()
		if step%2 == 0 {
			read = l.PeekRows
		}
		p, err := read(table, step, want, got)
		must(t, err)
		dense := make([]float32, len(arrays[array])-lo)
		q, err := l.PullDense(array, step, lo, dense)
		must(t, err)
		must(t, q.Wait())
		told, err := p.WaitClocked()
		must(t, err)
		if one := l.c.cfg.Sessions == 1; step%2 == 1 && len(want) > 0 && (told > step || one && told != step) {
			t.Fatalf("step %d: rows of step %d", step, told)
		}
		if peeks := j.peeked() > peeked; peeks != (step%2 == 0 && len(want) > 0) {
			t.Fatalf("step %d: rows were peeked at: %v", step, peeks)
		}
		if !slices.Equal(dense, arrays[array][lo:]) {
			t.Fatalf("step %d: array %d from %d on differs", step, array, lo)
		}
		for i, key := range want {
			row := rows[table][key]
			if row == nil {
				row = make([]float32, dim)
			}
			if !slices.Equal(got[i*dim:][:dim], row) {
				t.Fatalf("step %d: key %d is %v, want %v", step, key, got[i*dim:][:dim], row)
			}
		}
		must(t, cl.Flush(context.Background())) // the next session may be another one
	}
	for table := range rows {
		n := 0
		for _, e := range j.engines {
			n += e.Rows(table)
		}
		if n != len(rows[table]) {
			t.Errorf("table %d has %d rows, want %d", table, n, len(rows[table]))
		}
		for key := range maps.Keys(rows[table]) {
			if got := j.row(table, key); !slices.Equal(got, rows[table][key]) {
				t.Errorf("key %d is %v, want %v", key, got, rows[table][key])
			}
		}
	}
	for i, want := range arrays {
		if !slices.Equal(j.array(i), want) {
			t.Errorf("array %d differs", i)
		}
	}
}

// drawKeys draws keys of a few, the extremes among them, each once unless it may
// repeat.
func drawKeys(r *rand.Rand, n int, repeat bool) []uint64 {
	pool := []uint64{0, 1, math.MaxUint64, math.MaxUint64 - 1, 1 << 63}
	for i := range uint64(60) {
		pool = append(pool, 1000+i*i)
	}
	r.Shuffle(len(pool), func(i, j int) { pool[i], pool[j] = pool[j], pool[i] })
	if !repeat {
		return pool[:n]
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = pool[r.IntN(len(pool)/2)]
	}
	return out
}

// draw draws small integers: their sums do not depend on the order.
func draw(r *rand.Rand, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(r.IntN(21) - 10)
	}
	return out
}

// Gradients of a key are added in the order in which they appear, before they travel.
func TestMergeSumsInOrder(t *testing.T) {
	leakcheck.Check(t)
	for _, servers := range []int{1, 3} {
		j := newJob(t, servers, 1, 1, nil, nil)
		for _, e := range j.engines {
			e.Keep = true
		}
		c := j.dial(0, func(cfg *Config) { cfg.Merge = true })
		keys := []uint64{5, 9, 5, 7, 5, 9}
		values := []float32{1e8, 1, 1, 2, -1e8, 1} // (1e8+1)-1e8 is 0 in float32, and 1e8-1e8+1 would be 1
		grads := make([]float32, 0, 18)
		for _, v := range values {
			grads = append(grads, v, v, v)
		}
		must(t, c.Session(0).PushRows(0, 1, keys, grads))
		must(t, c.Flush(context.Background()))
		want := map[uint64]float32{5: 0, 9: 2, 7: 2}
		n := 0
		for _, e := range j.engines {
			for _, p := range e.Pushes {
				for i, key := range p.Keys {
					n++
					if p.Grads[3*i] != want[key] || p.Grads[3*i+2] != want[key] {
						t.Errorf("%d servers: key %d has gradient %v, want %v", servers, key, p.Grads[3*i:][:3], want[key])
					}
				}
			}
		}
		if s := c.Stats(); n != 3 || s.RowsPushed != 3 || s.RowsMerged != 3 {
			t.Errorf("%d servers: %d rows arrived, %+v", servers, n, s)
		}
		got := pull(t, c.Session(0), 0, 2, []uint64{9, 5, 9, 9})
		if !slices.Equal(got, []float32{2, 2, 2, 0, 0, 0, 2, 2, 2, 2, 2, 2}) {
			t.Errorf("%d servers: %v", servers, got)
		}
		if s := c.Stats(); s.RowsPulled != 2 || s.RowsMerged != 5 {
			t.Errorf("%d servers: %+v", servers, s)
		}
	}
}

// Values travel in every code, over one server and several.
func TestCodes(t *testing.T) {
	leakcheck.Check(t)
	for _, servers := range []int{1, 2} {
		for code := message.FP32; code.Valid(); code++ {
			j := newJob(t, servers, 1, 1, nil, nil)
			c := j.dial(0, func(cfg *Config) { cfg.Pull, cfg.Push, cfg.Dense = code, code, code })
			keys := make([]uint64, 100)
			grads := make([]float32, 1600)
			for i := range keys {
				keys[i] = uint64(i)
			}
			for i := range grads {
				grads[i] = float32(i%255 - 127)
			}
			must(t, c.Session(0).PushRows(1, 1, keys, grads))
			must(t, c.Session(0).PushDense(0, 1, 10, grads[:900]))
			got := pull(t, c.Session(0), 1, 1, keys)
			dense := make([]float32, 1000)
			p, err := c.Session(0).PullDense(0, 1, 0, dense)
			must(t, err)
			must(t, p.Wait())
			for i, v := range got {
				if d := v - grads[i]; d < -1.1 || d > 1.1 { // int8 may have rounded twice
					t.Fatalf("%d servers, %v: value %d is %v, want %v", servers, code, i, v, grads[i])
				}
			}
			for i, v := range dense[10:910] {
				if d := v - grads[i]; d < -1.1 || d > 1.1 {
					t.Fatalf("%d servers, %v: value %d of the array is %v, want %v", servers, code, i, v, grads[i])
				}
			}
			nan := make([]float32, 16)
			nan[3] = float32(math.NaN())
			err = c.Session(0).PushRows(1, 2, []uint64{1}, nan)
			says(t, err, "ps: trainer 0: push of rows of table \"even\" of step 2, server ", "is NaN at element 3")
			if v := (*compress.ValueError)(nil); !errors.As(err, &v) {
				t.Errorf("%T", err)
			}
			must(t, c.Session(0).PushRows(1, 2, []uint64{1}, make([]float32, 16))) // nothing is lost but what was wrong
			must(t, c.Flush(context.Background()))
		}
	}
}

// What does not belong to the job does not get in, and is told why at once.
func TestRefused(t *testing.T) {
	leakcheck.Check(t)
	j := newJob(t, 1, 2, 1, nil, nil)
	for words, change := range map[string]func(c *Config){
		"the tickets differ": func(c *Config) { c.Ticket = transport.NewTicket() },
		"versions differ":    func(c *Config) { c.Version = "2" },
		`trainer 1 has other tables than this server: table 0 is odd of rows of 4 weights, first `: func(c *Config) { c.Schema.Sparse[0].Dim = 4 },
		` there, and odd of rows of 3 weights, first `:                                             func(c *Config) { c.Schema.Sparse[0].Dim = 4 },
		"is other of rows of 3 weights":                                                            func(c *Config) { c.Schema.Sparse[0].Name = "other" },
		"first uniform 0.7 with seed":                                                              func(c *Config) { c.Schema.Sparse[1].Init = schema.Init{Name: "uniform", Value: 0.7} },
		"values, rule sgd at rate 7 there, and ":                                                   func(c *Config) { c.Schema.Dense[0].Rule = schema.Rule{Name: "sgd", LR: 7} },
		" there, and none on this server: all ranks must build the same model": func(c *Config) {
			c.Schema.Dense = append(c.Schema.Dense, schema.Dense{Name: "more", Len: 5, Rule: schema.Rule{Name: "sgd", LR: 1}})
		},
		`of job "other"`: func(c *Config) { c.Job = "other" },
		"sync is async on server 0 and ssp on trainer 1": func(c *Config) { c.Settings = setting.Values{"sync": "ssp"} },
		"one of 3 with 1 sessions":                       func(c *Config) { c.Trainers = 3 },
		"of 2, it is 0 of 1":                             func(c *Config) { c.Servers = append(c.Servers, c.Servers[0]) },
	} {
		cfg := j.trainer(1)
		change(&cfg)
		_, err := Dial(context.Background(), cfg)
		says(t, err, "server ", addr(0), words)
	}
}

// A pull that fails ends nothing else; a change that is refused ends the client.
func TestServersErrors(t *testing.T) {
	leakcheck.Check(t)
	j := newJob(t, 1, 1, 1, nil, nil)
	c := j.dial(0, nil)
	l := c.Session(0)
	j.engines[0].FailNext(errors.New("a bad sector"))
	p, err := l.PullRows(0, 3, []uint64{1}, make([]float32, 3))
	must(t, err)
	says(t, p.Wait(), `ps: trainer 0: pull of rows of table "odd" of step 3, server 0 (host0:1), session 0: a bad sector`)
	pull(t, l, 0, 3, []uint64{1})
	must(t, l.PushRows(0, 3, []uint64{6, 6}, make([]float32, 6))) // without Merge
	err = c.Flush(context.Background())
	says(t, err, "server 0 (host0:1), session 0: server 0: push of rows number 1 of trainer 0, session 0, step 3: key 6 is twice in the batch")
	if _, err2 := l.PullRows(0, 3, []uint64{1}, make([]float32, 3)); err2 == nil || err2.Error() != err.Error() {
		t.Errorf("got %v, want the first cause", err2)
	}
}

// Pulls see what was pushed before them through their session, and nothing that came
// after, however many are under way.
func TestPullsAndPushesAreInOrder(t *testing.T) {
	leakcheck.Check(t)
	for _, servers := range []int{1, 2} {
		j := newJob(t, servers, 1, 1, nil, nil)
		c := j.dial(0, nil)
		l := c.Session(0)
		keys := drawKeys(rand.New(rand.NewPCG(1, 1)), 60, false)
		ones := slices.Repeat([]float32{1}, 16*len(keys))
		var pulls [5]*Pull
		var rows [5][]float32
		for i := range rows {
			rows[i] = make([]float32, 16*len(keys))
		}
		for round := range 200 {
			var err error
			for i := range pulls {
				pulls[i], err = l.PullRows(1, 1, keys, rows[i])
				must(t, err)
			}
			must(t, l.PushRows(1, 1, keys, ones))
			for i, p := range pulls {
				must(t, p.Wait())
				for _, v := range rows[i] {
					if v != float32(round) {
						t.Fatalf("round %d: pull %d sees %v", round, i, v)
					}
				}
			}
		}
	}
}

// Calls that make no sense are refused with the names of what they are about.
func TestBadCalls(t *testing.T) {
	leakcheck.Check(t)
	j := newJob(t, 1, 1, 1, nil, nil)
	l := j.dial(0, nil).Session(0)
	_, err := l.PullRows(2, 1, nil, nil)
	says(t, err, "no sparse table 2: the schema has 2")
	_, err = l.PullRows(-1, 1, nil, nil)
	says(t, err, "no sparse table -1")
	_, err = l.PullRows(1, 4, []uint64{1}, make([]float32, 15))
	says(t, err, `pull of step 4, session 0: table "even": 15 values for 1 rows of 16`)
	says(t, l.PushRows(0, 4, []uint64{1}, nil), `table "odd": 0 values for 1 rows of 3`)
	says(t, l.PushDense(2, 1, 0, nil), "no dense array 2")
	says(t, l.PushDense(1, 1, 3, make([]float32, 5)), `array "small": 5 values at 3, it has 7`)
	_, err = l.PullDense(1, 1, -1, make([]float32, 5))
	says(t, err, "5 values at -1")
	_, err = l.PullDense(1, 1, 8, nil)
	says(t, err, "0 values at 8")
	for _, n := range []int{0, 0} { // empty ones are fine
		p, err := l.PullRows(0, 1, nil, make([]float32, n))
		must(t, err)
		must(t, p.Wait())
	}
	_, err = Dial(context.Background(), Config{Servers: []string{""}, Trainer: 3, Trainers: 2, Pull: 9, Window: -1, Reconnect: time.Minute, Timeout: time.Second, SocketBytes: 1})
	says(t, err, "no ticket", "no version", "server 0 has no address", "trainer 3 of 2", "rows pulled in code 9", "-1 changes", "take 1s to answer", "1 bytes", "nothing to serve")
	_, err = Dial(context.Background(), Config{})
	says(t, err, "server 0 of 0")
}

// Abort ends whatever waits, with its cause.
func TestAbort(t *testing.T) {
	leakcheck.Check(t)
	j := newJob(t, 1, 2, 1, func(e *fake.Config) { e.Bounded = true }, nil)
	c := j.dial(0, nil)
	p, err := c.Session(0).PullRows(0, 5, []uint64{1}, make([]float32, 3)) // waits for trainer 1
	must(t, err)
	cause := errors.New("rank 1 is lost")
	c.Abort(cause)
	for _, err := range []error{p.Wait(), c.Session(0).Clock(1, 1), c.Flush(context.Background()), c.Err()} {
		if !errors.Is(err, cause) {
			t.Errorf("got %v", err)
		}
	}
	must(t, c.Close())
}

// Close ends whatever waits, and lets go of the memory that pulls write to.
func TestClose(t *testing.T) {
	leakcheck.Check(t)
	j := newJob(t, 1, 2, 1, func(e *fake.Config) { e.Bounded = true }, nil)
	c := j.dial(0, nil)
	p, err := c.Session(0).PullRows(0, 5, []uint64{1}, make([]float32, 3))
	must(t, err)
	must(t, c.Close())
	if err := p.Wait(); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := c.Session(0).Clock(1, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	must(t, c.Close())
}
