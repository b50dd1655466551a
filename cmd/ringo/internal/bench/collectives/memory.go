package collectives

import (
	"fmt"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/hugepage"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/transport"
)

type operandMemory struct {
	kind     string // value "arena" or "private"
	dst, src []byte
	windows  *transport.SharedMemory // shared memory of an arena
}

func newOperandMemory(job *ringo.Job, kind string, n int) (operandMemory, error) {
	w := job.SharedMemory()
	if kind == "private" || kind == "auto" && w == nil {
		return operandMemory{kind: "private", dst: alignedBytes(n), src: alignedBytes(n)}, nil
	}
	if w == nil {
		return operandMemory{}, fmt.Errorf("--buffer arena: the ranks share no memory over %s: use --transport shm, or --buffer private", job.Transport())
	}
	m := operandMemory{kind: "arena", dst: w.Alloc(n), src: w.Alloc(n), windows: w}
	if m.dst == nil || m.src == nil {
		return operandMemory{}, fmt.Errorf("--buffer arena: the arena of %d bytes does not hold two operands of %d: use smaller sizes, or --buffer private", len(w.Arena()), n)
	}
	return m, nil
}

// alignedBytes returns n bytes aligned for any type, in Job.Alloc's kind of memory.
func alignedBytes(n int) []byte { return bytesview.Bytes(hugepage.Floats((n + 3) / 4))[:n] }

// onePass replaces t by a lower bound of an allreduce in shared memory: each rank sums its share of
// the values over all arenas and stores it in all arenas, without waiting for other ranks. A rank
// checks only its share in its own arena.
func (m operandMemory) onePass(g *collective.Group, t trial, count int) trial {
	at, _ := m.windows.Offset(m.dst)
	n, me := len(m.windows.Ranks), m.windows.Index
	lo, hi := count*me/n, count*(me+1)/n
	var shares [][]float32
	for _, arena := range m.windows.Arenas {
		shares = append(shares, bytesview.As[float32](arena[at:][:4*count])[lo:hi])
	}
	want, kernels := reducedBlocks(float32s, collective.Sum, n), simd.Host()
	t.call = func() error {
		kernels.ReduceAll(simd.ReduceSum, shares, shares, 1)
		return nil
	}
	t.check = func(salt int) (int, string) {
		if err := collective.Barrier(g); err != nil {
			return 1, err.Error() // other ranks still write
		}
		if t.bytes <= batchBytes {
			return 0, "" // without synchronization a rank reads other ranks' data of another turn
		}
		return compare(want[salt], shares[me], lo)
	}
	return t
}
