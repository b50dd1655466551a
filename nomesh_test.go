package ringo_test

import (
	"context"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/transport"
)

// Ranks without a mesh join nothing: each is there at once, with a group of its own.
func TestNoMesh(t *testing.T) {
	leakcheck.Check(t)
	t.Setenv(launch.TicketVar, transport.NewTicket().String())
	cfg := ringo.Config{NoMesh: true, Size: 3, Rank: 2, Tables: []string{"127.0.0.1:1"}}
	err := ringo.Run(context.Background(), cfg, func(job *ringo.Job) error {
		if !job.NoMesh() || job.Rank() != 2 || job.Size() != 3 || job.Tables() != 1 || job.Transport() != "" || job.Group().Size() != 1 {
			t.Errorf("rank %d of %d, %d servers, over %q, a group of %d", job.Rank(), job.Size(), job.Tables(), job.Transport(), job.Group().Size())
		}
		return collective.AllReduce(job.Group(), []float32{1}, collective.Sum)
	})
	if err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		cfg  ringo.Config
		want string
	}{
		{ringo.Config{NoMesh: true, Size: 1}, "ps.addresses are missing"},
		{ringo.Config{NoMesh: true, Size: 1, Servers: 2, Tables: cfg.Tables}, "2 servers that sum gradients"},
		{ringo.Config{NoMesh: true, Size: 1, Rendezvous: "h:1", Tables: cfg.Tables}, `job.rendezvous "h:1" has no effect`},
		{ringo.Config{NoMesh: true}, launch.RankVar + " is not set: ranks without a mesh (NoMesh) need a launcher"},
	} {
		if _, err := ringo.Join(context.Background(), c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
	env := launch.Env{WorldSize: 2, Ticket: transport.NewTicket(), Tables: cfg.Tables}
	for _, kv := range env.Strings() {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	if _, err := ringo.Join(context.Background(), ringo.Config{}); err == nil || !strings.Contains(err.Error(), launch.RendezvousVar+" is not set, so the launcher started ranks without a mesh") {
		t.Errorf("got %v", err)
	}
	t.Setenv(launch.TablesVar, "")
	t.Setenv(launch.RendezvousVar, "127.0.0.1:1")
	if _, err := ringo.Join(context.Background(), ringo.Config{NoMesh: true}); err == nil || !strings.Contains(err.Error(), launch.TablesVar+" is not set") {
		t.Errorf("got %v", err)
	}
}
