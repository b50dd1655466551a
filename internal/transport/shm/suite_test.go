package shm

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/transport/meshtest"
	"github.com/ringo-ml/ringo/internal/transport/tcp"
	"github.com/ringo-ml/ringo/transport"
)

var ticket = transport.NewTicket()

const version = "test"

// inner returns a mesh of n ranks without windows.
func inner(t testing.TB, n int) []transport.Mesh {
	t.Helper()
	listeners, addrs := make([]net.Listener, n), make([]string, n)
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[i], addrs[i] = l, l.Addr().String()
	}
	meshes := make([]transport.Mesh, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			m, err := tcp.New(t.Context(), tcp.Config{
				Rank: i, Size: n, Ticket: ticket, Version: version, Listener: listeners[i], Addrs: addrs, JoinTimeout: time.Minute,
			})
			if err != nil {
				t.Error(err)
				return
			}
			meshes[i] = m
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return meshes
}

// arranged calls New for every rank at once. change may alter a rank's
// configuration.
func arranged(ctx context.Context, meshes []transport.Mesh, change func(rank int, cfg *Config)) ([]*Mesh, []error) {
	out, errs := make([]*Mesh, len(meshes)), make([]error, len(meshes))
	var all sync.WaitGroup
	for i, m := range meshes {
		all.Go(func() {
			cfg := Config{Ticket: ticket, Version: version, ArenaBytes: meshtest.ArenaBytes, JoinTimeout: time.Minute}
			if change != nil {
				change(i, &cfg)
			}
			out[i], errs[i] = New(ctx, m, cfg)
		})
	}
	all.Wait()
	return out, errs
}

func formed(t testing.TB, n int, change func(rank int, cfg *Config)) []*Mesh {
	t.Helper()
	out, errs := arranged(t.Context(), inner(t, n), change)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return out
}

func asMeshes(in []*Mesh) []transport.Mesh {
	out := make([]transport.Mesh, len(in))
	for i, m := range in {
		out[i] = m
	}
	return out
}

func TestSuite(t *testing.T) {
	form := func(t testing.TB, n int) []transport.Mesh { return asMeshes(formed(t, n, nil)) }
	meshtest.Run(t, form)
	meshtest.RunWindows(t, form)
}
