package trainer

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Whatever comes and leaves, a row of the cache is the last one that was put for its key, it is had where it may be used, and there
// are never more than there is room for.
func TestCacheAgainstMap(t *testing.T) {
	const keys, rows = 200, 40
	caches, err := newCaches(Config{Schema: testSchema("sgd", 1), Cache: CacheConfig{Bytes: rows * (entryBytes + 4*rowDim)}})
	must(t, err)
	c := caches[0]
	type put struct {
		pass  uint32
		until uint64
	}
	last := map[uint64]put{}
	r, dst, row := rand.New(rand.NewPCG(1, 2)), make([]float32, rowDim), make([]float32, rowDim)
	hits := 0
	for now := range 20_000 {
		key, step, pass := uint64(r.IntN(keys)), uint64(now/10+1), uint32(now/5000)
		if r.IntN(2) == 0 {
			key %= 10 // hot
		}
		p, known := last[key]
		at, _ := c.find(key)
		got := c.get(key, step, pass, dst)
		if want := at >= 0 && p.pass == pass && step <= p.until; got != want || at >= 0 && !known {
			t.Fatalf("look %d: key %d is had: %t, want %t", now, key, got, want)
		}
		if got {
			hits++
			if value := float32(key)*3000 + float32(p.until); dst[0] != value || dst[rowDim-1] != value {
				t.Fatalf("look %d: key %d is %v, want %v", now, key, dst, value)
			}
			continue
		}
		p = put{pass, step + uint64(r.IntN(30))}
		for i := range row {
			row[i] = float32(key)*3000 + float32(p.until)
		}
		c.put(key, stampOf(p.pass, p.until), row)
		last[key] = p
	}
	if len(c.rows) != rows*rowDim || hits < 8000 {
		t.Errorf("%d values, %d hits: keys that half of all looks are for do not stay", len(c.rows), hits)
	}
}

// peeksBetween trains like inSync and peeks now and then, several times the same; it returns all that was seen.
func peeksBetween(tr *Trainer, rank, steps int) (seen []float32, err error) {
	for step := range steps {
		for i := range 3 * (step % 2) {
			ids := batchOf(step/4, i%2)
			mapped, rows, err := peek(tr, ids)
			if err != nil {
				return nil, err
			}
			for _, m := range mapped {
				seen = append(seen, rows[int(m)*rowDim:][:rowDim]...)
			}
		}
		if rank == 2 && step%3 == 2 { // a rank that has no batch in a step
			if err := tr.End(-1); err != nil {
				return nil, err
			}
			continue
		}
		mapped, rows, err := fetch(tr, batchOf(step, rank))
		if err != nil {
			return nil, err
		}
		for _, m := range mapped {
			seen = append(seen, rows[int(m)*rowDim:][:rowDim]...)
		}
		at, r := different(mapped), rand.New(rand.NewPCG(uint64(rank), uint64(step)))
		grads := make([]float32, rowDim*len(at))
		for i := range grads {
			grads[i] = float32(r.NormFloat64())
		}
		if err := tr.PushRows(0, at, grads); err != nil {
			return nil, err
		}
		if err := tr.End(-1); err != nil {
			return nil, err
		}
	}
	return seen, tr.Leave(context.Background())
}

// In bsp a rank sees, in training and in evaluations, the bits that it sees without a cache: with a cache that has room for all rows or for
// few of them, and with servers that are killed on the way and come back with their log.
func TestCacheInSync(t *testing.T) {
	leakcheck.Check(t)
	const steps = 40
	run := func(cacheBytes int64, restart bool) (seen [3][]float32, use CacheUse) {
		cfg := engine.Config{Mode: engine.BSP, Servers: 2, Trainers: 3}
		if restart {
			cfg.Durability, cfg.Dir = engine.WAL, t.TempDir()
		}
		j := newJob(t, cfg, testSchema("adagrad", 0.1))
		var ranks [3]*Trainer
		for rank := range ranks {
			ranks[rank] = j.trainers(rank, func(c *Config) { c.Cache.Bytes = cacheBytes })[0]
		}
		var group sync.WaitGroup
		for rank, tr := range ranks {
			group.Go(func() {
				var err error
				if seen[rank], err = peeksBetween(tr, rank, steps); err != nil {
					t.Errorf("trainer %d: %v", rank, err)
				}
			})
		}
		if restart {
			for i := range 4 {
				time.Sleep(5 * time.Millisecond)
				j.restart(i % 2)
			}
		}
		group.Wait()
		for _, tr := range ranks {
			training, peeking := tr.CacheUse()
			if training.Hits != 0 {
				t.Errorf("%+v in training", training)
			}
			use = use.Plus(peeking)
		}
		return seen, use
	}
	want, _ := run(0, false)
	for _, c := range []struct {
		bytes   int64
		restart bool
	}{{1 << 20, false}, {24 * (entryBytes + 4*rowDim), false}, {1 << 20, true}} {
		got, use := run(c.bytes, c.restart)
		for rank := range want {
			if !slices.Equal(got[rank], want[rank]) || len(want[rank]) == 0 {
				t.Errorf("cache %+v: trainer %d saw other values", c, rank)
			}
		}
		if use.Hits == 0 || use.Hits >= use.Lookups || use.Saved != use.Hits*(8+4*rowDim) {
			t.Errorf("cache %+v: %+v", c, use)
		}
	}
}

