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

// merger adds trainers' pushes of a table up, each key's rows in the order of the
// pushes. Keys were sorted into pieces as they came, and their rows with them. Of a piece a
// small table finds out which keys are the same: it fits into the first cache, so that a
// key costs a probe there. Then each key's first row is copied to its place and the others
// are added: a push's rows are read one after the other, and a piece's sums stay in
// the cache. Pieces are independent, and are shared among threads where there is much to do. With n rows of
// dim values it takes O(n dim), and in the steady state allocates nothing.
type merger struct {
	kernels *simd.Kernels
	parts   [pieces]part
	finds   []finder // one for each thread

	keys []uint64
	sums []float32

	pushes []*push
	dim    int
}

// part is what the merger knows of a piece.
type part struct {
	keys    []uint64 // each once
	first   []ref    // where its first row is
	repeats []repeat // and the others, in order
	at      int      // of its first key in the result
}

// ref is a row of a push.
type ref struct{ push, row int32 }

type repeat struct {
	to  int32 // key of the part
	row ref
}

// finder finds keys of a piece: slots hold a round and a key's place.
type finder struct {
	slots []uint64
	round uint64
}

// sharedLeast is how many rows are worth more threads than one.
const sharedLeast = 32 << 10

// merge returns each key of the pushes once with its sum. Both are good until the next
// call.
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

// share calls do for all pieces, on some threads. A thread has a range of pieces: they
// have about as many keys each.
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

// join finds each key of a piece once.
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

// begin makes an empty table for n keys, and returns the mask of its places.
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

// add writes a piece's keys and sums to their places in the result.
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

// mergeDense adds pushes of an array's range, of n values from lo on, up to sum. Where the
// first trainer's do not cover the range, missing values count as zeros.
func mergeDense(kernels *simd.Kernels, pushes []*push, per, lo int, sum []float32) {
	first, covered := pushes[0].session/per, 0
	for _, p := range pushes {
		if p.session/per == first && p.lo-lo == covered {
			covered += len(p.rows)
		}
	}
	whole := covered == len(sum) // then the first trainer's are copied: adding to 0 would make 0 of -0
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

// chunkKeys is how many keys of a sum are pushed at once: what caches and small tables
// have room for.
const chunkKeys = 4096

// pushSum pushes a step's sum in chunks, by several threads where there are several. Chunk
// i is session i's change of that step: what a replay sums has the same keys in the same
// order, so that chunks that a table has already are known again.
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
