package collective

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// BenchmarkAllReduce reports the bus bandwidth as nccl-tests define it:
// 2(N-1)/N times the bytes of the operand per second.
func BenchmarkAllReduce(b *testing.B) {
	for _, size := range []int{2, 4} {
		for _, n := range []int{1, 256, 4096, 65536, 1 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("mem/np=%d/floats=%d", size, n), func(b *testing.B) {
				benchGroups(b, mem.New(size), Config{}, n)
			})
		}
	}
}

// The ranks share a process here; see the command's benchmark for processes.
func BenchmarkAllReduceTCP(b *testing.B) {
	for _, n := range []int{1, 65536, 16 << 20} {
		b.Run(fmt.Sprintf("np=2/floats=%d", n), func(b *testing.B) {
			benchGroups(b, tcpMeshes(b, 2), Config{}, n)
		})
	}
}

// BenchmarkSegments shows how the length of messages matters.
func BenchmarkSegments(b *testing.B) {
	for _, n := range []int{65536, 1 << 20, 16 << 20} {
		for kib := 16; kib <= 1024; kib *= 4 {
			b.Run(fmt.Sprintf("mem/np=2/floats=%d/KiB=%d", n, kib), func(b *testing.B) {
				benchGroups(b, mem.New(2), Config{SegmentBytes: kib << 10}, n)
			})
		}
	}
}

func benchGroups(b *testing.B, meshes []transport.Mesh, cfg Config, n int) {
	groups := make([]*Group, len(meshes))
	operands := make([][]float32, len(meshes))
	for r, m := range meshes {
		groups[r], _ = New(m, cfg)
		operands[r] = make([]float32, n)
		defer m.Close()
		defer groups[r].Close()
	}
	benchLoop(b, groups, operands, 1)
	b.ReportAllocs()
	b.ResetTimer()
	benchLoop(b, groups, operands, b.N)
	size := float64(len(groups))
	moved := 2 * (size - 1) / size * float64(4*n) * float64(b.N)
	b.ReportMetric(moved/1e9/b.Elapsed().Seconds(), "busGB/s")
}

func benchLoop(b *testing.B, groups []*Group, operands [][]float32, times int) {
	var wg sync.WaitGroup
	for r, g := range groups {
		wg.Go(func() {
			for range times {
				if err := AllReduce(g, operands[r], Sum); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// In the steady state an operation allocates nothing, on any rank.
func TestNoAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	for name, meshes := range map[string][]transport.Mesh{"mem": mem.New(3), "shared": mem.NewShared(3, testArena), "tcp": tcpMeshes(t, 3)} {
		if n := allocations(t, meshes); n > 1 { // pools are emptied by the collector now and then
			t.Errorf("%s: %v allocations in each round", name, n)
		}
	}
}

func allocations(t *testing.T, meshes []transport.Mesh) uint64 {
	begin, ended := make([]chan struct{}, len(meshes)), make(chan error, len(meshes))
	for r, m := range meshes {
		g, _ := New(m, Config{})
		defer m.Close()
		defer g.Close()
		begin[r] = make(chan struct{})
		defer close(begin[r])
		x, all := make([]float32, 5000), make([]float32, 5000*len(meshes))
		if g.share != nil {
			x = bytesview.As[float32](g.share.windows.Alloc(4 * len(x)))
		}
		go func() {
			for range begin[r] {
				ended <- everyOperation(g, x, all)
			}
		}()
	}
	round := func() {
		for _, c := range begin {
			c <- struct{}{}
		}
		for range meshes {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	for range 50 {
		round()
	}
	// testing.AllocsPerRun would leave one thread to all ranks, which then learn of messages when the runtime's monitor looks.
	const rounds = 50
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		round()
	}
	runtime.ReadMemStats(&after)
	return (after.Mallocs - before.Mallocs) / rounds
}

func everyOperation(g *Group, x, all []float32) error {
	a, b := StartAllReduce(g, x, Mean), StartAllReduce(g, all[:10], Sum)
	if err := b.Wait(); err != nil {
		return err
	}
	if err := a.Wait(); err != nil {
		return err
	}
	if err := Broadcast(g, x, 1); err != nil {
		return err
	}
	if err := AllGather(g, all, x); err != nil {
		return err
	}
	counts := [3]int{700, 0, 4000}
	if err := AllGatherV(g, all[:4700], x[:counts[g.Rank()]], counts[:]); err != nil {
		return err
	}
	for _, n := range []int{1, 300, 3000} {
		err := errors.Join(AllReduce(g, x[:n], Sum), AllReduce(g, all[:n], Max), Reduce(g, x[:n], Sum, 1),
			ReduceScatter(g, x[:n], all[:3*n], Sum), AllToAll(g, all[:3*n], all[5000:][:3*n]), Gather(g, all[:3*n], x[:n], 0),
			Scatter(g, x[:n], all[:3*n], 2), AllReduce(g, bytesview.As[int64](bytesview.Bytes(all[:2*n])), Prod))
		if err != nil {
			return err
		}
	}
	for k := kindReduceScatter; k < kindSend; k++ {
		if err := steady(k, g, x, all); err != nil {
			return err
		}
	}
	return Barrier(g)
}

// steady runs an operation in given memory.
func steady(k kind, g *Group, x, all []float32) error {
	counts := [3]int{100, 200, 0}
	switch k {
	case kindReduceScatter:
		return ReduceScatter(g, x, all, Sum)
	case kindReduce:
		return Reduce(g, x, Sum, 2)
	case kindGather:
		return Gather(g, all, x, 1)
	case kindScatter:
		return Scatter(g, x, all, 1)
	case kindAllToAll:
		return AllToAll(g, x[:300], all[:300])
	case kindAllToAllV:
		own := counts[g.Rank()]
		sends := [3]int{own, own, own}
		if err := AllToAllV(g, x[:300], all[:3*own], sends[:], counts[:]); err != nil {
			return err
		}
		w := StartSend(g, x[:10], (g.Rank()+1)%3)
		err := Receive(g, all[:10], (g.Rank()+2)%3)
		return errors.Join(w.Wait(), err)
	}
	return nil
}
