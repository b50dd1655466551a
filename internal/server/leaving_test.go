package server

import (
	"context"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/tiers"
	"github.com/ringo-ml/ringo/ps/offline"
	"github.com/ringo-ml/ringo/transport"
)

// A server that was killed after all trainers had left, before its last checkpoint, needs none of them: started again, it
// saves all and ends in good order.
func TestKilledWhileItLeaves(t *testing.T) {
	ticket, dir := transport.NewTicket(), t.TempDir()
	keep := func(c *Config) {
		c.Dir, c.Durability = dir, engine.WAL
	}
	cfg := Config{Ticket: ticket, Servers: 1, Trainers: 1, Mode: engine.Async}
	keep(&cfg)
	tier, err := tiers.Open(tiers.Config{Deltas: true}, oneTable)
	if err != nil {
		t.Fatal(err)
	}
	tc := cfg.tables()
	tc.Make = tier.Make
	e, err := engine.Open(tc, oneTable)
	if err != nil {
		t.Fatal(err)
	}
	change := func(ticket engine.Ticket, err error) {
		t.Helper()
		if err == nil {
			err = e.Durable(ticket)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	change(e.SetDense(0, 1, 0, 0, make([]float32, 5)))
	change(e.PushRows(0, 2, 0, 1, []uint64{7}, []float32{1, 1}))
	change(e.Clock(0, 3, 1, -1))
	change(e.Leave(0, 4))
	if err := e.Close(); err != nil { // it was killed: this saves nothing
		t.Fatal(err)
	}
	r := run(t, ticket, func(c *Config) {
		keep(c)
		c.Times.Heartbeat, c.Times.DeadAfter = 50*time.Millisecond, 500*time.Millisecond // it waits so long for a trainer that asks again
	})
	if err := <-r.end; err != nil {
		t.Fatal(err)
	}
	j, err := offline.Begin(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	err = j.Each(context.Background(), 0, func(keys []uint64, weights []float32) error {
		found = len(keys) == 1 && keys[0] == 7 && weights[0] == -1
		return nil
	})
	if err != nil || !found || j.Servers[0].About.Applied != 0 && j.Servers[0].UncheckpointedRecords > 0 {
		t.Errorf("%v, row 7: %t, %+v", err, found, j.Servers[0])
	}
}
