package engine

import (
	"errors"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/simd"
)

// merger adds up trainers' pushes of a table, each key's rows in the order of the pushes. A push
// was divided by key into pieces when it arrived. For each piece a small hash table in the
// first-level cache finds equal keys, with about one access per key. Then each key's first row is
// copied to the result and its other rows are added: a push's rows are read sequentially, and the
// sums of a piece stay in the cache. Large merges process pieces on several threads. Cost: O(n dim)
// for n rows of dim values; after the first merges no allocation.
type merger struct {
	kernels *simd.Kernels
	parts   [pieces]part
	finds   []finder // one per thread

	keys []uint64
	sums []float32

	pushes []*push
	dim    int
}

// part is the merge state of a piece.
type part struct {
	keys    []uint64 // distinct keys
	first   []ref    // first row of each key
	repeats []repeat // other rows, in order
	at      int      // index of its first key in the result
}

// ref is a row of a push.
type ref struct{ push, row int32 }

type repeat struct {
	to  int32 // key's index in the part
	row ref
}

// finder is a hash table for the keys of a piece. A slot has a key's index and the number of the
// piece, so that the table need not be cleared.
type finder struct {
	slots []uint64
	round uint64
}

// sharedLeast is the minimum number of rows for several threads.
const sharedLeast = 32 << 10

// merge returns the pushes' distinct keys and their sums, valid until the next call.
func (m *merger) merge(pushes []*push, dim int) (keys []uint64, sums []float32) {
	if m.kernels == nil {
		m.kernels = simd.Host()
	}
	m.pushes, m.dim = pushes, dim
	total := 0
	for _, p := range pushes {
		total += len(p.keys)
	}
	threads := 1
	if total >= sharedLeast {
		threads = min(runtime.GOMAXPROCS(0), 8)
	}
	for len(m.finds) < threads {
		m.finds = append(m.finds, finder{})
	}
	m.share(threads, (*merger).join)
	unique := 0
	for i := range m.parts {
		m.parts[i].at = unique
		unique += len(m.parts[i].keys)
	}
	m.keys, m.sums = bytesview.Sized(m.keys, unique), bytesview.Sized(m.sums, unique*dim)
	m.share(threads, (*merger).add)
	m.pushes = nil
	return m.keys, m.sums
}

// share calls do for all pieces, on the given number of threads. A thread gets a range of pieces,
// of about equal numbers of keys.
func (m *merger) share(threads int, do func(m *merger, thread, piece int)) {
	if threads == 1 {
		for i := range pieces {
			do(m, 0, i)
		}
		return
	}
	var all sync.WaitGroup
	for t := range threads {
		all.Go(func() {
			for i := pieces * t / threads; i < pieces*(t+1)/threads; i++ {
				do(m, t, i)
			}
		})
	}
	all.Wait()
}

// join finds the distinct keys of a piece.
func (m *merger) join(thread, piece int) {
	p, f := &m.parts[piece], &m.finds[thread]
	p.keys, p.first, p.repeats = p.keys[:0], p.first[:0], p.repeats[:0]
	n := 0
	for _, from := range m.pushes {
		lo, hi := from.piece(piece)
		n += hi - lo
	}
	mask := f.begin(n)
	round := f.round << 32
	for i, from := range m.pushes {
		lo, hi := from.piece(piece)
		for k, key := range from.keys[lo:hi] {
			row := ref{int32(i), int32(lo + k)}
			at := pieceHash(key) >> 20 & mask
			for {
				slot := f.slots[at]
				if slot>>32 != f.round {
					f.slots[at] = round | uint64(len(p.keys))
					p.keys, p.first = append(p.keys, key), append(p.first, row)
					break
				}
				if to := uint32(slot); p.keys[to] == key {
					p.repeats = append(p.repeats, repeat{int32(to), row})
					break
				}
				at = (at + 1) & mask
			}
		}
	}
}

// begin empties the table for n keys, and returns its slot mask.
func (f *finder) begin(n int) (mask uint64) {
	if size := 2 << bits.Len(uint(n)); len(f.slots) < size {
		f.slots, f.round = make([]uint64, size), 0
	}
	if f.round++; f.round>>32 != 0 {
		clear(f.slots)
		f.round = 1
	}
	return uint64(len(f.slots) - 1)
}

func (m *merger) add(_, piece int) {
	p, dim := &m.parts[piece], m.dim
	copy(m.keys[p.at:], p.keys)
	sums := m.sums[p.at*dim:][:len(p.keys)*dim]
	for i, r := range p.first {
		copyRow(sums[i*dim:][:dim], m.pushes[r.push].rows[int(r.row)*dim:][:dim])
	}
	for _, a := range p.repeats {
		m.kernels.Add(sums[int(a.to)*dim:][:dim], m.pushes[a.row.push].rows[int(a.row.row)*dim:][:dim])
	}
}

// copyRow copies whole cache lines without a call.
func copyRow(dst, src []float32) {
	for len(src) >= 16 && len(dst) >= 16 {
		line := *(*[16]float32)(src)
		*(*[16]float32)(dst) = line
		dst, src = dst[16:], src[16:]
	}
	copy(dst, src)
}

// mergeDense adds pushes of an array's range, from lo, into sum. If the first trainer's pushes do
// not cover the range, missing values count as zeros.
func mergeDense(kernels *simd.Kernels, pushes []*push, per, lo int, sum []float32) {
	first, covered := pushes[0].session/per, 0
	for _, p := range pushes {
		if p.session/per == first && p.lo-lo == covered {
			covered += len(p.rows)
		}
	}
	whole := covered == len(sum) // the first trainer's values are copied: 0 + -0 would be 0
	if !whole {
		clear(sum)
	}
	for _, p := range pushes {
		to := sum[p.lo-lo:][:len(p.rows)]
		if whole && p.session/per == first {
			copy(to, p.rows)
		} else {
			kernels.Add(to, p.rows)
		}
	}
}

// chunkKeys is the number of keys per push of a sum: it fits into caches and small tables.
const chunkKeys = 4096

// pushSum pushes a step's sum to a table in chunks, on several threads if possible. Chunk i is
// change number step of session i. A replay of the log makes a sum with the same keys in the same
// order, so that the table recognises chunks that it has applied.
func pushSum(t Table, step uint64, dim int, keys []uint64, sums []float32, scale float32) error {
	if len(keys) <= chunkKeys {
		return t.Push(0, step, keys, sums, scale)
	}
	size := max(chunkKeys, (len(keys)+MaxSessions-1)/MaxSessions)
	chunks := (len(keys) + size - 1) / size
	push := func(i int) error {
		lo, hi := i*size, min(len(keys), (i+1)*size)
		return t.Push(i, step, keys[lo:hi], sums[lo*dim:hi*dim], scale)
	}
	threads := min(chunks, runtime.GOMAXPROCS(0))
	if threads <= 1 {
		for i := range chunks {
			if err := push(i); err != nil {
				return err
			}
		}
		return nil
	}
	var all sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, threads)
	for w := range threads {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < chunks && errs[w] == nil; i = int(next.Add(1)) - 1 {
				errs[w] = push(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
