package collective

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// numeric is what the oracle can add.
type numeric interface {
	float32 | float64 | int32 | int64 | uint8
}

// trial runs the operations of one group on one type against their definitions.
// Values are small whole numbers, so that every order of additions gives the same.
type trial[T numeric] struct {
	g    *Group
	errs []error
	rng  *rand.Rand // if set, whether operands lie in the arena
	used int        // of the arena
}

// put returns x or a copy of it in the arena, which is used over and over.
func (t *trial[T]) put(x []T) []T {
	if t.rng == nil || t.rng.IntN(3) == 0 {
		return x
	}
	p := bytesview.Bytes(x)
	arena := t.g.share.windows.Arena()
	if t.used += t.rng.IntN(5) * 8; t.used+len(p) > len(arena) {
		t.used = 0
	}
	copy(arena[t.used:], p)
	at := arena[t.used:][:len(p):len(p)]
	t.used += (len(p) + 7) &^ 7
	return bytesview.As[T](at)
}

func (t *trial[T]) value(rank, i int) T { return T((rank*5+i*3)%4 + 1) }

func (t *trial[T]) filled(rank, n int) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = t.value(rank, i)
	}
	return x
}

// reduced is the reduction of all ranks' n values, in rank order.
func (t *trial[T]) reduced(n int, op ReduceOp) []T {
	out := t.filled(0, n)
	for i := range out {
		for r := 1; r < t.g.Size(); r++ {
			v := t.value(r, i)
			switch op {
			case Sum, Mean:
				out[i] += v
			case Min:
				out[i] = min(out[i], v)
			case Max:
				out[i] = max(out[i], v)
			case Prod:
				out[i] *= v
			}
		}
		if op == Mean {
			out[i] = T(float64(out[i]) * (1 / float64(t.g.Size())))
			if f, ok := any(out).([]float32); ok {
				sum := float32(0)
				for r := range t.g.Size() {
					sum += float32(t.value(r, i))
				}
				f[i] = sum * (1 / float32(t.g.Size()))
			}
		}
	}
	return out
}

func (t *trial[T]) check(what string, err error, got, want []T) {
	if err == nil {
		err = same(what, got, want)
	}
	if err != nil {
		t.errs = append(t.errs, fmt.Errorf("%s of %T over %d: %w", what, got, t.g.Size(), err))
	}
}

func (t *trial[T]) ops() []ReduceOp {
	if elementOf[T]().float() {
		return []ReduceOp{Sum, Mean, Min, Max, Prod}
	}
	return []ReduceOp{Sum, Min, Max, Prod}
}

func (t *trial[T]) all(lengths []int) error {
	for _, n := range lengths {
		for _, op := range t.ops() {
			t.reductions(n, op)
		}
		t.gathers(n)
		t.swaps(n)
		for _, root := range []int{0, t.g.Size() / 2, t.g.Size() - 1} {
			t.rooted(n, root)
		}
	}
	return errors.Join(t.errs...)
}

func (t *trial[T]) reductions(n int, op ReduceOp) {
	g, size := t.g, t.g.Size()
	x := t.put(t.filled(g.Rank(), n))
	t.check(fmt.Sprintf("allreduce (%v) of %d", op, n), AllReduce(g, x, op), x, t.reduced(n, op))

	src, dst := t.put(t.filled(g.Rank(), n*size)), t.put(make([]T, n))
	want := t.reduced(n*size, op)[g.Rank()*n:][:n]
	what := fmt.Sprintf("reducescatter (%v) of %d", op, n)
	t.check(what, ReduceScatter(g, dst, src, op), dst, want)
	t.check(what+", its source", nil, src, t.filled(g.Rank(), n*size))
	t.check(what+" in place", ReduceScatter(g, src[g.Rank()*n:][:n], src, op), src[g.Rank()*n:][:n], want)

	root := (n + int(op)) % size
	x = t.put(t.filled(g.Rank(), n))
	want = t.filled(g.Rank(), n)
	if g.Rank() == root {
		want = t.reduced(n, op)
	}
	t.check(fmt.Sprintf("reduce (%v) of %d to %d", op, n, root), Reduce(g, x, op, root), x, want)
}

func (t *trial[T]) gathers(n int) {
	g, size := t.g, t.g.Size()
	var want []T
	counts := make([]int, size)
	var uneven []T
	for r := range size {
		want = append(want, t.filled(r, n)...)
		counts[r] = (n + r) * (r % 3)
		uneven = append(uneven, t.filled(r, counts[r])...)
	}
	dst := t.put(make([]T, n*size))
	t.check(fmt.Sprintf("allgather of %d", n), AllGather(g, dst, t.put(t.filled(g.Rank(), n))), dst, want)
	t.apart(n, want)
	dst = t.put(make([]T, len(uneven)))
	t.check(fmt.Sprintf("allgatherv of %v", counts), AllGatherV(g, dst, t.put(t.filled(g.Rank(), counts[g.Rank()])), counts), dst, uneven)
}

