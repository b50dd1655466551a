package jobtest

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
	cfg := ringo.Config{ServersOnly: true, Size: 3, Rank: 2, ParameterServers: []string{"127.0.0.1:1"}}
	err := ringo.Run(context.Background(), cfg, func(job *ringo.Job) error {
		if !job.ServersOnly() || job.Rank() != 2 || job.Size() != 3 || job.ParameterServers() != 1 || job.Transport() != "" || job.Group().Size() != 1 {
			t.Errorf("rank %d of %d, %d servers, over %q, a group of %d", job.Rank(), job.Size(), job.ParameterServers(), job.Transport(), job.Group().Size())
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
		{ringo.Config{ServersOnly: true, Size: 1}, "ps.addresses are missing"},
		{ringo.Config{ServersOnly: true, Size: 1, Servers: 2, ParameterServers: cfg.ParameterServers}, "2 aggregation servers"},
		{ringo.Config{ServersOnly: true, Size: 1, Rendezvous: "h:1", ParameterServers: cfg.ParameterServers}, `job.rendezvous "h:1" has no effect`},
		{ringo.Config{ServersOnly: true}, launch.RankVar + " is not set: ranks without a mesh (ServersOnly) need a launcher"},
	} {
		if _, err := ringo.Join(context.Background(), c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
	env := launch.RankEnv{WorldSize: 2, Ticket: transport.NewTicket(), Tables: cfg.ParameterServers}
	for _, kv := range env.Strings() {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	if _, err := ringo.Join(context.Background(), ringo.Config{}); err == nil || !strings.Contains(err.Error(), launch.RendezvousVar+" is not set, so the launcher started ranks without a mesh") {
		t.Errorf("got %v", err)
	}
	t.Setenv(launch.ParameterServersVar, "")
	t.Setenv(launch.RendezvousVar, "127.0.0.1:1")
	if _, err := ringo.Join(context.Background(), ringo.Config{ServersOnly: true}); err == nil || !strings.Contains(err.Error(), launch.ParameterServersVar+" is not set") {
		t.Errorf("got %v", err)
	}
}
