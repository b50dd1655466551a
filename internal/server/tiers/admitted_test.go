package tiers

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/shard"
	"github.com/ringo-ml/ringo/ps/schema"
)

// admittedCase is one job of trainers and servers in bsp, whose servers may be killed.
type admittedCase struct {
	servers, keys, batch, steps int
	between                     int // calls before the next kill, on average
	layout                      schema.Schema
	tiers                       Config // without Dir
	below                       bool   // rows go to a store
}

// admittedRules are the rules of rows of such jobs.
var admittedRules = []string{"sgd", "adagrad", "momentum", "adam", "ftrl", "click", "adagrad-rowwise"}

// drawAdmitted draws job number seed. 28 jobs in a row have each rule with rows in memory and with some on SSD, of one
// server and of more; the rest is drawn.
func drawAdmitted(seed uint64) admittedCase {
	rng := rand.New(rand.NewPCG(seed, 1))
	rule := schema.Rule{Name: admittedRules[seed%7], LR: 0.1}
	c := admittedCase{servers: 1, keys: 200, batch: 25, steps: 12, between: 30, tiers: Config{Deltas: true}}
	if seed/14%2 == 1 {
		c.servers = 2
	}
	c.layout = schema.Schema{Sparse: []schema.Sparse{
		{Name: "wide", Dim: 1 + rng.IntN(4), Rule: rule, Init: schema.Init{Name: "uniform", Value: 0.5}, Seed: 3},
		{Name: "deep", Dim: 3, Rule: schema.Rule{Name: "adagrad", LR: 0.1}, Admission: "share:0.5"},
	}}
	c.tiers.Admission = shard.Admission{Count: 2 + rng.IntN(3), FilterBytes: 4096 << rng.IntN(3)}
	if rng.IntN(3) == 0 {
		c.tiers.Admission.Share = 0.7
	}
	if seed/7%2 == 1 { // memory has no room for all rows
		c.below = true
		c.layout.Sparse = c.layout.Sparse[:1]
		c.layout.Sparse[0].Dim, c.tiers.Admission.Count = 4, 2+rng.IntN(2)
		c.keys, c.batch, c.steps, c.between = 9000*c.servers, 2400*c.servers, 8, 15
		c.tiers.MemoryBytes, c.tiers.Admission.FilterBytes = leastMemory(c.layout.Sparse[0]), 1<<20
	} else if c.servers > 1 {
		c.servers += rng.IntN(2)
	}
	return c
}

// leastMemory is the least limit of memory that a table may have, in KiB.
func leastMemory(s schema.Sparse) int64 {
	rule, err := s.Rule.Rows()
	if err != nil {
		panic(err)
	}
	return int64(sort.Search(1<<20, func(kib int) bool {
		c := shard.Config{Rows: rows.Config{Name: s.Name, Dim: s.Dim, Rule: rule, MaxRows: 1 << 16}, MemoryBytes: int64(kib) << 10, Deltas: true}
		return kib > 0 && c.Validate() == nil
	})) << 10
}

// admittedServer is a server, and the number of the folder that it has now.
type admittedServer struct {
	server
	dir  string
	life int
}

// admittedTrainer is a trainer of such a job: what it has done of its step, and what no server has
// acknowledged.
type admittedTrainer struct {
	step   uint64
	at     int // place in the step
	number []uint64
	seq    []uint64
	made   [][]func(e *engine.Engine) error // by server, without an acknowledgement, the last one is number seq
}

// admittedJob runs a job and kills its servers.
type admittedJob struct {
	admittedCase
	t        *testing.T
	rng      *rand.Rand // of kills
	all      []*admittedServer
	trainers [2]admittedTrainer
	kills    int

	denied, evicted int64 // by servers at their ends
}

func (j *admittedJob) open(s *admittedServer, index int) {
	tc := j.tiers
	if j.below {
		tc.Dir = filepath.Join(s.dir, fmt.Sprint("below-", s.life))
	}
	s.server = start(j.t, engine.Config{Job: "admitted", Index: index, Servers: j.servers, Trainers: len(j.trainers), Mode: engine.BSP, Durability: engine.WAL,
		Dir: s.folder(), MaxRows: 1 << 16, LogFloor: 1 << 20, LogBuffer: 1 << 18}, tc, j.layout)
}

func (s *admittedServer) folder() string { return filepath.Join(s.dir, fmt.Sprint("life-", s.life)) }

// kill ends a server as a kill does: what its log and its checkpoints have at some moment stays, of what
// was not acknowledged any number of bytes.
func (j *admittedJob) kill(index int) {
	t, s := j.t, j.all[index]
	t.Helper()
	old := s.folder()
	s.life++
	must(t, os.CopyFS(s.folder(), os.DirFS(old)))
	id, err := engine.IdentityOf(old)
	must(t, err)
	end, err := engine.LogEnd(s.folder(), id) // with what was acknowledged
	must(t, err)
	must(t, j.end(s)) // writes what was not
	written, err := os.ReadFile(filepath.Join(old, "log", filepath.Base(end.Path)))
	must(t, err)
	cut := int(end.Offset)
	must(t, os.WriteFile(end.Path, written[:cut+j.rng.IntN(len(written)-cut+1)], 0o666))
	j.kills++
	j.open(s, index)
	for i := range j.trainers { // they connect again
		j.trainers[i].again(t, i, index, s.Engine)
	}
}