// apart gathers to slices that lie apart, on odd ranks, while the others call AllGather: it is one operation.
func (t *trial[T]) apart(n int, want []T) {
	src, what := t.put(t.filled(t.g.Rank(), n)), fmt.Sprintf("allgather of %d to parts", n)
	if t.g.Rank()%2 == 0 {
		dst := t.put(make([]T, len(want)))
		t.check(what+", here together", AllGather(t.g, dst, src), dst, want)
		return
	}
	var dst [][]T
	for range t.g.Size() {
		dst = append(dst, t.put(make([]T, n)))
	}
	dst[t.g.Rank()] = src // may be its own place
	err := AllGatherTo(t.g, dst, src)
	for r, part := range dst {
		t.check(fmt.Sprintf("%s, that of rank %d", what, r), err, part, want[r*n:][:n])
	}
}

func (t *trial[T]) swaps(n int) {
	g, size := t.g, t.g.Size()
	// to r goes what begins at place 7r of this rank's values
	parcel := func(from, to, n int) []T {
		return t.filled(from, 7*to+n)[7*to:]
	}
	var src, want, srcV, wantV []T
	sends, recvs := make([]int, size), make([]int, size)
	for r := range size {
		src = append(src, parcel(g.Rank(), r, n)...)
		want = append(want, parcel(r, g.Rank(), n)...)
		sends[r] = (n + g.Rank()) * (r % 3)
		recvs[r] = (n + r) * (g.Rank() % 3)
		srcV = append(srcV, parcel(g.Rank(), r, sends[r])...)
		wantV = append(wantV, parcel(r, g.Rank(), recvs[r])...)
	}
	dst := t.put(make([]T, len(src)))
	src, srcV = t.put(src), t.put(srcV)
	t.check(fmt.Sprintf("alltoall of %d", n), AllToAll(g, dst, src), dst, want)
	dst = t.put(make([]T, len(wantV)))
	t.check(fmt.Sprintf("alltoallv of %v, %v", sends, recvs), AllToAllV(g, dst, srcV, sends, recvs), dst, wantV)

	if size == 1 {
		return
	}
	right, left := (g.Rank()+1)%size, mod(g.Rank()-1, size)
	w, first := StartSend(g, t.filled(g.Rank(), n), right), StartSend(g, t.filled(g.Rank(), n+1), right)
	x, y := make([]T, n), make([]T, n+1)
	t.check(fmt.Sprintf("receive of %d", n), Receive(g, x, left), x, t.filled(left, n))
	t.check(fmt.Sprintf("receive of %d", n+1), Receive(g, y, left), y, t.filled(left, n+1))
	t.check("send", errors.Join(first.Wait(), w.Wait()), nil, nil)
}

func (t *trial[T]) rooted(n, root int) {
	g, size := t.g, t.g.Size()
	x := t.put(t.filled(g.Rank(), n))
	t.check(fmt.Sprintf("broadcast of %d from %d", n, root), Broadcast(g, x, root), x, t.filled(root, n))
	var all, into []T
	for r := range size {
		all = append(all, t.filled(r, n)...)
	}
	if g.Rank() == root {
		into = t.put(make([]T, n*size))
	}
	err := Gather(g, into, t.put(t.filled(g.Rank(), n)), root)
	want := all
	if g.Rank() != root {
		want = nil
	}
	t.check(fmt.Sprintf("gather of %d to %d", n, root), err, into, want)
	part := t.put(make([]T, n))
	t.check(fmt.Sprintf("scatter of %d from %d", n, root), Scatter(g, part, t.put(want), root), part, t.filled(g.Rank(), n))
}

// Every operation by every algorithm, on every type, for every number of ranks,
// with lengths that are odd, short of the number of ranks, and none, gives what
// its definition says. Groups of 5 ranks use all types, others one of each size: the
// kernels of the others do not depend on the number of ranks.
func TestEverything(t *testing.T) {
	sizes := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 16}
	if testing.Short() {
		sizes = []int{2, 3, 5, 8}
	}
	for _, size := range sizes {
		lengths := []int{0, 1, size - 1, 37, 150 + size}
		for _, algorithm := range append(Algorithms(), "") {
			if m, _ := methodOf(algorithm); m == byDirect || fits(m, size) != nil {
				continue
			}
			onRanks(t, size, Config{Algorithm: algorithm, SegmentBytes: 128}, func(g *Group) error {
				err := errors.Join((&trial[float32]{g: g}).all(lengths), checkHalves(g))
				if size == 5 || !testing.Short() {
					err = errors.Join(err, (&trial[float64]{g: g}).all(lengths), (&trial[uint8]{g: g}).all(lengths))
				}
				if size == 5 {
					err = errors.Join(err, (&trial[int32]{g: g}).all(lengths), (&trial[int64]{g: g}).all(lengths))
				}
				if err != nil {
					return fmt.Errorf("%s: %w", algorithm, err)
				}
				return nil
			})
		}
	}
}

