package collective

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/transport/fault"
	"github.com/ringo-ml/ringo/internal/transport/mem"
)

// runOf runs an operation whose whole is n values for each rank, with root 0.
func runOf(k kind, g *Group, n int) error {
	whole, part := make([]float32, n*g.Size()), make([]float32, n)
	switch k {
	case kindAllReduce:
		return AllReduce(g, whole, Sum)
	case kindReduceScatter:
		return ReduceScatter(g, part, whole, Sum)
	case kindAllGather:
		return AllGather(g, whole, part)
	case kindAllGatherV:
		counts := make([]int, g.Size())
		for r := range counts {
			counts[r] = n
		}
		return AllGatherV(g, whole, part, counts)
	case kindBroadcast:
		return Broadcast(g, whole, 0)
	case kindReduce:
		return Reduce(g, whole, Sum, 0)
	case kindGather:
		return Gather(g, whole, part, 0)
	case kindScatter:
		return Scatter(g, part, whole, 0)
	case kindAllToAll:
		return AllToAll(g, make([]float32, n*g.Size()), whole)
	case kindAllToAllV:
		counts := make([]int, g.Size())
		for r := range counts {
			counts[r] = n
		}
		return AllToAllV(g, make([]float32, n*g.Size()), whole, counts, counts)
	case kindBarrier:
		return Barrier(g)
	case kindSend:
		switch g.Rank() {
		case 0:
			return Send(g, whole, 1)
		case 1:
			return Receive(g, whole, 0)
		}
		return nil
	}
	return fmt.Errorf("no operation %d", k)
}

// Each figure is what the mesh counts, for several numbers of ranks and lengths.
func TestFiguresAgainstCounters(t *testing.T) {
	for _, f := range allFormulas() {
		for _, size := range []int{2, 3, 4, 5, 7, 8, 9, 12} {
			if fits(f.method, size) != nil {
				continue
			}
			for _, n := range []int{1, 6, 50} {
				meshes := mem.New(size)
				for r, err := range onMeshes(t, meshes, Config{Algorithm: f.method.String()}, func(g *Group) error { return runOf(f.kind, g, n) }) {
					if err != nil {
						t.Fatalf("%v by %v: rank %d of %d: %v", f.kind, f.method, r, size, err)
					}
				}
				busiest, all, messages := 0.0, 0.0, 0
				for _, m := range meshes {
					sent := m.Traffic()
					busiest = max(busiest, float64(sent.PayloadSent))
					all += float64(sent.PayloadSent)
					messages += int(sent.MessagesSent)
				}
				k := float64(4 * n * size)
				if d := math.Abs(busiest - k*f.busiest(size)); d > 0.01 {
					t.Errorf("%v by %v over %d: the busiest sends %v bytes, the formula says %v", f.kind, f.method, size, busiest, k*f.busiest(size))
				}
				if d := math.Abs(all - k*f.all(size)); d > 0.01 || messages != f.messages(size) {
					t.Errorf("%v by %v over %d: %v bytes in %d messages, the formula says %v in %d", f.kind, f.method, size, all, messages, k*f.all(size), f.messages(size))
				}
			}
		}
	}
}

// Where sending any message takes a second and all else nothing, an operation takes
// as many seconds as it has steps; those of halving and doubling whose chunks wrap
// around up to twice as many.
func TestSteps(t *testing.T) {
	for _, f := range allFormulas() {
		for _, size := range []int{2, 3, 4, 5, 8, 9} {
			if fits(f.method, size) != nil {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				meshes := mem.New(size)
				for r := range meshes {
					meshes[r] = fault.Wrap(meshes[r], fault.Rule{Rank: fault.Any, Peer: fault.Any, Op: fault.Send, Do: fault.Delay, For: time.Second})
				}
				start := time.Now()
				for r, err := range onMeshes(t, meshes, Config{Algorithm: f.method.String()}, func(g *Group) error { return runOf(f.kind, g, 4) }) {
					if err != nil {
						t.Errorf("%v by %v: rank %d of %d: %v", f.kind, f.method, r, size, err)
					}
				}
				took, want := int(time.Since(start)/time.Second), f.steps(size)
				most := want
				if f.kind != kindBarrier && (f.method == byHalving || f.method == byDoubling && f.kind != kindAllReduce) {
					most = 2 * want
				}
				if took < want || took > most {
					t.Errorf("%v by %v over %d takes %d steps, the formula says %d", f.kind, f.method, size, took, want)
				}
			})
		}
	}
}

