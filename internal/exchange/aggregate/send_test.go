package aggregate

import (
	"fmt"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// stuckTo is a mesh on which what is sent to a peer does not leave until open is
// closed.
type stuckTo struct {
	transport.Mesh
	peer int
	open chan struct{}
}

func (m stuckTo) Send(to int, tag transport.Tag, p []byte, timeout time.Duration) error {
	if to == m.peer {
		<-m.open
	}
	return m.Mesh.Send(to, tag, p, timeout)
}

// A trainer that does not read holds the others up only when it is as far behind as
// the server keeps sums.
func TestSlowTrainer(t *testing.T) {
	leakcheck.Check(t)
	meshes := mem.New(3)
	defer closeAll(meshes)
	open, cfg := make(chan struct{}), Config{Trainers: 2, SegmentBytes: minSegment}
	s, err := NewServer(stuckTo{meshes[2], 0, open}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	go func() { end <- s.Run(t.Context()) }()
	var clients []*Client
	ops := make([]exchange.Request, 4)
	for r, m := range meshes[:2] {
		c, err := NewClient(m, cfg)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
		for i := range 2 {
			ops[2*r+i].X = gradient(maxInFlight/2*minSegment/4, r, i)
			c.Start(&ops[2*r+i])
		}
	}
	wait := func(r int) {
		for i := range 2 {
			op := &ops[2*r+i]
			if _, err := clients[r].Wait(op); err != nil {
				t.Error(err)
			}
			inputs := [][]float32{gradient(len(op.X), 0, i), gradient(len(op.X), 1, i)}
			if err := sameBits(fmt.Sprintf("rank %d, exchange %d", r, i), op.X, naiveDense(t, compress.FP32{}, inputs)); err != nil {
				t.Error(err)
			}
		}
	}
	within(t, func() { wait(1) })
	close(open)
	within(t, func() { wait(0) })
	for _, c := range clients {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-end; err != nil {
		t.Error(err)
	}
}