// counting is a table whose rows begin at 0 and count pushes.
func counting() schema.Schema {
	s := testSchema("sgd", 1)
	s.Sparse[0].Init = schema.Init{Name: "zeros"}
	return s
}

// counts trains some steps with row 7, of which each pushes 1, and rows of a batch, and calls see with what row 7 was in each step.
func counts(tr *Trainer, rank, steps int, pause func(step int), see func(step int, value float32)) error {
	batch := func(step int) Batch { return Batch{IDs: append([]int32{7}, batchOf(step, rank)...)} }
	for step := 1; step <= steps; step++ {
		pause(step)
		if err := tr.Fetch(batch(step)); err != nil {
			return err
		}
		at, rows := tr.Rows(0)
		see(step, rows[int(at[0])*rowDim])
		if step < steps {
			if err := tr.Ask(batch(step + 1)); err != nil {
				return err
			}
		}
		if err := tr.PushRows(0, at[:1], slices.Repeat([]float32{-1}, rowDim)); err != nil {
			return err
		}
		if err := tr.End(-1); err != nil {
			return err
		}
	}
	return tr.Leave(context.Background())
}

// In ssp a row from the cache, too, has all pushes of all trainers up to step t-1-staleness in step t: invariant[staleness-bound].
func TestCacheWithinStaleness(t *testing.T) {
	leakcheck.Check(t)
	const trainers, steps, staleness = 3, 60, 4
	j := newJob(t, engine.Config{Mode: engine.SSP, Staleness: staleness, Servers: 2, Trainers: trainers}, counting())
	var all [trainers]*Trainer
	for rank := range all {
		all[rank] = j.trainers(rank, func(c *Config) { c.Cache = CacheConfig{Bytes: 1 << 20, Steps: staleness, Bounded: true} })[0]
	}
	var group sync.WaitGroup
	for rank, tr := range all {
		group.Go(func() {
			r := rand.New(rand.NewPCG(uint64(rank), 1))
			pause := func(int) { time.Sleep(time.Duration(r.IntN(1+300*rank)) * time.Microsecond) } // some are slow
			err := counts(tr, rank, steps, pause, func(step int, value float32) {
				if least := trainers * (step - 1 - staleness); value < float32(least) {
					t.Errorf("trainer %d, step %d: row 7 has %v pushes, want at least %d", rank, step, value, least)
				}
			})
			if err != nil {
				t.Errorf("trainer %d: %v", rank, err)
			}
		})
	}
	group.Wait()
	for rank, tr := range all {
		if training, _ := tr.CacheUse(); training.Hits == 0 || training.Hits == training.Lookups {
			t.Errorf("trainer %d: %+v", rank, training)
		}
	}
}

// In async a row is used in so many steps more than the one that it was pulled for: it has the trainer's own pushes up to that step, but
// for those that were not made when it was asked for.
func TestCacheInAsync(t *testing.T) {
	leakcheck.Check(t)
	const steps, more = 40, 3
	j := newJob(t, engine.Config{Mode: engine.Async, Servers: 2, Trainers: 1}, counting())
	tr := j.trainers(0, func(c *Config) { c.Cache = CacheConfig{Bytes: 1 << 20, Steps: more} })[0]
	oldest := 0
	must(t, counts(tr, 0, steps, func(int) {}, func(step int, value float32) {
		lacks := step - 1 - int(value)
		if lacks > more+1 { // one more: rows are asked for a step ahead
			t.Errorf("step %d: row 7 lacks the last %d pushes", step, lacks)
		}
		oldest = max(oldest, lacks)
	}))
	if training, _ := tr.CacheUse(); oldest != more+1 || training.Hits < steps {
		t.Errorf("%+v, at most %d steps old", training, oldest)
	}
}

func TestCacheFaults(t *testing.T) {
	j := newJob(t, engine.Config{Mode: engine.Async, Servers: 1, Trainers: 1}, testSchema("sgd", 1))
	tr := j.trainers(0, nil)[0]
	for _, change := range []func(*Config){
		func(c *Config) { c.Cache.Bytes = -1 },
		func(c *Config) { c.Cache.Bytes = 10 },
		func(c *Config) { c.Cache = CacheConfig{Bytes: 1, Steps: -1} },
		func(c *Config) { c.Cache.Bytes, c.GeoSteps, c.Copies = 1, 2, 1 },
	} {
		cfg := tr.cfg
		change(&cfg)
		if caches, err := newCaches(cfg); err == nil {
			t.Errorf("%+v makes %v", cfg.Cache, caches)
		}
	}
	cfg := tr.cfg
	cfg.Schema.Sparse = append(slices.Clone(cfg.Schema.Sparse), cfg.Schema.Sparse[0])
	each := int64(2 * (entryBytes + 4*rowDim))
	cfg.Cache.Bytes = 17*each + each/2
	if caches, err := newCaches(cfg); err != nil || caches[0].sets != 2 || caches[1].sets != 2 {
		t.Errorf("%+v, %v", caches, err)
	}
	must(t, tr.Leave(context.Background()))
}
