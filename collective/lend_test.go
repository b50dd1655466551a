package collective

import (
	"errors"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/transport"
	"github.com/ringo-ml/ringo/transport/fault"
)

// Callers may write to what was lent as soon as the operation has ended: no rank
// reads it any more.
func TestLentOperandsAreGivenBack(t *testing.T) {
	for _, algorithm := range []string{Ring, Pairwise} {
		for _, size := range []int{2, 3, 4} {
			n := size*lendFrom/4 + 4*size + 1 // chunks of unequal length
			leakcheck.Check(t)
			for r, err := range onMeshes(t, tcpMeshes(t, size), Config{Algorithm: algorithm, SegmentBytes: 96 << 10}, func(g *Group) error {
				if g.lender == nil {
					return errors.New("TCP does not lend")
				}
				want := float32(size * (size + 1) / 2)
				x := make([]float32, n)
				for round := range 6 {
					for i := range x {
						x[i] = float32((g.Rank() + 1) * (i%5 + round))
					}
					if err := AllReduce(g, x, Sum); err != nil {
						return err
					}
					for i, v := range x {
						if v != want*float32(i%5+round) {
							return errors.New("a rank read what another one had written after its operation")
						}
						x[i] = -1
					}
				}
				return nil
			}) {
				if err != nil {
					t.Errorf("%s, rank %d of %d: %v", algorithm, r, size, err)
				}
			}
		}
	}
}

// A parts list of an allgather by ring is lent likewise.
func TestLentPartsAreGivenBack(t *testing.T) {
	const size, part = 3, lendFrom/4 + 3
	for r, err := range onMeshes(t, tcpMeshes(t, size), Config{Algorithm: Ring}, func(g *Group) error {
		src, dst := make([]float32, part), make([]float32, size*part)
		for round := range 4 {
			for i := range src {
				src[i] = float32(100*round + g.Rank())
			}
			if err := AllGather(g, dst, src); err != nil {
				return err
			}
			for i, v := range dst {
				if v != float32(100*round+i/part) {
					return errors.New("a part was overwritten before it was received")
				}
				dst[i] = -1
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// Each rank sends one message more where operands are lent, and as many bytes.
func TestLendingCostsAMessage(t *testing.T) {
	const size = 3
	for _, n := range []int{size * (lendFrom/4 - 1), size * lendFrom / 4} {
		meshes := tcpMeshes(t, size)
		cfg := Config{Algorithm: Ring, SegmentBytes: lendFrom}
		for r, err := range onMeshes(t, meshes, cfg, func(g *Group) error {
			return AllReduce(g, make([]float32, n), Sum)
		}) {
			if err != nil {
				t.Fatalf("rank %d: %v", r, err)
			}
		}
		want := int64(2 * (size - 1))
		if n >= size*lendFrom/4 {
			want++
		}
		for r, m := range meshes {
			got := m.Traffic()
			if got.MessagesSent != want || got.PayloadSent != int64(4*RingValues(n, size, r)) {
				t.Errorf("%d values: rank %d sent %d messages with %d bytes, want %d with %d", n, r, got.MessagesSent, got.PayloadSent, want, 4*RingValues(n, size, r))
			}
		}
	}
}

// A neighbour that never says that it has received everything is named.
func TestAPeerThatDoesNotGiveBack(t *testing.T) {
	const size = 3
	meshes := tcpMeshes(t, size)
	meshes[1] = fault.Wrap(meshes[1], fault.Rule{Rank: 1, Peer: 0, Op: fault.Send, Do: fault.Drop})
	errs := onMeshes(t, meshes, Config{Algorithm: Ring, Timeout: time.Second, SegmentBytes: 1 << 20}, func(g *Group) error {
		return AllReduce(g, make([]float32, size*lendFrom/4), Sum)
	})
	var link *transport.Error
	if !errors.Is(errs[0], transport.ErrTimeout) || !errors.As(errs[0], &link) || link.Peer != 1 {
		t.Errorf("rank 0: %v, want that rank 1 is late", errs[0])
	}
}
