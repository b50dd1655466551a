package collective

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/transport/tcp"
	"github.com/ringo-ml/ringo/transport"
)

// tcpMeshes joins n ranks of this process over the loopback interface. Each polls as a rank with a
// core: one that shares a core waits in the kernel, where it would keep the others of its process.
func tcpMeshes(t testing.TB, n int) []transport.Mesh {
	t.Helper()
	listeners, addrs := make([]net.Listener, n), make([]string, n)
	for r := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[r], addrs[r] = l, l.Addr().String()
	}
	meshes, errs := make([]transport.Mesh, n), make([]error, n)
	ticket := transport.NewTicket()
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			meshes[r], errs[r] = tcp.New(context.Background(), tcp.Config{
				Rank: r, Size: n, Ticket: ticket, Version: "test", Listener: listeners[r], Addrs: addrs, JoinTimeout: time.Minute, Lending: tcp.LendAlways, LocalRanks: 1,
			})
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return meshes
}

func TestOverTCP(t *testing.T) {
	leakcheck.Check(t)
	for _, size := range []int{2, 3, 5} {
		for r, err := range onMeshes(t, tcpMeshes(t, size), Config{Algorithm: Ring}, func(g *Group) error {
			big := filled(g.Rank(), 300001)
			w := StartAllReduce(g, big, Mean)
			if err := startMany(g, []int{1, 0, 7, 5000, 70000, 2}); err != nil {
				return err
			}
			if err := w.Wait(); err != nil {
				return err
			}
			if err := same("large mean", big, serialRing(len(big), size, Mean, operand)); err != nil {
				return err
			}
			return Barrier(g)
		}) {
			if err != nil {
				t.Errorf("rank %d of %d: %v", r, size, err)
			}
		}
	}
}

// The naive root keeps up with senders that are far ahead of it.
func TestNaiveOverTCP(t *testing.T) {
	for r, err := range onMeshes(t, tcpMeshes(t, 3), Config{Algorithm: Naive}, func(g *Group) error {
		x := make([]int64, 400001)
		for i := range x {
			x[i] = int64(i * (g.Rank() + 1))
		}
		if err := AllReduce(g, x, Sum); err != nil {
			return err
		}
		for i := range x {
			if x[i] != int64(6*i) {
				return fmt.Errorf("value %d is %d, want %d", i, x[i], 6*i)
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

func TestLostRankOverTCP(t *testing.T) {
	leakcheck.Check(t)
	const size, dead = 4, 2
	meshes := tcpMeshes(t, size)
	for r, err := range onMeshes(t, meshes, Config{Algorithm: Ring}, func(g *Group) error {
		x := make([]float32, 1<<20)
		first := AllReduce(g, x, Sum)
		if g.Rank() == dead {
			die(meshes, dead)
			return nil
		}
		return survive(g, x, dead, first)
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
