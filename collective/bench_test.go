package collective

import (
	"fmt"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/transport/mem"
)

// BenchmarkAllReduce reports the bus bandwidth as nccl-tests define it:
// 2(N-1)/N times the bytes of the operand per second.
func BenchmarkAllReduce(b *testing.B) {
	for _, size := range []int{2, 4} {
		for _, n := range []int{1, 256, 4096, 65536, 1 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("mem/np=%d/floats=%d", size, n), func(b *testing.B) {
				benchGroups(b, size, n)
			})
		}
	}
}

func benchGroups(b *testing.B, size, n int) {
	groups := make([]*Group, size)
	for r, m := range mem.New(size) {
		groups[r], _ = New(m, Config{})
		defer m.Close()
		defer groups[r].Close()
	}
	benchLoop(b, groups, n)
}

func benchLoop(b *testing.B, groups []*Group, n int) {
	size := len(groups)
	var wg sync.WaitGroup
	b.ReportAllocs()
	for _, g := range groups {
		x := make([]float32, n)
		wg.Go(func() {
			for range b.N {
				if err := AllReduce(g, x, Sum); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	moved := 2 * float64(size-1) / float64(size) * float64(4*n) * float64(b.N)
	b.ReportMetric(moved/1e9/b.Elapsed().Seconds(), "busGB/s")
}

// In the steady state an operation allocates nothing, on any rank.
func TestNoAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	groups := make([]*Group, 3)
	for r, m := range mem.New(3) {
		groups[r], _ = New(m, Config{})
		defer m.Close()
		defer groups[r].Close()
	}
	begin, ended := make([]chan struct{}, 3), make(chan error, 3)
	for r := range groups {
		begin[r] = make(chan struct{})
		x, all := make([]float32, 5000), make([]float32, 15000)
		go func() {
			for range begin[r] {
				ended <- everyOperation(groups[r], x, all)
			}
		}()
		defer close(begin[r])
	}
	round := func() {
		for _, c := range begin {
			c <- struct{}{}
		}
		for range groups {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	for range 20 {
		round()
	}
	if n := testing.AllocsPerRun(100, round); n > 1 {
		t.Errorf("%v allocations in each round", n)
	}
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
	return Barrier(g)
}
