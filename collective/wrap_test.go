package collective

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// heldMesh holds back what its rank sends to one peer until that peer has sent it a number
// of messages.
type heldMesh struct {
	transport.Mesh
	to   int
	gate *gate
}

// gate counts messages towards a rank.
type gate struct {
	sync.Mutex
	from, left int
	open       chan struct{}
}

func (m heldMesh) Send(peer int, tag transport.Tag, p []byte, timeout time.Duration) error {
	if m.gate.from == m.Rank() && peer == m.to {
		m.gate.Lock()
		if m.gate.left--; m.gate.left == 0 {
			close(m.gate.open)
		}
		m.gate.Unlock()
	} else if peer == m.gate.from {
		select {
		case <-m.gate.open:
		case <-time.After(10 * time.Second):
			return fmt.Errorf("rank %d waits for what rank %d has sent, which waits in turn", m.gate.from, m.Rank())
		}
	}
	return m.Mesh.Send(peer, tag, p, timeout)
}

// Chunks that go past the last to the first are two messages of one exchange: a rank
// sends both before it waits for what it receives, or the wire would be empty meanwhile.
// Of four ranks rank 1 sends such chunks to rank 3 in the first step of halving, and rank 3
// such ones to rank 1 in the last of doubling.
func TestWrappedChunksGoTogether(t *testing.T) {
	for name, c := range map[string]struct {
		from, to int
		run      func(g *Group) error
	}{
		"halving":  {1, 3, func(g *Group) error { return AllReduce(g, make([]float32, 400), Sum) }},
		"doubling": {3, 1, func(g *Group) error { return AllGather(g, make([]float32, 400), make([]float32, 100)) }},
	} {
		meshes, open := mem.New(4), &gate{from: c.from, left: 2, open: make(chan struct{})}
		for r := range meshes {
			meshes[r] = heldMesh{meshes[r], c.to, open}
			if r != c.from && r != c.to {
				meshes[r] = meshes[r].(heldMesh).Mesh
			}
		}
		for r, err := range onMeshes(t, meshes, Config{Algorithm: name}, c.run) {
			if err != nil {
				t.Errorf("%s: rank %d: %v", name, r, err)
			}
		}
	}
}
