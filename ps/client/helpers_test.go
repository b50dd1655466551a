package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/service"
	"github.com/ringo-ml/ringo/internal/server/service/fake"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

var must, says = fake.Must, fake.Says

var sgd = schema.Rule{Name: "sgd", LR: 1}

func testSchema() schema.Schema { return fake.Schema(1000) }

// job is a job whose servers are in memory, with engines of maps.
type job struct {
	t        testing.TB
	net      fake.Net
	ticket   transport.Ticket
	trainers int
	sessions int
	engines  []*fake.Engine
	config   func(*service.Config)
	running  []*running
}

// running is a server of a job.
type running struct {
	server *service.Server
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // when ended is closed
}

// newJob starts a job's servers.
func newJob(t testing.TB, servers, trainers, sessions int, engine func(*fake.Config), config func(*service.Config)) *job {
	t.Helper()
	j := &job{t: t, ticket: transport.NewTicket(), trainers: trainers, sessions: sessions, config: config}
	for i := range servers {
		ec := fake.Config{Trainers: trainers, Sessions: sessions, Servers: servers, Index: i, LostLeaves: true}
		if engine != nil {
			engine(&ec)
		}
		j.engines = append(j.engines, fake.New(ec, testSchema()))
		j.running = append(j.running, nil)
	}
	for i, e := range j.engines {
		j.serve(i, e)
	}
	t.Cleanup(func() {
		for i, r := range j.running {
			j.engines[i].Hold(false)
			r.cancel()
			<-r.ended
		}
	})
	return j
}

func addr(server int) string { return fmt.Sprintf("host%d:1", server) }

// serve starts a server, in place of the one before.
func (j *job) serve(i int, e service.Engine) *running {
	j.t.Helper()
	sc := testSchema()
	cfg := service.Config{
		Ticket: j.ticket, Version: "1", Settings: setting.Values{message.PathSync: "async"}, Index: i, Servers: len(j.engines), Trainers: j.trainers, Sessions: j.sessions, Schema: &sc,
		Open: func(schema.Schema) (service.Engine, error) { return e, nil },
	}
	if j.config != nil {
		j.config(&cfg)
	}
	s, err := service.New(cfg)
	must(j.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{server: s, cancel: cancel, ended: make(chan struct{})}
	l := j.net.Listen(addr(i))
	go func() {
		defer close(r.ended)
		r.err = s.Serve(ctx, l)
	}()
	j.running[i] = r
	return r
}

// replace ends a server in good order and starts another one with an engine.
func (j *job) replace(i int, e *fake.Engine) {
	j.t.Helper()
	j.engines[i].Hold(false)
	j.running[i].cancel()
	<-j.running[i].ended
	must(j.t, j.running[i].err)
	j.engines[i] = e
	j.serve(i, e)
}

// restart replaces server i by one that goes on with all that it had acknowledged when it
// ended.
func (j *job) restart(i int) {
	j.t.Helper()
	j.running[i].cancel()
	<-j.running[i].ended
	j.replace(i, j.engines[i].Restart())
}

// trainer is the configuration of a trainer.
func (j *job) trainer(rank int) Config {
	cfg := Config{
		Ticket: j.ticket, Version: "1", Trainer: rank, Trainers: j.trainers, Sessions: j.sessions, Schema: testSchema(), Dial: j.net.Dial,
	}
	for i := range j.engines {
		cfg.Servers = append(cfg.Servers, addr(i))
	}
	return cfg
}

// dial connects a trainer.
func (j *job) dial(rank int, change func(*Config)) *Client {
	j.t.Helper()
	cfg := j.trainer(rank)
	if change != nil {
		change(&cfg)
	}
	c, err := Dial(context.Background(), cfg)
	must(j.t, err)
	j.t.Cleanup(func() { c.Close() })
	return c
}

// row is a row where its owner has it.
func (j *job) row(table int, key uint64) []float32 {
	return j.engines[schema.Owner(key, len(j.engines))].Row(table, key)
}

// array is an array of which each server has its range.
func (j *job) array(array int) []float32 {
	out := make([]float32, testSchema().Dense[array].Len)
	for i, e := range j.engines {
		lo, hi := schema.Cut(len(out), len(j.engines), i)
		copy(out[lo:hi], e.Array(array)[lo:hi])
	}
	return out
}

// pull is PullRows and Wait.
func pull(t testing.TB, l *Session, table int, step uint64, keys []uint64) []float32 {
	t.Helper()
	dst := make([]float32, len(keys)*testSchema().Sparse[table].Dim)
	p, err := l.PullRows(table, step, keys, dst)
	must(t, err)
	must(t, p.Wait())
	return dst
}

// breaker makes connections that it can break all at once.
type breaker struct {
	net   *fake.Net
	conns chan net.Conn
}

func newBreaker(n *fake.Net) *breaker {
	b := &breaker{net: n, conns: make(chan net.Conn, 1000)}
	n.Wrap(func(_ string, c net.Conn) net.Conn {
		b.conns <- c
		return c
	})
	return b
}

// cut breaks all connections made so far.
func (b *breaker) cut() {
	for {
		select {
		case c := <-b.conns:
			c.Close()
		default:
			return
		}
	}
}

var errNoDial = errors.New("the network is down")

// peeked is how many rows the servers were asked for without making them.
func (j *job) peeked() (n int) {
	for _, e := range j.engines {
		n += e.Peeked()
	}
	return n
}
