package client

import (
	"context"
	"net"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/service"
	"github.com/ringo-ml/ringo/internal/server/service/fake"
	"github.com/ringo-ml/ringo/internal/server/wal"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

// quiet is an engine that makes no garbage: it keeps sessions' numbers and has no rows.
type quiet struct {
	*fake.Engine
	pushed int // rows
}

func (q *quiet) PushRows(_ int, seq uint64, _ int, _ uint64, keys []uint64, _ []float32) (wal.LSN, error) {
	q.pushed += len(keys)
	return wal.LSN{Number: seq}, nil
}

func (q *quiet) PushDense(_ int, seq uint64, _ int, _ uint64, _ int, _ []float32) (wal.LSN, error) {
	return wal.LSN{Number: seq}, nil
}

func (q *quiet) Clock(_ int, seq uint64, _ uint64, _ float64) (wal.LSN, error) {
	return wal.LSN{Number: seq}, nil
}

func (q *quiet) PeekRows(table int, keys []uint64, dst []float32) error {
	return q.PullRows(rows.PullID{}, table, keys, dst)
}

func (q *quiet) PullRows(_ rows.PullID, _ int, keys []uint64, dst []float32) error {
	for i := range dst {
		dst[i] = float32(keys[i/16])
	}
	return nil
}

// overTCP makes a job of servers with engines on loopback, and returns a trainer's
// client. The caller leaves.
func overTCP(t testing.TB, sc schema.Schema, engines []service.Engine, change func(*Config)) *Client {
	t.Helper()
	ticket := transport.NewTicket()
	cfg := Config{Ticket: ticket, Version: "1", Trainers: 1, Schema: sc}
	var ends []chan error
	ctx, cancel := context.WithCancel(context.Background())
	for i, e := range engines {
		s, err := service.New(service.Config{
			Ticket: ticket, Version: "1", Index: i, Servers: len(engines), Trainers: 1, Schema: &sc,
			Open: func(schema.Schema) (service.Engine, error) { return e, nil },
		})
		must(t, err)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		cfg.Servers = append(cfg.Servers, l.Addr().String())
		end := make(chan error, 1)
		ends = append(ends, end)
		go func() { end <- s.Serve(ctx, l) }()
	}
	if change != nil {
		change(&cfg)
	}
	c, err := Dial(context.Background(), cfg)
	must(t, err)
	t.Cleanup(func() {
		c.Close()
		cancel()
		for _, end := range ends {
			must(t, <-end)
		}
	})
	return c
}

// Batches make no garbage, neither here nor on the server, in every code, over one
// server or several, merged or not.
func TestBatchesAllocateNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	sc := schema.Schema{Sparse: []schema.Sparse{{Name: "t", Dim: 16, Rule: sgd}, {Name: "clicks", Dim: 16, Rule: schema.Rule{Name: "click", LR: 1}}}, Dense: []schema.Dense{{Name: "d", Len: 4096, Rule: sgd}}}
	for _, c := range []struct {
		servers int
		code    message.Code
		merge   bool
	}{{1, message.FP32, false}, {2, message.FP32, true}, {1, message.FP16, false}, {3, message.Int8, true}} {
		var engines []service.Engine
		for i := range c.servers {
			engines = append(engines, &quiet{Engine: fake.New(fake.Config{Trainers: 1, Servers: c.servers, Index: i}, sc)})
		}
		cl := overTCP(t, sc, engines, func(cfg *Config) { cfg.Pull, cfg.Push, cfg.Dense, cfg.Merge = c.code, c.code, c.code, c.merge })
		l := cl.Session(0)
		keys := make([]uint64, 2000)
		for i := range keys {
			keys[i] = uint64(i) // small: they are what rows hold
			if c.merge {
				keys[i] /= 2
			}
		}
		rows, grads, dense := make([]float32, 16*len(keys)), slices.Repeat([]float32{1}, 16*len(keys)), make([]float32, 4096)
		counted := slices.Repeat([]float32{1}, 18*len(keys))
		step := uint64(0)
		batch := func() {
			step++
			next, err := l.PullRows(0, step, keys, rows)
			must(t, err)
			must(t, l.PushRows(0, step, keys, grads))
			must(t, l.PushRows(1, step, keys, counted))
			p, err := l.PullDense(0, step, 0, dense)
			must(t, err)
			must(t, l.PushDense(0, step, 0, dense))
			must(t, l.Clock(step, 0.1))
			must(t, next.Wait())
			must(t, p.Wait())
		}
		for range 200 { // all buffers are met
			batch()
		}
		if n := testing.AllocsPerRun(100, batch); n >= 1 {
			t.Errorf("%+v: a batch allocates %v times", c, n)
		}
		if c.code == message.FP32 {
			for i, v := range rows {
				if v != float32(keys[i/16]) {
					t.Fatalf("%+v: value %d is %v, want %v", c, i, v, keys[i/16])
				}
			}
		}
	}
}
