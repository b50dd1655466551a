package trainer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/service"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const (
	denseLen  = 1000
	rowDim    = 3
	tableRows = 300
)

// testSchema has a dense array and a table of few rows.
func testSchema(rule string, rate float64) schema.Schema {
	r := schema.Rule{Name: rule, LR: rate}
	return schema.Schema{
		Dense:  []schema.Dense{{Name: "dense", Len: denseLen, Rule: schema.Rule{Name: "sgd", LR: rate}}},
		Sparse: []schema.Sparse{{Name: "rows", Dim: rowDim, Rule: r, Init: schema.Init{Name: "uniform", Value: 0.5}, Seed: 5}},
	}
}

// job has servers with real tables.
type job struct {
	t      testing.TB
	schema schema.Schema
	client client.Config
	seats  []seat
}

// seat is a server of a job, which can be killed and started again.
type seat struct {
	start func(net.Listener)
	stop  func()
}

// restart kills a server and starts it again where it was.
func (j *job) restart(server int) {
	j.t.Helper()
	j.seats[server].stop()
	l, err := net.Listen("tcp", j.client.Servers[server])
	must(j.t, err)
	j.seats[server].start(l)
}

func newJob(t testing.TB, cfg engine.Config, sc schema.Schema) *job {
	t.Helper()
	if cfg.Durability == "" {
		cfg.Durability = engine.None
	}
	ticket := transport.NewTicket()
	j := &job{t: t, schema: sc, client: client.Config{Ticket: ticket, Version: "1", Trainers: cfg.Trainers, Sessions: cfg.Sessions, Schema: sc}}
	j.seats = make([]seat, cfg.Servers)
	for i := range cfg.Servers {
		cfg := cfg
		cfg.Index = i
		if cfg.Dir != "" && cfg.Servers > 1 {
			cfg.Dir = filepath.Join(cfg.Dir, fmt.Sprint(i))
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		j.client.Servers = append(j.client.Servers, l.Addr().String())
		at := &j.seats[i]
		at.start = func(l net.Listener) { at.stop = j.serve(cfg, ticket, l) }
		at.start(l)
		t.Cleanup(func() { at.stop() })
	}
	return j
}

// serve starts a server, and returns what ends it.
func (j *job) serve(cfg engine.Config, ticket transport.Ticket, l net.Listener) (stop func()) {
	t := j.t
	t.Helper()
	e, err := engine.Open(cfg, j.schema)
	must(t, err)
	s, err := service.New(service.Config{
		Ticket: ticket, Version: "1", Index: cfg.Index, Servers: cfg.Servers, Trainers: cfg.Trainers, Sessions: cfg.Sessions, Schema: &j.schema,
		Open: func(schema.Schema) (service.Engine, error) { return e, nil },
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan error, 1)
	go func() { end <- s.Serve(ctx, l) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-end; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		must(t, e.Close())
	})
}

// trainers makes a rank's trainers, one for each session. Their values are what initial says, or the
// servers'.
func (j *job) trainers(rank int, change func(*Config)) (all []*Trainer) {
	j.t.Helper()
	cfg := j.client
	cfg.Trainer = rank
	c, err := client.Dial(context.Background(), cfg)
	must(j.t, err)
	j.t.Cleanup(func() { must(j.t, c.Close()) })
	for session := range max(1, cfg.Sessions) {
		tc := Config{Client: c, Session: session, Schema: j.schema, Values: initial(), Lookups: []Lookup{{Rows: tableRows}}, First: rank+session == 0}
		if change != nil {
			change(&tc)
		}
		tr, err := New(tc)
		must(j.t, err)
		j.t.Cleanup(func() { must(j.t, tr.Close()) })
		all = append(all, tr)
	}
	return all
}

// initial are the dense values at first.
func initial() (x []float32) {
	for i := range denseLen {
		x = append(x, float32(i%17)/16)
	}
	return x
}

// all are the rows of the servers.
func all(t testing.TB, tr *Trainer) (rows []float32) {
	t.Helper()
	must(t, tr.Each(0, func(some []float32) error {
		rows = append(rows, slices.Clone(some)...)
		return nil
	}))
	return rows
}

// different are ids, each once, ascending: what nn gives the gradient of.
func different(mapped []int32) []int32 {
	at := slices.Clone(mapped)
	slices.Sort(at)
	return slices.Compact(at)
}

// fetch is Fetch of ids, of the one table.
func fetch(tr *Trainer, ids []int32) (mapped []int32, rows []float32, err error) {
	if err = tr.Fetch(Batch{IDs: ids}); err != nil {
		return nil, nil, err
	}
	mapped, rows = tr.Rows(0)
	return mapped, rows, nil
}

// peek is fetch that leaves rows as they are.
func peek(tr *Trainer, ids []int32) (mapped []int32, rows []float32, err error) {
	if err = tr.Peek(Batch{IDs: ids}); err != nil {
		return nil, nil, err
	}
	mapped, rows = tr.Rows(0)
	return mapped, rows, nil
}
