package collectives

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/simd"
)

// spec is the trial of a rank.
type spec struct {
	g     *collective.Group
	op    string
	typ   string
	redop collective.ReduceOp
	root  int
	count int    // values of the larger operand
	dst   []byte // memory of the result, or of the only operand
	src   []byte // memory of a second operand
}

// shape is an operation's requirements, and the factor for its speed.
type shape struct {
	reduces, rooted bool
	chunked         bool // the larger operand has a part per rank
	// bus returns nccl-tests' factor from bytes over time to link bandwidth.
	bus func(np float64) float64
}

func whole(float64) float64         { return 1 }
func twice(np float64) float64      { return 2 * (np - 1) / np }
func withoutOwn(np float64) float64 { return (np - 1) / np }

var shapes = map[string]shape{
	"allreduce":      {reduces: true, bus: twice},
	"reduce-scatter": {reduces: true, chunked: true, bus: withoutOwn},
	"allgather":      {chunked: true, bus: withoutOwn},
	"allgatherv":     {chunked: true, bus: withoutOwn},
	"broadcast":      {rooted: true, bus: whole},
	"reduce":         {reduces: true, rooted: true, bus: whole},
	"gather":         {rooted: true, chunked: true, bus: withoutOwn},
	"scatter":        {rooted: true, chunked: true, bus: withoutOwn},
	"alltoall":       {chunked: true, bus: withoutOwn},
	"alltoallv":      {chunked: true, bus: withoutOwn},
	"sendrecv":       {bus: whole},
	"barrier":        {bus: whole},
}

func operations() []string { return slices.Sorted(maps.Keys(shapes)) }

// elementType is a type of values.
type elementType struct {
	size  int // size in bytes
	means bool
	trial func(spec) trial
}

func typeOf[T collective.Number](size int, as number[T]) elementType {
	return elementType{size: size, means: as.mean != nil, trial: func(s spec) trial { return newTrial(s, as) }}
}

var float32s = number[float32]{
	of:   func(v int64) float32 { return float32(v) },
	mean: func(sum int64, n int) float32 { return float32(sum) * (1 / float32(n)) },
}

// number16 returns a 16-bit type, converted from float32 by round.
func number16[T collective.Float16 | collective.BFloat16](round func(dst []uint16, src []float32)) number[T] {
	of := func(v float32) T {
		var out [1]uint16
		round(out[:], []float32{v})
		return T(out[0])
	}
	return number[T]{
		of:   func(v int64) T { return of(float32(v)) },
		mean: func(sum int64, n int) T { return of(float32(sum) * (1 / float32(n))) },
	}
}

func elementTypes() map[string]elementType {
	return map[string]elementType{
		"float32": typeOf(4, float32s),
		"float64": typeOf(8, number[float64]{
			of:   func(v int64) float64 { return float64(v) },
			mean: func(sum int64, n int) float64 { return float64(sum) * (1 / float64(n)) },
		}),
		"float16":  typeOf(2, number16[collective.Float16](simd.Host().ToHalf)),
		"bfloat16": typeOf(2, number16[collective.BFloat16](simd.Host().ToBrain)),
		"int32":    typeOf(4, number[int32]{of: func(v int64) int32 { return int32(v) }}),
		"int64":    typeOf(8, number[int64]{of: func(v int64) int64 { return v }}),
		"uint8":    typeOf(1, number[uint8]{of: func(v int64) uint8 { return uint8(v) }}),
	}
}

func typeNames() []string { return slices.Sorted(maps.Keys(elementTypes())) }

type maker[T collective.Number] struct {
	spec
	as       number[T]
	dst, src []T
	np, me   int
}

func newTrial[T collective.Number](s spec, as number[T]) trial {
	m := &maker[T]{spec: s, as: as, dst: bytesview.As[T](s.dst)[:s.count], src: bytesview.As[T](s.src), np: s.g.Size(), me: s.g.Rank()}
	t := map[string]func() trial{
		"allreduce": m.allReduce, "reduce-scatter": m.reduceScatter, "allgather": m.allGather, "allgatherv": m.allGather,
		"broadcast": m.broadcast, "reduce": m.reduce, "gather": m.gather, "scatter": m.scatter,
		"alltoall": m.allToAll, "alltoallv": m.allToAll, "sendrecv": m.sendReceive, "barrier": m.barrier,
	}[s.op]()
	t.name, t.bytes = fmt.Sprintf("%s of %d %s", s.op, s.count, s.typ), len(bytesview.Bytes(m.dst))
	return t
}

func (m *maker[T]) operands() [salts]block[T] { return operandBlocks(m.as, m.redop, m.me) }

func (m *maker[T]) reduced() [salts]block[T] { return reducedBlocks(m.as, m.redop, m.np) }

// compare describes the first value of x that differs from the block, from value first on.
func compare[T collective.Number](b block[T], x []T, first int) (wrong int, text string) {
	wrong, at := b.wrong(x, first)
	if wrong > 0 {
		text = fmt.Sprintf("value %d is %v, want %v", at, x[at], b[(first+at)%period])
	}
	return wrong, text
}
