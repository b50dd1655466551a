package collective

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// spied is a mesh of memory whose messages are noted.
func spied(n int) ([]transport.Mesh, []*spy) {
	meshes, spies := mem.New(n), make([]*spy, n)
	for r := range meshes {
		spies[r] = &spy{Mesh: meshes[r]}
		meshes[r] = spies[r]
	}
	return meshes, spies
}

// crossing returns the bytes that each host sends to others.
func crossing(spies []*spy, hosts []int) map[int]int {
	out := map[int]int{}
	for r, s := range spies {
		for _, m := range s.log {
			if hosts[m.to] != hosts[r] {
				out[hosts[r]] += m.size
			}
		}
	}
	return out
}

var hostings = [][]int{
	{0, 0, 0}, {0, 1}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}, {7, 7, 1, 1, 2}, {0, 1, 2}, {3, 3, 3, 1, 1, 0}, {0, 0, 1, 2, 1, 2, 2, 0, 1},
}

// Whatever ranks the hosts have, the hierarchical allreduce is one, and between
// hosts goes what the bound says and no more: every slice around the ring of
// hosts, or once each way between two.
func TestHierarchical(t *testing.T) {
	for _, hosts := range hostings {
		for _, n := range []int{0, 1, 5, 1001} {
			meshes, spies := spied(len(hosts))
			for r, err := range onMeshes(t, meshes, Config{Algorithm: Hierarchical, Hosts: hosts, SegmentBytes: 256}, func(g *Group) error {
				tr := &trial[float32]{g: g}
				x := tr.filled(g.Rank(), n)
				tr.check("hierarchical sum", AllReduce(g, x, Sum), x, tr.reduced(n, Sum))
				return errors.Join(tr.errs...)
			}) {
				if err != nil {
					t.Errorf("hosts %v, %d values: rank %d: %v", hosts, n, r, err)
				}
			}
			checkCrossing(t, spies, hosts, n)
		}
		onRanksAt(t, hosts, func(g *Group) error {
			return errors.Join((&trial[float32]{g: g}).all([]int{3, 300}), (&trial[float64]{g: g}).all([]int{301}), (&trial[int32]{g: g}).all([]int{77}))
		})
	}
}

func onRanksAt(t *testing.T, hosts []int, body func(g *Group) error) {
	t.Helper()
	for _, algorithm := range []string{Hierarchical, Ring} {
		onRanks(t, len(hosts), Config{Algorithm: algorithm, Hosts: hosts, SegmentBytes: 128}, func(g *Group) error {
			if err := body(g); err != nil {
				return fmt.Errorf("%s, hosts %v: %w", algorithm, hosts, err)
			}
			return nil
		})
	}
}

func checkCrossing(t *testing.T, spies []*spy, hosts []int, n int) {
	t.Helper()
	ranks, order := map[int]int{}, []int(nil)
	for _, h := range hosts {
		if ranks[h] == 0 {
			order = append(order, h)
		}
		ranks[h]++
	}
	slices := 0
	for _, k := range ranks {
		slices = max(slices, k)
	}
	got := crossing(spies, hosts)
	for place, h := range order {
		want := 0
		for s := range slices {
			lo, hi := RingChunk(n, slices, s)
			switch len(order) {
			case 1:
			case 2:
				want += 4 * (hi - lo)
			default:
				want += 4 * ringValues(hi-lo, len(order), place)
			}
		}
		if got[h] != want {
			t.Errorf("hosts %v, %d values: host %d sent %d bytes to others, want %d", hosts, n, h, got[h], want)
		}
	}
}