// end ends a server and counts the keys that it gave no row and the rows that left its memory.
func (j *admittedJob) end(s *admittedServer) error {
	for _, t := range s.Stats().Tables {
		j.denied, j.evicted = j.denied+t.Denied, j.evicted+t.Evicted
	}
	if err := s.Close(); err != nil {
		return err
	}
	return s.tiers.Close()
}

// again sends what a server that was started again does not have.
func (tr *admittedTrainer) again(t *testing.T, trainer, server int, e *engine.Engine) {
	t.Helper()
	first := tr.seq[server] - uint64(len(tr.made[server])) + 1
	last, err := e.Join(trainer, first, 0)
	must(t, err)
	for i, change := range tr.made[server] {
		if first+uint64(i) > last {
			must(t, change(e))
		}
	}
}

// change makes a change at a server, and has it acknowledged or not.
func (j *admittedJob) change(tr *admittedTrainer, server int, do func(e *engine.Engine, seq uint64) (engine.Ticket, error)) {
	j.t.Helper()
	tr.seq[server]++
	seq := tr.seq[server]
	var last engine.Ticket
	change := func(e *engine.Engine) (err error) {
		last, err = do(e, seq)
		return err
	}
	must(j.t, change(j.all[server].Engine))
	tr.made[server] = append(tr.made[server], change)
	if j.rng.IntN(3) > 0 {
		must(j.t, j.all[server].Durable(last))
		tr.made[server] = nil
	}
	j.mayKill(server)
}

func (j *admittedJob) mayKill(server int) {
	if j.kills >= 0 && j.rng.IntN(j.between) == 0 {
		j.kill(server)
	}
}

// pull pulls keys of a step, again where its answer was lost.
func (j *admittedJob) pull(trainer, table int, keys []uint64, dst []float32) {
	j.t.Helper()
	tr, dim := &j.trainers[trainer], j.layout.Sparse[table].Dim
	for server := range j.all {
		var own []uint64
		var at []int
		for i, key := range keys {
			if schema.Owner(key, j.servers) == server {
				own, at = append(own, key), append(at, i)
			}
		}
		got := make([]float32, len(own)*dim)
		tr.number[server]++
		id := rows.PullID{Session: trainer, Process: uint64(trainer + 7), Number: tr.number[server], Oldest: tr.number[server]}
		for again := true; again; {
			before := j.kills
			must(j.t, j.all[server].PullRows(id, table, own, got))
			j.mayKill(server)
			again = j.kills > before && j.rng.IntN(2) == 0
		}
		for i, to := range at {
			copy(dst[to*dim:][:dim], got[i*dim:][:dim])
		}
	}
}

// batch is what a trainer names in a step: some keys often, most rarely.
func (j *admittedJob) batchOf(trainer int, step uint64, table int) (keys []uint64) {
	rng := rand.New(rand.NewPCG(uint64(trainer)<<32|step, uint64(table)))
	seen := map[uint64]bool{}
	for len(keys) < j.batch {
		key := uint64(rng.IntN(1 + rng.IntN(j.keys)))
		if !seen[key] {
			seen[key] = true
			keys = append(keys, key*0x9e3779b97f4a7c15+uint64(table))
		}
	}
	return keys
}

// next does a trainer's next thing, and reports whether it had to wait.
func (j *admittedJob) next(trainer int) (waits bool) {
	tr := &j.trainers[trainer]
	for server := range j.all {
		if tr.at == 0 && j.all[server].Clocked()+1 < tr.step {
			return true
		}
	}
	if tr.at < len(j.layout.Sparse) {
		j.table(trainer, tr.at)
		tr.at++
		return false
	}
	for server := range j.all {
		step := tr.step
		j.change(tr, server, func(e *engine.Engine, seq uint64) (engine.Ticket, error) {
			return e.Clock(trainer, seq, step, 0.1/float64(step))
		})
	}
	tr.step, tr.at = tr.step+1, 0
	return false
}

// table pulls a batch of a table and pushes gradients that depend on what came.
func (j *admittedJob) table(trainer, table int) {
	tr, sp := &j.trainers[trainer], j.layout.Sparse[table]
	keys := j.batchOf(trainer, tr.step, table)
	values := make([]float32, len(keys)*sp.Dim)
	j.pull(trainer, table, keys, values)
	step, width := tr.step, sp.Dim+sp.Counts()
	for server := range j.all {
		var own []uint64
		var grads []float32
		for i, key := range keys {
			if schema.Owner(key, j.servers) != server {
				continue
			}
			own = append(own, key)
			for _, v := range values[i*sp.Dim:][:sp.Dim] {
				grads = append(grads, v+float32(key%7)-2.5)
			}
			for n := sp.Dim; n < width; n++ {
				grads = append(grads, float32(2-(n-sp.Dim))) // shows and clicks
			}
		}
		j.change(tr, server, func(e *engine.Engine, seq uint64) (engine.Ticket, error) {
			return e.PushRows(trainer, seq, table, step, own, grads)
		})
	}
}

