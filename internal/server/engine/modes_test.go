package engine

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/ps/schema"
)

// cluster are all servers of a job.
func cluster(t testing.TB, c Config, s schema.Schema, servers int) []*Engine {
	t.Helper()
	var out []*Engine
	for i := range servers {
		c := c
		c.Index, c.Servers = i, servers
		if c.Dir != "" {
			c.Dir = name("%s/%d", c.Dir, i)
		}
		out = append(out, open(t, c, s))
	}
	return out
}

// trainer has sessions to all servers.
type trainer struct {
	sessions [][]*client // by server
	rng      *rand.Rand
}

func newTrainer(t testing.TB, servers []*Engine, number int) *trainer {
	tr := &trainer{rng: rand.New(rand.NewPCG(uint64(number), 77))}
	for _, e := range servers {
		var sessions []*client
		for l := range e.cfg.Sessions {
			sessions = append(sessions, newClient(t, e, number*e.cfg.Sessions+l))
		}
		tr.sessions = append(tr.sessions, sessions)
	}
	return tr
}

// push pushes a step's gradients, in pieces, each over any of the sessions.
func (tr *trainer) push(s schema.Schema, all []grads) {
	for i, sessions := range tr.sessions {
		session := func() *client { return sessions[tr.rng.IntN(len(sessions))] }
		for k, x := range s.Sparse {
			width := x.Dim + x.Counts()
			mine := split(all[k], width, len(tr.sessions))[i]
			for lo := 0; lo < len(mine.keys); {
				hi := min(len(mine.keys), lo+1+tr.rng.IntN(200))
				session().rows(k, mine.keys[lo:hi], mine.values[lo*width:hi*width])
				lo = hi
			}
		}
		for k := range s.Dense {
			d := sessions[0].e.dense[k]
			values := all[len(s.Sparse)+k].values
			for lo := d.lo; lo < d.hi; {
				hi := min(d.hi, lo+1+tr.rng.IntN(300))
				session().dense(k, lo, values[lo:hi])
				lo = hi
			}
		}
	}
}

func (tr *trainer) each(do func(*client)) {
	for _, sessions := range tr.sessions {
		for _, l := range sessions {
			do(l)
		}
	}
}

// BSP comes to the bits of a plain loop over trainers in order, whatever the order in
// which they come, with several servers and sessions, rates that change, and a trainer
// that leaves.
func TestSyncIsExact(t *testing.T) {
	for _, c := range []struct{ trainers, servers, sessions int }{{1, 1, 1}, {2, 1, 1}, {3, 2, 2}, {5, 3, 1}} {
		t.Run(name("%d trainers %d servers %d sessions", c.trainers, c.servers, c.sessions), func(t *testing.T) {
			leakcheck.Check(t)
			s, steps := mixed(), 12
			servers := cluster(t, Config{Trainers: c.trainers, Sessions: c.sessions, Mode: BSP, Durability: None}, s, c.servers)
			all := make([][][]grads, steps)
			for i := range all {
				for n := range c.trainers {
					all[i] = append(all[i], draw(s, rand.New(rand.NewPCG(uint64(i), uint64(n))), 300))
				}
			}
			last := steps // of the trainer that leaves
			if c.trainers > 2 {
				last = 7
			}
			rate := func(i int) float64 { return 0.1 / float64(1+i/3) }
			var wg sync.WaitGroup
			for n := range c.trainers {
				wg.Go(func() {
					tr := newTrainer(t, servers, n)
					if n == 0 {
						for i := range servers {
							tr.sessions[i][0].begin(initials(s))
						}
					}
					for i := range steps {
						if n == 1 && i == last {
							break
						}
						for _, e := range servers {
							if err := e.Await(context.Background(), n, uint64(i+1)); err != nil {
								t.Error(err)
								return
							}
						}
						tr.push(s, all[i][n])
						tr.each(func(l *client) { l.clock(rate(i)) })
					}
					tr.each((*client).leave)
				})
			}
			wg.Wait()
			w := newTwin(t, s)
			for i := range all {
				took := all[i]
				if i >= last {
					took = append(append([][]grads{}, took[0]), took[2:]...)
				}
				w.step(took)
				w.setLR(rate(i))
			}
			w.compare(t, servers)
		})
	}
}

