package jobtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	over "github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/exchange/aggregate"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/transport"
)

// reduce sums over the ranks by the servers, checked, and by the group.
func reduce(job *ringo.Job) error {
	if err := sum(job); err != nil {
		return err
	}
	return exchange(job)
}

// sum is an exchange with servers alone.
func sum(job *ringo.Job) error {
	op := &over.Request{X: make([]float32, 5000)}
	for i := range op.X {
		op.X[i] = float32(job.Rank() + i)
	}
	r := job.Reducer()
	if r == nil {
		return errors.New("no reducer")
	}
	r.Start(op)
	if _, err := r.Wait(op); err != nil {
		return err
	}
	n := job.Size()
	for i, v := range op.X {
		if want := float32(n*(n-1)/2 + n*i); v != want {
			return fmt.Errorf("value %d is %v, want %v", i, v, want)
		}
	}
	return nil
}

// reduceOn is a rank that ends only when others do.
func reduceOn(job *ringo.Job) error {
	for {
		if err := reduce(job); err != nil {
			return err
		}
	}
}

func TestLocalServers(t *testing.T) {
	leakcheck.Check(t)
	for _, n := range []int{1, 3} {
		for servers := range 3 {
			err := ringo.Local(t.Context(), n, ringo.Config{Servers: servers}, func(job *ringo.Job) error {
				if job.Size() != n || job.Servers() != servers || job.Group().Size() != n {
					return fmt.Errorf("%d ranks, %d in the group, %d servers", job.Size(), job.Group().Size(), job.Servers())
				}
				if servers == 0 {
					if job.Reducer() != nil {
						return errors.New("a reducer without servers")
					}
					return nil
				}
				return reduce(job)
			})
			if err != nil {
				t.Errorf("%d ranks, %d servers: %v", n, servers, err)
			}
		}
	}
	err := ringo.Local(t.Context(), 3, ringo.Config{Servers: 2}, func(job *ringo.Job) error {
		if job.Rank() == 1 {
			return errBoom
		}
		return reduceOn(job)
	})
	checkText(t, err, "rank 1: "+errBoom.Error())
}

// served is how a server of a test ended.
type served struct {
	figures aggregate.Stats
	place   ringo.Serving
	err     error
}

// withServers runs fn on n ranks placed by hand, and servers beside them.
func withServers(t *testing.T, n, servers int, ctx context.Context, fn func(*ringo.Job) error) ([]error, []served) {
	t.Helper()
	cfgs := byHand(t, n)
	for r := range cfgs {
		cfgs[r].Servers = servers
	}
	out := make([]served, servers)
	var wg sync.WaitGroup
	for i := range servers {
		wg.Go(func() {
			cfg := cfgs[0]
			cfg.Rank = i
			out[i].figures, out[i].err = ringo.Serve(ctx, cfg, func(s ringo.Serving) { out[i].place = s })
		})
	}
	errs := runAll(t, cfgs, fn)
	within(t, wg.Wait)
	return errs, out
}

// Ranks and servers that are started by hand find each other; the ranks share
// memory, with servers beside them.
func TestServe(t *testing.T) {
	leakcheck.Check(t)
	errs, servers := withServers(t, 2, 3, t.Context(), func(job *ringo.Job) error {
		if job.Transport() == ringo.TransportSHM && job.Group().Choice("allreduce", 4000) != collective.Direct {
			return errors.New("the ranks share memory and do not use it")
		}
		return reduce(job)
	})
	for r, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	for i, s := range servers {
		if want := (ringo.Serving{Index: i, Servers: 3, Rank: 2 + i, Trainers: 2}); s.err != nil || s.place != want || s.figures.Exchanges != 1 {
			t.Errorf("server %d: %+v", i, s)
		}
	}
}

// A rank that fails ends the servers, and a server that is stopped the ranks: all
// name it.
func TestServeFaults(t *testing.T) {
	leakcheck.Check(t)
	errs, servers := withServers(t, 2, 2, t.Context(), func(job *ringo.Job) error {
		if err := reduce(job); err != nil {
			return err
		}
		if job.Rank() == 1 {
			return errBoom
		}
		return reduceOn(job)
	})
	checkLost(t, []error{errs[0], servers[0].err, servers[1].err}, 1, "it failed: "+errBoom.Error())

	ctx, cancel := context.WithCancelCause(t.Context())
	errs, servers = withServers(t, 2, 1, ctx, func(job *ringo.Job) error {
		err := sum(job)
		if job.Rank() == 0 {
			cancel(errStop)
		}
		for err == nil {
			err = sum(job)
		}
		return err
	})
	checkLost(t, errs, 2, "rank 2 is lost: server 0: it failed: ")
	for _, err := range append(errs, servers[0].err) {
		checkText(t, err, errStop.Error())
	}
	for _, err := range errs {
		var fault *aggregate.Error
		if !errors.As(err, &fault) {
			t.Errorf("%v is no fault of an exchange with servers", err)
		}
	}
}

// Ranks that exchange different buckets are told what both did, whoever notices.
func TestServeMismatch(t *testing.T) {
	leakcheck.Check(t)
	errs, servers := withServers(t, 2, 1, t.Context(), func(job *ringo.Job) error {
		op := &over.Request{X: make([]float32, 100+job.Rank())}
		job.Reducer().Start(op)
		_, err := job.Reducer().Wait(op)
		return err
	})
	for _, err := range append(errs, servers[0].err) {
		checkText(t, err, "rank 0 pushed fp32, 100 values at 0", "but rank 1 pushed fp32, 101 values at 0")
	}
}

// A process is told when it has the other role, or none.
func TestRoles(t *testing.T) {
	serve := func(cfg ringo.Config) error {
		_, err := ringo.Serve(t.Context(), cfg, nil)
		return err
	}
	checkText(t, serve(ringo.Config{}), "joining the job", "RINGO_RANK is not set")
	checkText(t, serve(ringo.Config{Size: 2, Rank: 1, Servers: 1, Rendezvous: "host:1"}), "server 1: want 0 to 0, the job has 1 servers")
	_, err := ringo.Join(t.Context(), ringo.Config{Servers: 1})
	checkText(t, err, "RINGO_RANK is not set")
	_, err = ringo.Join(t.Context(), ringo.Config{Servers: -1, Aggregate: aggregate.Config{Trainers: 2, SegmentBytes: 1}})
	checkText(t, err, "servers.count -1", "trainers 2", "segment bytes 1")
	for name, value := range map[string]string{
		launch.RankVar: "2", launch.WorldSizeVar: "2", launch.ServersVar: "1", launch.RoleVar: "server",
		launch.RendezvousVar: "127.0.0.1:1", launch.TicketVar: transport.NewTicket().String(),
	} {
		t.Setenv(name, value)
	}
	_, err = ringo.Join(t.Context(), ringo.Config{})
	checkText(t, err, "this process is server 0 of its job", "ringo.Serve")
	checkText(t, serve(ringo.Config{Servers: 2}), "servers 2, but RINGO_SERVERS is 1")
	t.Setenv(launch.RankVar, "1")
	checkText(t, serve(ringo.Config{}), "RINGO_RANK=1 of a server")
	t.Setenv(launch.RoleVar, "")
	checkText(t, serve(ringo.Config{}), "RINGO_RANK=1 is a rank that trains")
}