// A ring crosses the boundary of each host once in each direction, however the
// ranks are dealt out.
func TestRingFollowsHosts(t *testing.T) {
	for _, hosts := range hostings {
		meshes, spies := spied(len(hosts))
		for _, err := range onMeshes(t, meshes, Config{Algorithm: Ring, Hosts: hosts}, func(g *Group) error {
			x, all := make([]float32, 1000), make([]float32, 100*len(hosts))
			return errors.Join(AllReduce(g, x, Sum), AllGather(g, all, x[:100]), ReduceScatter(g, x[:100], all, Sum))
		}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		out, in, seen := map[int]int{}, map[int]int{}, map[[2]int]bool{}
		for r, s := range spies {
			for _, m := range s.log {
				if hosts[m.to] != hosts[r] && !seen[[2]int{r, m.to}] {
					seen[[2]int{r, m.to}] = true
					out[hosts[r]]++
					in[hosts[m.to]]++
				}
			}
		}
		for _, h := range hosts {
			if want := min(1, distinct(hosts)-1); out[h] != want || in[h] != want {
				t.Errorf("hosts %v: %d ranks of host %d send to others and %d receive, want %d", hosts, out[h], h, in[h], want)
			}
		}
	}
}

// partsCrossing is what each host must send to others at the least when all parts, of n
// values each, are carried around the ring of hosts: K less the parts of the next host,
// or of its own if they are reduced.
func partsCrossing(hosts []int, n int, reduced bool) map[int]int {
	ranks, order := map[int]int{}, []int(nil)
	for _, h := range hosts {
		if ranks[h] == 0 {
			order = append(order, h)
		}
		ranks[h]++
	}
	out := map[int]int{}
	for i, h := range order {
		without := order[(i+1)%len(order)]
		if reduced {
			without = h
		}
		if len(order) > 1 {
			out[h] = 4 * n * (len(hosts) - ranks[without])
		}
	}
	return out
}

// The other hierarchical operations send across the boundary of each host what
// docs/costs.md says, with and without shared memory within hosts, and no more than any
// other algorithm; the rooted ones exactly once to each host.
func TestHierarchicalCrossing(t *testing.T) {
	for _, hosts := range hostings {
		for _, k := range []kind{kindAllGather, kindAllGatherV, kindReduceScatter, kindBroadcast, kindReduce} {
			for _, root := range []int{0, len(hosts) / 2, len(hosts) - 1} {
				if !k.rooted() && root > 0 {
					continue
				}
				got := map[string]map[int]int{}
				for _, algorithm := range []string{Hierarchical, Ring, Tree, Doubling, Pairwise} {
					if m, _ := methodOf(algorithm); implementation(k, m) != nil {
						got[algorithm] = crossingOf(t, mem.New(len(hosts)), k, algorithm, hosts, root)
					}
				}
				checkLeast(t, k, hosts, root, got)
				if root == len(hosts)/2 || !k.rooted() {
					checkLeast(t, k, hosts, root, map[string]map[int]int{Hierarchical: crossingOf(t, onHosts(hosts), k, Hierarchical, hosts, root)})
				}
			}
		}
	}
}

const crossingLen = 60 // values of each rank's part

func crossingOf(t *testing.T, meshes []transport.Mesh, k kind, algorithm string, hosts []int, root int) map[int]int {
	t.Helper()
	spies := make([]*spy, len(hosts))
	for r := range meshes {
		spies[r] = &spy{Mesh: meshes[r]}
		meshes[r] = &hosted{spies[r], transport.SharedMemoryOf(meshes[r])}
	}
	for r, err := range onMeshes(t, meshes, Config{Algorithm: algorithm, Hosts: hosts}, func(g *Group) error { return runFrom(k, g, crossingLen, root) }) {
		if err != nil {
			t.Fatalf("%v by %s, hosts %v: rank %d: %v", k, algorithm, hosts, r, err)
		}
	}
	return crossing(spies, hosts)
}

// runFrom is runOf with any root.
func runFrom(k kind, g *Group, n, root int) error {
	whole := make([]float32, n*g.Size())
	switch k {
	case kindBroadcast:
		return Broadcast(g, whole, root)
	case kindReduce:
		return Reduce(g, whole, Sum, root)
	}
	return runOf(k, g, n)
}

func checkLeast(t *testing.T, k kind, hosts []int, root int, got map[string]map[int]int) {
	t.Helper()
	sum := func(m map[int]int) (all int) {
		for _, bytes := range m {
			all += bytes
		}
		return all
	}
	least, n := sum(got[Hierarchical]), crossingLen
	for algorithm, crossed := range got {
		if sum(crossed) < least {
			t.Errorf("%v, hosts %v, root %d: hierarchical sends %d bytes between hosts, %s %d", k, hosts, root, least, algorithm, sum(crossed))
		}
	}
	if k.rooted() {
		if want := 4 * n * len(hosts) * (distinct(hosts) - 1); least != want {
			t.Errorf("%v, hosts %v, root %d: %d bytes between hosts, want %d", k, hosts, root, least, want)
		}
		return
	}
	for h, want := range partsCrossing(hosts, n, k == kindReduceScatter) {
		if got[Hierarchical][h] != want {
			t.Errorf("%v, hosts %v: host %d sends %d bytes to others, want %d", k, hosts, h, got[Hierarchical][h], want)
		}
	}
}