// So is what the busiest host sends to others or gets from them, whatever ranks it has.
func TestAcrossAgainstCounters(t *testing.T) {
	const n = 12
	for _, f := range allFormulas() {
		for _, hosts := range append(hostings, []int{0, 0, 0, 0, 1, 1, 1, 1}) {
			if fits(f.method, len(hosts)) != nil {
				continue
			}
			meshes, spies := spied(len(hosts))
			for r, err := range onMeshes(t, meshes, Config{Algorithm: f.method.String(), Hosts: hosts}, func(g *Group) error { return runOf(f.kind, g, n) }) {
				if err != nil {
					t.Fatalf("%v by %v, hosts %v: rank %d: %v", f.kind, f.method, hosts, r, err)
				}
			}
			most, in := 0, map[int]int{}
			for _, bytes := range crossing(spies, hosts) {
				most = max(most, bytes)
			}
			for r, s := range spies {
				for _, m := range s.log {
					if h := hosts[m.to]; h != hosts[r] {
						in[h] += m.size
						most = max(most, in[h])
					}
				}
			}
			if want := float64(4*n*len(hosts)) * f.hostTraffic(hosts); math.Abs(float64(most)-want) > 0.01 {
				t.Errorf("%v by %v, hosts %v: %d bytes over the wire of a host, the formula says %v", f.kind, f.method, hosts, most, want)
			}
		}
	}
}

// Every algorithm of every operation is in the table.
func TestFiguresAreComplete(t *testing.T) {
	have := map[[2]int]bool{}
	for _, f := range allFormulas() {
		have[[2]int{int(f.kind), int(f.method)}] = true
	}
	for k := range kindSend {
		for m := byRules + 1; m < methods; m++ {
			in := k
			if k == kindAllGatherV || k == kindAllToAllV {
				in-- // parts that are equal
				if k == kindAllGatherV {
					in = kindAllGather
				}
			}
			if implementation(k, m) != nil && m != byDirect && m != byHierarchy && !have[[2]int{int(in), int(m)}] {
				t.Errorf("%v by %v has no formulas", k, m)
			}
		}
	}
}

// docs/costs.md shows the formulas as they are here; where it does not, the failing
// test prints the table that it must have.
func TestCostsDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString("| operation | algorithm | steps | the busiest rank sends | all ranks send | messages |\n|---|---|---|---|---|---|\n")
	for _, f := range allFormulas() {
		fmt.Fprintf(&b, "| %v | %v | %s | %s | %s | %s |\n", f.kind, f.method, f.text[0], f.text[1], f.text[2], f.text[3])
	}
	doc, err := os.ReadFile("../docs/costs.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), b.String()) {
		t.Errorf("docs/costs.md differs from the formulas, its table must be\n%s", b.String())
	}
	for _, limit := range []string{
		fmt.Sprintf("A segment is %d KiB;", defaultSegment>>10), fmt.Sprintf("at most %d MiB for all other ranks", rowCache>>20),
		fmt.Sprintf("K is %d MiB or more).", zeroCopyMin>>20), fmt.Sprintf("Above %d KiB the sender", eager>>10),
	} {
		if !strings.Contains(string(doc), limit) {
			t.Errorf("docs/costs.md lacks %q", limit)
		}
	}
}