// In all modes without waits for sums every push is applied once, also where trainers send
// them again.
// It holds invariant[every-push-once].
func TestEveryPushOnce(t *testing.T) {
	for _, c := range []Config{
		{Mode: Async, Durability: None}, {Mode: SSP, Staleness: 2, Durability: None}, {Mode: Geo, Durability: None},
		{Mode: Async, Durability: WAL}, {Mode: SSP, Durability: WALFsync}, {Mode: Geo, Durability: Checkpoint},
	} {
		t.Run(name("%s %s", c.Mode, c.Durability), func(t *testing.T) {
			leakcheck.Check(t)
			if c.Durability != None {
				c.Dir = t.TempDir()
			}
			c.Trainers, c.Sessions = 3, 2
			s := whole(3)
			servers := cluster(t, c, s, 2)
			want := newSums(s)
			for i := range servers {
				newClient(t, servers[i], 0).begin(want.dense())
			}
			var wg sync.WaitGroup
			for n := range c.Trainers {
				wg.Go(func() {
					tr := newTrainer(t, servers, n)
					for i := range 20 {
						for _, e := range servers {
							if err := e.Await(context.Background(), n, uint64(i+1)); err != nil {
								t.Error(err)
								return
							}
						}
						g := integers(s, tr.rng, 200)
						want.add(g, c.Mode == Geo)
						tr.push(s, g)
						tr.each(func(l *client) { l.clock(-1) })
					}
					tr.each(func(l *client) {
						if err := l.e.Durable(l.last); err != nil {
							t.Error(err)
						}
					})
				})
			}
			wg.Wait()
			want.compare(t, servers)
			if c.Durability == None {
				return
			}
			if c.Durability == Checkpoint {
				for _, e := range servers {
					_, err := e.Save(context.Background(), false)
					must(t, err)
				}
			}
			for _, e := range servers {
				must(t, e.Close())
			}
			want.compare(t, cluster(t, c, s, 2))
		})
	}
}

// sums are what a schema of whole comes to.
type sums struct {
	mu   sync.Mutex
	dim  int
	rows map[uint64][]float32
	sum  []float32
}

func newSums(s schema.Schema) *sums {
	w := newSumsOf(s)
	w.sum = make([]float32, s.Dense[0].Len)
	return w
}

func newSumsOf(s schema.Schema) *sums {
	return &sums{dim: s.Sparse[0].Dim, rows: map[uint64][]float32{}}
}

func (w *sums) dense() [][]float32 { return [][]float32{make([]float32, len(w.sum))} }

// integers are gradients of whole numbers.
func integers(s schema.Schema, rng *rand.Rand, most int) []grads {
	all := draw(s, rng, most)
	for _, g := range all {
		for i := range g.values {
			g.values[i] = float32(rng.IntN(9) - 4)
		}
	}
	return all
}

func (w *sums) add(g []grads, plus bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sign := float32(-1)
	if plus {
		sign = 1
	}
	w.addRows(g, sign)
	for j, v := range g[1].values {
		w.sum[j] += sign * v
	}
}

func (w *sums) addRows(g []grads, sign float32) {
	for k, key := range g[0].keys {
		if w.rows[key] == nil {
			w.rows[key] = make([]float32, w.dim)
		}
		for j := range w.dim {
			w.rows[key][j] += sign * g[0].values[k*w.dim+j]
		}
	}
}

func (w *sums) compare(t testing.TB, servers []*Engine) {
	t.Helper()
	w.compareRows(t, servers)
	all := make([]float32, len(w.sum))
	for _, e := range servers {
		d := e.dense[0]
		must(t, e.PullDense(0, d.lo, all[d.lo:d.hi]))
	}
	for j := range all {
		if all[j] != w.sum[j] {
			t.Fatalf("the array is %v, want %v", all, w.sum)
		}
	}
}

func (w *sums) compareRows(t testing.TB, servers []*Engine) {
	t.Helper()
	got := make([]float32, w.dim)
	for key, want := range w.rows {
		must(t, servers[schema.Owner(key, len(servers))].PullRows(anyPull, 0, []uint64{key}, got))
		for j := range want {
			if got[j] != want[j] {
				t.Fatalf("key %d is %v, want %v", key, got, want)
			}
		}
	}
}