// All ranks end with the same bits, and with the same in every run, though the
// values round, and though some are NaNs of different payloads.
// It holds invariant[sum-order].
func TestSameBits(t *testing.T) {
	for _, size := range []int{2, 3, 4, 5, 8} {
		for _, algorithm := range Algorithms() {
			if m, _ := methodOf(algorithm); m == byDirect || fits(m, size) != nil {
				continue
			}
			var first []uint64
			for range 2 {
				results := make([][]uint64, size)
				onRanks(t, size, Config{Algorithm: algorithm, SegmentBytes: 128}, func(g *Group) error {
					var err error
					results[g.Rank()], err = bitsOfSums(g)
					return err
				})
				if first == nil {
					first = results[0]
				}
				for r := range results {
					if !slices.Equal(results[r], first) {
						t.Errorf("%s over %d: rank %d differs", algorithm, size, r)
					}
				}
			}
		}
	}
}

func bitsOfSums(g *Group) ([]uint64, error) {
	var out []uint64
	for _, n := range []int{1, 5, 403} {
		for op := range reductions {
			x, y := make([]float32, n), make([]float64, n)
			for i := range x {
				x[i], y[i] = operand(g.Rank(), i), float64(operand(g.Rank(), i))/3
				if i%7 == 3 && (i+g.Rank())%2 == 0 {
					x[i] = math.Float32frombits(0x7fc00000 + uint32(g.Rank()+1))
					y[i] = math.Float64frombits(0x7ff8000000000000 + uint64(g.Rank()+1))
				}
			}
			if err := errors.Join(AllReduce(g, x, op), AllReduce(g, y, op)); err != nil {
				return nil, err
			}
			for i := range x {
				out = append(out, uint64(math.Float32bits(x[i])), math.Float64bits(y[i]))
			}
		}
	}
	return out, nil
}

// The 16-bit types compute what float32 does, of values that both hold, and round
// the mean.
func checkHalves(g *Group) error {
	const n = 131
	var errs []error
	for op := range reductions {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32((g.Rank()+i)%2 + 1)
			if op == Sum || op == Mean {
				x[i] = float32((g.Rank()*5+i*3)%7) / 4
			}
		}
		a, b, got := make([]Float16, n), make([]BFloat16, n), make([]float32, n)
		ToFloat16(a, x)
		ToBFloat16(b, x)
		errs = append(errs, AllReduce(g, x, op), AllReduce(g, a, op), AllReduce(g, b, op))
		FromFloat16(got, a)
		errs = append(errs, near(fmt.Sprintf("%v of float16", op), got, x, 1.0/2048))
		FromBFloat16(got, b)
		errs = append(errs, near(fmt.Sprintf("%v of bfloat16", op), got, x, 1.0/256))
		errs = append(errs, checkHalfParts(g, op))
	}
	return errors.Join(errs...)
}

// checkHalfParts compares the other reductions of 16 bits with those of float32.
func checkHalfParts(g *Group, op ReduceOp) error {
	const n = 21
	size, root := g.Size(), int(op)%g.Size()
	x := make([]float32, n*size)
	for i := range x {
		x[i] = float32((g.Rank()+i)%2 + 1)
	}
	a, b, got := make([]Float16, len(x)), make([]BFloat16, len(x)), make([]float32, len(x))
	ToFloat16(a, x)
	ToBFloat16(b, x)
	part, partA, partB := make([]float32, n), make([]Float16, n), make([]BFloat16, n)
	errs := []error{ReduceScatter(g, part, x, op), ReduceScatter(g, partA, a, op), ReduceScatter(g, partB, b, op)}
	FromFloat16(got[:n], partA)
	errs = append(errs, near(fmt.Sprintf("%v of float16, scattered", op), got[:n], part, 1.0/2048))
	FromBFloat16(got[:n], partB)
	errs = append(errs, near(fmt.Sprintf("%v of bfloat16, scattered", op), got[:n], part, 1.0/256))
	errs = append(errs, Reduce(g, x, op, root), Reduce(g, a, op, root), Reduce(g, b, op, root))
	FromFloat16(got, a)
	errs = append(errs, near(fmt.Sprintf("%v of float16, reduced", op), got, x, 1.0/2048))
	FromBFloat16(got, b)
	return errors.Join(append(errs, near(fmt.Sprintf("%v of bfloat16, reduced", op), got, x, 1.0/256))...)
}

func near(what string, got, want []float32, tolerance float64) error {
	for i := range want {
		if d := math.Abs(float64(got[i] - want[i])); d > tolerance*math.Abs(float64(want[i])) {
			return fmt.Errorf("%s: value %d is %v, want %v", what, i, got[i], want[i])
		}
	}
	return nil
}
