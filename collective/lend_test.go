package collective

import (
	"errors"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/transport/fault"
	"github.com/ringo-ml/ringo/transport"
)

// Callers may write to what was lent as soon as the operation has ended: no rank
// reads it any more.
func TestLentOperandsAreGivenBack(t *testing.T) {
	for _, algorithm := range []string{Ring, Pairwise} {
		for _, size := range []int{2, 3, 4} {
			if raceDetector && size != 3 {
				continue // time
			}
			n := size*zeroCopyMin/4 + 4*size + 1 // chunks of unequal length
			leakcheck.Check(t)
			// two operations in flight, of which neither is to end before the other
			for r, err := range onMeshes(t, tcpMeshes(t, size), Config{Algorithm: algorithm, SegmentBytes: 96 << 10, InFlight: 64}, func(g *Group) error {
				if g.lender == nil {
					return errors.New("TCP does not lend")
				}
				want := float32(size * (size + 1) / 2)
				x, y := make([]float32, n), make([]float32, n+1)
				for round := range 6 {
					for _, p := range [][]float32{x, y} {
						for i := range p {
							p[i] = float32((g.Rank() + 1) * (i%5 + round))
						}
					}
					first, second := StartAllReduce(g, x, Sum), StartAllReduce(g, y, Sum)
					for _, ended := range []struct {
						w *Work
						p []float32
					}{{second, y}, {first, x}} {
						if err := ended.w.Wait(); err != nil {
							return err
						}
						for i, v := range ended.p {
							if v != want*float32(i%5+round) {
								return errors.New("a rank read what another one had written after its operation")
							}
							ended.p[i] = -1
						}
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
	const size, part = 3, zeroCopyMin/4 + 3
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

// Where operands are lent each rank of a ring sends one message more, by pairs those of a
// barrier, and as many bytes.
func TestLendingCostsMessages(t *testing.T) {
	const size = 3
	for i, n := range []int{size * (zeroCopyMin/4 - 1), size * zeroCopyMin / 4, size * (zeroCopyMin/4 - 1), size * zeroCopyMin / 4} {
		meshes := tcpMeshes(t, size)
		cfg := Config{Algorithm: []string{Ring, Pairwise}[i/2], SegmentBytes: zeroCopyMin}
		for r, err := range onMeshes(t, meshes, cfg, func(g *Group) error {
			return AllReduce(g, make([]float32, n), Sum)
		}) {
			if err != nil {
				t.Fatalf("rank %d: %v", r, err)
			}
		}
		want := int64(2 * (size - 1))
		if n >= size*zeroCopyMin/4 {
			want += int64([]int{1, rounds(size)}[i/2])
		}
		for r, m := range meshes {
			got := m.Traffic()
			if got.MessagesSent != want || got.PayloadSent != int64(4*ringValues(n, size, r)) {
				t.Errorf("%d values: rank %d sent %d messages with %d bytes, want %d with %d", n, r, got.MessagesSent, got.PayloadSent, want, 4*ringValues(n, size, r))
			}
		}
	}
}

// A neighbour that never says that it has received everything is named.
func TestAPeerThatDoesNotGiveBack(t *testing.T) {
	t.Parallel()
	const size = 3
	meshes := tcpMeshes(t, size)
	meshes[1] = fault.Wrap(meshes[1], fault.Rule{Rank: 1, Peer: 0, Op: fault.Send, Do: fault.Drop})
	errs := onMeshes(t, meshes, Config{Algorithm: Ring, Timeout: 5 * time.Second, SegmentBytes: 1 << 20}, func(g *Group) error {
		return AllReduce(g, make([]float32, size*zeroCopyMin/4), Sum)
	})
	var link *transport.Error
	if !errors.Is(errs[0], transport.ErrTimeout) || !errors.As(errs[0], &link) || link.Peer != 1 {
		t.Errorf("rank 0: %v, want that rank 1 is late", errs[0])
	}
}
