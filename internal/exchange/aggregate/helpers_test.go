package aggregate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/internal/transport/tcp"
	"github.com/ringo-ml/ringo/transport"
)

// onMeshes runs body as every trainer of a job whose other members serve, each on
// its own goroutine, and returns all members' errors. A trainer whose body fails
// aborts, as a job does.
func onMeshes(t testing.TB, meshes []transport.Mesh, cfg Config, body func(c *Client) error) []error {
	t.Helper()
	errs := make([]error, len(meshes))
	clients := make([]*Client, cfg.Trainers)
	var wg sync.WaitGroup
	for r, m := range meshes {
		if r >= cfg.Trainers {
			s, err := NewServer(m, cfg)
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() { errs[r] = s.Run(context.Background()) })
			continue
		}
		var err error
		if clients[r], err = NewClient(m, cfg); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			err := body(clients[r])
			if err != nil {
				m.Abort(err)
			}
			errs[r] = errors.Join(err, clients[r].Close())
		})
	}
	wg.Wait()
	for _, m := range meshes {
		m.Close()
	}
	return errs
}

// onTrainers is onMeshes over memory, where every member must succeed.
func onTrainers(t testing.TB, trainers, servers int, cfg Config, body func(c *Client) error) {
	t.Helper()
	cfg.Trainers = trainers
	for r, err := range onMeshes(t, mem.New(trainers+servers), cfg, body) {
		if err != nil {
			t.Errorf("%d trainers, %d servers: %s: %v", trainers, servers, role(r, trainers), err)
		}
	}
}

// tcpMeshes joins n members of this process over the loopback interface.
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
				Rank: r, Size: n, Ticket: ticket, Version: "test", Listener: listeners[r], Addrs: addrs, JoinTimeout: time.Minute,
			})
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return meshes
}

// rank is which trainer a client is.
func (c *Client) rank() int { return c.mesh.Rank() }

// reduce is Start and Wait.
func reduce(c *Client, op *exchange.Request) error {
	c.Start(op)
	_, err := c.Wait(op)
	return err
}

// gradient is a rank's contribution to an exchange: numbers of very different
// size, so that the order of a sum shows, and that float16 has room for.
func gradient(n, rank, turn int) []float32 {
	rnd := rand.NewPCG(uint64(turn), uint64(rank))
	x := make([]float32, n)
	for i := range x {
		u := rnd.Uint64()
		x[i] = math.Float32frombits(uint32(u)&0x807fffff | uint32(117+u>>32%20)<<23)
	}
	return x
}

// entries is a rank's sparse contribution of about a share of n entries, its
// values as q decodes them.
func entries(t testing.TB, n, rank, turn int, share float64, q compress.Quantiser) *compress.Sparse {
	rnd := rand.NewPCG(uint64(turn), uint64(rank)+100)
	s := &compress.Sparse{Len: n}
	for i, v := range gradient(n, rank, turn) {
		if float64(rnd.Uint64()>>11)/(1<<53) < share {
			s.Append(i, v)
		}
	}
	s.Value = decoded(t, q, s.Value)
	return s
}

// decoded is x after a way through a code.
func decoded(t testing.TB, q compress.Quantiser, x []float32) []float32 {
	b, out := make([]byte, q.Size(len(x))), make([]float32, len(x))
	if err := errors.Join(q.Encode(b, x), q.Decode(out, b)); err != nil {
		t.Error(err)
	}
	return out
}

// naiveDense is the sum of what trainers push in a dense exchange, as the server's
// code gives it back, on plain slices and without a cut.
func naiveDense(t testing.TB, q compress.Quantiser, inputs [][]float32) []float32 {
	scale := float32(1)
	if halves(q.Code()) {
		scale = 1 / float32(len(inputs))
	}
	sum := make([]float32, len(inputs[0]))
	for r, x := range inputs {
		x = slices.Clone(x)
		for i := range x {
			x[i] *= scale
		}
		for i, v := range decoded(t, q, x) {
			if r == 0 {
				sum[i] = v
			} else {
				sum[i] += v
			}
		}
	}
	sum = decoded(t, q, sum)
	for i := range sum {
		sum[i] *= float32(math.Round(float64(1 / scale)))
	}
	return sum
}

// naiveSparse is the sum of vectors in the order of ranks.
func naiveSparse(inputs []*compress.Sparse) []float32 {
	sum := make([]float32, inputs[0].Len)
	for _, s := range inputs {
		s.AddTo(sum)
	}
	return sum
}

// sameBits compares float32 by their bits.
func sameBits(what string, got, want []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			return fmt.Errorf("%s: value %d of %d is %v, want %v", what, i, len(want), got[i], want[i])
		}
	}
	return nil
}

// within fails the test when fn takes longer than any of these tests should.
func within(t *testing.T, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute): // on a machine that others use, too
		t.Fatal("no end after two minutes")
	}
}
