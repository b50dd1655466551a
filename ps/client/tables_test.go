package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/freeport"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/service"
	"github.com/ringo-ml/ringo/internal/server/service/fake"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

var _ service.Engine = (*engine.Engine)(nil)

// Two trainers and two servers with real tables, in bsp mode with a log, over
// connections that are cut again and again: at every step both trainers see the same
// values, which are those that a plain sum gives.
func TestSyncOverBadConnections(t *testing.T) {
	leakcheck.Check(t)
	j := newJob(t, 2, 2, 1, nil, nil)
	for i := range j.engines {
		j.running[i].cancel()
		<-j.running[i].ended
		e, err := engine.Open(engine.Config{
			Index: i, Servers: 2, Trainers: 2, Mode: engine.BSP, Durability: engine.WAL, Dir: t.TempDir(), MaxRows: 1 << 16,
		}, testSchema())
		must(t, err)
		t.Cleanup(func() { must(t, e.Close()) })
		j.serve(i, e)
	}
	var cuts sync.Mutex
	r := rand.New(rand.NewPCG(8, 9))
	j.net.Wrap(func(_ string, c net.Conn) net.Conn {
		cuts.Lock()
		defer cuts.Unlock()
		return fake.NewCut(c, -1, 3000+r.IntN(20000)) // a greeting and a step fit
	})
	const steps = 40
	var all sync.WaitGroup
	var seen [2][]float32
	var stats [2]Stats
	for rank := range 2 {
		all.Go(func() {
			cfg := j.trainer(rank)
			cfg.Merge = true
			c, err := Dial(context.Background(), cfg)
			if err == nil {
				seen[rank], err = trainInSync(c, rank, steps)
				stats[rank] = c.Stats()
			}
			if err == nil {
				err = c.Leave(context.Background())
			}
			if err != nil {
				t.Errorf("trainer %d: %v", rank, err)
			}
		})
	}
	all.Wait()
	for _, r := range j.running {
		<-r.ended
		must(t, r.err)
	}
	if t.Failed() {
		return
	}
	if !slices.Equal(seen[0], seen[1]) {
		t.Error("the trainers saw different values")
	}
	if want := plainSync(steps); !slices.Equal(seen[0], want) {
		t.Error("what they saw is not the plain sum")
	}
	if n := stats[0].Reconnects + stats[1].Reconnects; n < 10 {
		t.Errorf("only %d connections were cut", n)
	}
}

// syncBatch is a trainer's batch of a step: even numbers, so that the mean of two is
// exact.
func syncBatch(rank int, step uint64) (keys []uint64, grads, dense []float32) {
	r := rand.New(rand.NewPCG(uint64(rank), step))
	keys = drawKeys(r, 1+r.IntN(30), true)
	grads, dense = draw(r, 3*len(keys)), draw(r, 1000)
	for _, x := range [][]float32{grads, dense} {
		for i := range x {
			x[i] *= 2
		}
	}
	return keys, grads, dense
}

// trainInSync returns all that a trainer pulls.
func trainInSync(c *Client, rank, steps int) (seen []float32, err error) {
	l := c.Session(0)
	if rank == 0 {
		for i, d := range testSchema().Dense {
			if err := l.SetDense(i, make([]float32, d.Len)); err != nil {
				return nil, err
			}
		}
	}
	watched := drawKeys(rand.New(rand.NewPCG(7, 7)), 60, false)
	for step := uint64(1); step <= uint64(steps)+1; step++ {
		rows, dense := make([]float32, 3*len(watched)), make([]float32, 1000)
		p, err := l.PullRows(0, step, watched, rows)
		if err != nil {
			return nil, err
		}
		q, err := l.PullDense(0, step, 0, dense)
		if err != nil {
			return nil, err
		}
		for _, x := range []*Pull{q, p} {
			if err := x.Wait(); err != nil {
				return nil, err
			}
		}
		seen = append(append(seen, rows...), dense...)
		if step > uint64(steps) {
			break
		}
		keys, grads, ofArray := syncBatch(rank, step)
		if err := l.PushRows(0, step, keys, grads); err != nil {
			return nil, err
		}
		if err := l.PushDense(0, step, 0, ofArray); err != nil {
			return nil, err
		}
		if err := l.Clock(step, -1); err != nil {
			return nil, err
		}
	}
	return seen, nil
}

