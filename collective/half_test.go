package collective

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/simd"
)

// rounded16 are values as Float16 or BFloat16.
func rounded16[T Float16 | BFloat16](x []float32) []T {
	out := make([]T, len(x))
	if elementOf[T]() == float16s {
		simd.Host().ToHalf(bytesview.As[uint16](bytesview.Bytes(out)), x)
	} else {
		simd.Host().ToBrain(bytesview.As[uint16](bytesview.Bytes(out)), x)
	}
	return out
}

// halves reduces small whole numbers, which every order of sums adds exactly, and
// means of them, which are rounded.
func halves[T Float16 | BFloat16](g *Group) error {
	of := func(rank, i int) float32 { return float32((rank*5+i*3)%4 + 1) }
	for _, n := range []int{0, 1, 7, 24, 25, 100, 1023, 5003} {
		for _, op := range []ReduceOp{Sum, Mean, Min, Max} {
			x := rounded16[T](numbers(n, func(i int) float32 { return of(g.Rank(), i) }))
			if g.share != nil {
				x = put(g, places[n%len(places)], x)
			}
			want := rounded16[T](inRankOrder(n, g.Size(), op, of))
			if err := errors.Join(AllReduce(g, x, op), same(fmt.Sprintf("%v of %d %T", op, n, x), x, want)); err != nil {
				return err
			}
		}
	}
	all, part := make([]T, 3*g.Size()), []T{T(g.Rank()), 5, 7}
	if err := AllGather(g, all, part); err != nil {
		return err
	}
	for r := range g.Size() {
		part[0] = T(r)
		if err := same("allgather", all[3*r:][:3], part); err != nil {
			return err
		}
	}
	return nil
}

// Values of 16 bits are reduced by every algorithm.
func TestHalves(t *testing.T) {
	for _, size := range []int{2, 3, 4, 7} {
		for _, algorithm := range append(Algorithms(), "") {
			m, _ := methodOf(algorithm)
			if fits(m, size) != nil {
				continue
			}
			run := onRanks
			if m == byDirect {
				run = onShared
			}
			run(t, size, Config{Algorithm: algorithm, SegmentBytes: 128}, func(g *Group) error {
				return errors.Join(halves[Float16](g), halves[BFloat16](g))
			})
		}
	}
}

// A sum beyond the type is infinite, on all ranks by every algorithm; a direct mean is
// rounded only at its end.
func TestHalvesOverflow(t *testing.T) {
	infinite := func(g *Group) error {
		a, b := rounded16[Float16]([]float32{40000, -40000, 1}), rounded16[BFloat16]([]float32{3e38, -3e38, 1})
		n := float32(g.Size())
		return errors.Join(AllReduce(g, a, Sum), AllReduce(g, b, Sum),
			same("float16", a, append([]Float16{0x7c00, 0xfc00}, rounded16[Float16]([]float32{n})...)),
			same("bfloat16", b, append([]BFloat16{0x7f80, 0xff80}, rounded16[BFloat16]([]float32{n})...)))
	}
	for _, algorithm := range Algorithms() {
		if algorithm != Direct && algorithm != Exchange {
			onRanks(t, 3, Config{Algorithm: algorithm}, infinite)
		}
	}
	onShared(t, 3, Config{}, func(g *Group) error {
		x := rounded16[Float16]([]float32{40000})
		return errors.Join(infinite(g), AllReduce(g, x, Mean), same("mean", x, rounded16[Float16]([]float32{40000})))
	})
}

// A direct sum of many small values beside a large one is rounded once.
func TestHalvesAreRoundedOnce(t *testing.T) {
	onShared(t, 5, Config{}, func(g *Group) error {
		value := float32(0.5)
		if g.Rank() == 0 {
			value = 1024
		}
		for _, n := range []int{3, 300, 9000} {
			x := rounded16[Float16](numbers(n, func(int) float32 { return value }))
			want := rounded16[Float16](numbers(n, func(int) float32 { return 1026 }))
			if err := errors.Join(AllReduce(g, x, Sum), same("sum", x, want)); err != nil {
				return err
			}
		}
		return nil
	})
}
