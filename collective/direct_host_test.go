package collective

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// hosted is a mesh of which only the ranks of one host share memory.
type hosted struct {
	transport.Mesh
	windows *transport.SharedMemory
}

func (m *hosted) SharedMemory() *transport.SharedMemory { return m.windows }

// onHosts returns a mesh with the windows of each host.
func onHosts(hosts []int) []transport.Mesh {
	members := map[int][]int{}
	for r, h := range hosts {
		members[h] = append(members[h], r)
	}
	meshes := mem.New(len(hosts))
	for _, ranks := range members {
		for i, m := range mem.NewShared(len(ranks), testArena) {
			all := transport.SharedMemoryOf(m)
			meshes[ranks[i]] = &hosted{meshes[ranks[i]], &transport.SharedMemory{
				Ranks: ranks, Index: i, Control: all.Control, Arenas: all.Arenas, Cores: all.Cores, OneProcess: true,
			}}
		}
	}
	return meshes
}

// The hierarchical allreduce within hosts that share memory, from arenas, from
// ordinary memory and from both, is an allreduce; others go on beside it.
func TestHierarchicalDirect(t *testing.T) {
	layouts := hostings
	if raceDetector {
		layouts = layouts[3:5]
	}
	for _, hosts := range layouts {
		for r, err := range onMeshes(t, onHosts(hosts), Config{Algorithm: Hierarchical, Hosts: hosts, SegmentBytes: 4096}, func(g *Group) error {
			if g.share != nil && !g.hostSharesMemory() {
				return errors.New("memory is not used")
			}
			rng := rand.New(rand.NewPCG(uint64(g.Rank()), 5))
			for _, n := range []int{0, 1, 5, 1001, 70001} {
				tr := &trial[float32]{g: g}
				for _, op := range tr.ops() {
					x := tr.filled(g.Rank(), n)
					if g.share != nil {
						x = put(g, places[(n+int(op)+rng.IntN(2))%len(places)], x)
					}
					w := StartAllReduce(g, tr.filled(g.Rank(), 10), Sum)
					tr.check(fmt.Sprintf("%v of %d", op, n), AllReduce(g, x, op), x, tr.reduced(n, op))
					tr.check("beside it", errors.Join(w.Wait(), Barrier(g)), nil, nil)
				}
				if err := errors.Join(tr.errs...); err != nil {
					return err
				}
			}
			return nil
		}) {
			if err != nil {
				t.Errorf("hosts %v: rank %d: %v", hosts, r, err)
			}
		}
	}
}

// So are the other hierarchical operations what they are, on every type and with parts
// of one and of many pieces.
func TestHierarchicalDirectOthers(t *testing.T) {
	layouts := hostings[:7]
	if raceDetector {
		layouts = layouts[3:5]
	}
	for _, hosts := range layouts {
		lengths := []int{0, 1, 5, 301, 2003}
		if len(hosts) <= 4 && !raceDetector {
			lengths = append(lengths, 90001)
		}
		for r, err := range onMeshes(t, onHosts(hosts), Config{Algorithm: Hierarchical, Hosts: hosts, SegmentBytes: 4096}, func(g *Group) error {
			var rng *rand.Rand
			if g.share != nil {
				rng = rand.New(rand.NewPCG(uint64(g.Rank()), 6))
			}
			return errors.Join((&trial[float32]{g: g, rng: rng}).all(lengths), (&trial[uint8]{g: g, rng: rng}).all(lengths[:4]), (&trial[float64]{g: g, rng: rng}).all(lengths[:4]), checkHalves(g))
		}) {
			if err != nil {
				t.Errorf("hosts %v: rank %d: %v", hosts, r, err)
			}
		}
	}
}