// plainSync is what both see: SGD with rate 1 on the mean of both trainers' gradients.
func plainSync(steps int) (seen []float32) {
	rows, dense := map[uint64][3]float32{}, make([]float32, 1000)
	watched := drawKeys(rand.New(rand.NewPCG(7, 7)), 60, false)
	for step := uint64(1); ; step++ {
		for _, key := range watched {
			row := rows[key]
			seen = append(seen, row[:]...)
		}
		seen = append(seen, dense...)
		if step > uint64(steps) {
			return seen
		}
		for rank := range 2 {
			keys, grads, ofArray := syncBatch(rank, step)
			for i, key := range keys {
				row := rows[key]
				for k := range row {
					row[k] -= grads[3*i+k] / 2
				}
				rows[key] = row
			}
			for i, v := range ofArray {
				dense[i] -= v / 2
			}
		}
	}
}

// serveTables is the server process that is killed.
func serveTables(addr, ticket, dir string) error {
	t, err := transport.ParseTicket(ticket)
	if err != nil {
		return err
	}
	var e *engine.Engine
	s, err := service.New(service.Config{
		Ticket: t, Version: "1", Servers: 1, Trainers: 2, Times: cluster.Times{Join: time.Hour}, Rejoin: time.Hour,
		Open: func(sc schema.Schema) (service.Engine, error) {
			e, err = engine.Open(engine.Config{Trainers: 2, Mode: engine.Async, Durability: engine.WAL, Dir: dir, MaxRows: 1 << 16}, sc)
			return e, err
		},
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return s.Serve(context.Background(), l)
}

// A server with a log is killed again and again while two trainers push: when they are
// done every push is there, once.
func TestKilledServer(t *testing.T) {
	leakcheck.Check(t)
	kills := 6
	if testing.Short() {
		kills = 2
	}
	addr := freeport.Address(t)
	ticket, dir := transport.NewTicket(), t.TempDir()
	var server *exec.Cmd
	start := func() {
		server = exec.Command(os.Args[0])
		server.Env = append(os.Environ(), "CLIENT_SERVE="+addr, "CLIENT_TICKET="+ticket.String(), "CLIENT_DIR="+dir)
		server.Stdout, server.Stderr = os.Stderr, os.Stderr
		must(t, server.Start())
	}
	start()
	keys := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}
	ones := slices.Repeat([]float32{1}, 3*len(keys))
	stop := make(chan struct{})
	var all sync.WaitGroup
	var pushed [2]int
	var clients [2]*Client
	for rank := range 2 {
		c, err := Dial(context.Background(), processConfig(addr, ticket.String(), rank))
		must(t, err)
		clients[rank] = c
		defer c.Close()
	}
	for i, d := range testSchema().Dense {
		must(t, clients[0].Session(0).SetDense(i, make([]float32, d.Len)))
	}
	for rank, c := range clients {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := c.Session(0).PushRows(0, 1, keys, ones); err != nil {
					t.Error(err)
					return
				}
				pushed[rank]++
			}
		})
	}
	r := rand.New(rand.NewPCG(5, 6))
	for range kills {
		time.Sleep(time.Duration(50+r.IntN(150)) * time.Millisecond)
		must(t, server.Process.Kill())
		_ = server.Wait() // killed
		start()
	}
	time.Sleep(50 * time.Millisecond)
	close(stop)
	all.Wait()
	for _, c := range clients {
		must(t, c.Flush(context.Background()))
	}
	want := -float32(pushed[0] + pushed[1])
	for i, v := range pull(t, clients[1].Session(0), 0, 1, keys) {
		if v != want {
			t.Errorf("value %d is %v after %v pushes", i, v, pushed)
		}
	}
	if n := clients[0].Stats().Reconnects; n < 1 {
		t.Errorf("%d reconnects", n)
	}
	t.Logf("%d and %d pushes", pushed[0], pushed[1])
	for _, c := range clients {
		must(t, c.Leave(context.Background()))
	}
	if err := server.Wait(); err != nil {
		t.Error(fmt.Errorf("the last server: %w", err))
	}
}
