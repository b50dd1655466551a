package collective

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// Whatever the lengths, AllGatherV gives what a broadcast of each part gives,
// over every mesh: none, one rank with everything, one without, and random.
func TestAllGatherV(t *testing.T) {
	leakcheck.Check(t)
	for name, mesh := range map[string]func(n int) []transport.Mesh{
		"mem":          mem.New,
		"small buffer": func(n int) []transport.Mesh { return mem.NewLimited(n, 1024) },
		"tcp":          func(n int) []transport.Mesh { return tcpMeshes(t, n) },
	} {
		for _, size := range []int{1, 2, 3, 5, 8} {
			if name == "tcp" && size > 3 {
				continue // larger rings are alike on every mesh
			}
			for r, err := range onMeshes(t, mesh(size), Config{Algorithm: Ring, SegmentBytes: 128}, func(g *Group) error {
				for _, counts := range unevenParts(size) {
					if err := checkGatherV(g, counts, func(rank, i int) float32 { return operand(rank, i) }); err != nil {
						return err
					}
					if err := checkGatherV(g, counts, func(rank, i int) int32 { return int32(1000*rank + i) }); err != nil {
						return err
					}
				}
				return nil
			}) {
				if err != nil {
					t.Errorf("%s, rank %d of %d: %v", name, r, size, err)
				}
			}
		}
	}
}

// unevenParts returns lengths of parts for so many ranks.
func unevenParts(size int) [][]int {
	out := [][]int{make([]int, size)}
	for r := range size {
		one, without := make([]int, size), make([]int, size)
		for i := range without {
			without[i] = 50 + i
		}
		one[r], without[r] = 2000, 0
		out = append(out, one, without)
	}
	rnd := rand.New(rand.NewPCG(1, uint64(size)))
	for range 5 {
		counts := make([]int, size)
		for r := range counts {
			counts[r] = rnd.IntN(500) * rnd.IntN(3)
		}
		out = append(out, counts)
	}
	return out
}

func checkGatherV[T Number](g *Group, counts []int, value func(rank, i int) T) error {
	sum, at := 0, 0
	for r, n := range counts {
		if r == g.Rank() {
			at = sum
		}
		sum += n
	}
	src := make([]T, counts[g.Rank()])
	for i := range src {
		src[i] = value(g.Rank(), i)
	}
	want := make([]T, sum)
	copy(want[at:], src)
	for r, lo := 0, 0; r < g.Size(); r++ {
		if err := Broadcast(g, want[lo:lo+counts[r]], r); err != nil {
			return err
		}
		lo += counts[r]
	}
	dst := make([]T, sum)
	given := slices.Clone(counts)
	w := StartAllGatherV(g, dst, src, given)
	clear(given) // they are the caller's again
	if err := w.Wait(); err != nil {
		return err
	}
	if err := same(fmt.Sprintf("%T by %v", dst, counts), dst, want); err != nil {
		return err
	}
	clear(dst)
	own := dst[at : at+len(src)]
	copy(own, src)
	if err := AllGatherV(g, dst, own, counts); err != nil {
		return err
	}
	return same(fmt.Sprintf("%T in place by %v", dst, counts), dst, want)
}

// Rank r sends everything but the part of rank r+1, in messages of at most a
// segment.
func TestTrafficOfAllGatherV(t *testing.T) {
	for _, size := range []int{2, 3, 5} {
		for _, counts := range unevenParts(size) {
			meshes, sum := mem.New(size), 0
			for _, n := range counts {
				sum += n
			}
			for r, err := range onMeshes(t, meshes, Config{Algorithm: Ring, SegmentBytes: 128}, func(g *Group) error {
				return AllGatherV(g, make([]int32, sum), make([]int32, counts[g.Rank()]), counts)
			}) {
				if err != nil {
					t.Fatalf("rank %d: %v", r, err)
				}
				messages := 0
				for part, n := range counts {
					if part != (r+1)%size {
						messages += (n + 31) / 32
					}
				}
				sent := meshes[r].Traffic()
				if want := 4 * (sum - counts[(r+1)%size]); int(sent.PayloadSent) != want || int(sent.MessagesSent) != messages {
					t.Errorf("%v: rank %d sent %d bytes in %d messages, want %d in %d", counts, r, sent.PayloadSent, sent.MessagesSent, want, messages)
				}
			}
		}
	}
}