// run runs the job to its end and returns what its servers have then, by server: the counts, and all
// rows with the optimizer's state.
func (j *admittedJob) run() (ends [][]byte) {
	t := j.t
	t.Helper()
	for i := range j.servers {
		s := &admittedServer{dir: memoryDir(t)}
		j.all = append(j.all, s)
		j.open(s, i)
	}
	for i := range j.trainers {
		j.trainers[i] = admittedTrainer{step: 1, number: make([]uint64, j.servers), seq: make([]uint64, j.servers), made: make([][]func(*engine.Engine) error, j.servers)}
	}
	order := rand.New(rand.NewPCG(1, 1)) // of trainers: that of counts that collide
	for j.trainers[0].step <= uint64(j.steps) || j.trainers[1].step <= uint64(j.steps) {
		if trainer := order.IntN(2); j.trainers[trainer].step > uint64(j.steps) || j.next(trainer) {
			j.next(1 - trainer)
		}
		if j.rng.IntN(12) == 0 {
			_, err := j.all[j.rng.IntN(j.servers)].Save(context.Background(), j.rng.IntN(3) > 0)
			must(t, err)
		}
	}
	for i, s := range j.all {
		if j.kills >= 0 {
			j.kill(i) // what is compared is what it comes back with
		}
		saved, err := s.Save(context.Background(), false)
		must(t, err)
		ends = append(ends, contents(t, saved.Dir, len(j.layout.Sparse)))
		must(t, j.end(s))
	}
	return ends
}

// contents is what a whole checkpoint has: rows by key with their state, and the lines of the counts.
func contents(t *testing.T, dir string, tables int) (out []byte) {
	for table := range tables {
		var all [][]byte
		for _, name := range []string{"store", "memory", "counts"} {
			b, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("table-", table), name))
			must(t, err)
			b = b[16+int(binary.LittleEndian.Uint32(b[12:]))+4:]
			for le := binary.LittleEndian; le.Uint32(b) != 3; { // not the end
				n, marks := int(le.Uint32(b[4:])), int(le.Uint32(b[8:]))
				body := b[32+12*marks:]
				size := 72
				if name != "counts" {
					size = rowBytes(t, dir, table)
				}
				for i := range n {
					row := slices.Clone(body[i*size:][:size])
					if name != "counts" {
						clear(row[8:12]) // when it was used
					}
					all = append(all, append([]byte(name[:1]), row...))
				}
				b = body[n*size+4:]
			}
		}
		out = append(out, newest(all)...)
	}
	return out
}

// newest sorts entries by key and leaves out those of the store that memory has too.
func newest(all [][]byte) (out []byte) {
	slices.SortFunc(all, func(a, b []byte) int {
		if c := bytes.Compare(a[1:9], b[1:9]); c != 0 {
			return c
		}
		return bytes.Compare(a, b)
	})
	for i, e := range all {
		if e[0] == 's' && i > 0 && all[i-1][0] == 'm' && bytes.Equal(all[i-1][1:9], e[1:9]) {
			continue
		}
		if e[0] == 's' {
			e[0] = 'm'
		}
		out = append(out, e...)
	}
	return out
}

// rowBytes is the length of a row in a file of a table.
func rowBytes(t *testing.T, dir string, table int) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("table-", table), "memory"))
	must(t, err)
	var head struct {
		Dim   int
		Parts []struct{ Width int }
	}
	must(t, json.Unmarshal(b[16:16+int(binary.LittleEndian.Uint32(b[12:]))], &head))
	n := 12 + 4*head.Dim
	for _, p := range head.Parts {
		n += 4 * p.Width
	}
	return n
}

// memoryDir is a folder in memory where the system has one, because these jobs wait for the disk most of the time.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "ringo-admitted-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

// Servers that admit keys by count and are killed at any time, also while their log is written, end with the rows, the
// optimizer's state and the counts of servers that never were, with every rule, in every tier, of any number.
func TestKillsWithAdmission(t *testing.T) {
	seeds, least, kills := 28, 140, 0
	if testing.Short() {
		seeds, least = 4, 10
	}
	for seed := range uint64(seeds) {
		c := drawAdmitted(seed)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			calm := admittedJob{admittedCase: c, t: t, rng: rand.New(rand.NewPCG(seed, 2)), kills: -1}
			want := calm.run()
			killed := admittedJob{admittedCase: c, t: t, rng: rand.New(rand.NewPCG(seed, 3))}
			got := killed.run()
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					t.Errorf("server %d of %d ends with other bits after %d kills: %d bytes, want %d (%+v)", i, c.servers, killed.kills, len(got[i]), len(want[i]), c)
				}
			}
			if killed.denied == 0 || killed.evicted == 0 && c.below {
				t.Errorf("%d keys denied a row, %d rows evicted from memory: want both (%+v)", killed.denied, killed.evicted, c)
			}
			kills += killed.kills
		})
	}
	if t.Logf("%d kills", kills); kills < least {
		t.Errorf("%d kills in %d jobs, want %d", kills, seeds, least)
	}
}
