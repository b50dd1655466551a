package engine

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/simd"
)

// Keys of a push are partitioned into pieces by a hash, so that merger can join the pushes of
// several trainers piece by piece.
const (
	pieceBits = 6
	pieces    = 1 << pieceBits
)

// pieceHash differs from schema.Owner's hash, which is in one range for all keys of a server.
func pieceHash(key uint64) uint64 { return (key ^ key>>32) * 0x9e3779b97f4a7c15 }

// push is a buffered PushRows or PushDense, in bsp.
type push struct {
	session int
	seq     uint64
	table   int
	keys    []uint64      // partitioned by piece
	from    []int32       // index of the key's row in the caller's batch
	end     [pieces]int32 // end of the piece's keys
	rows    []float32     // rows of the keys, or the values of an array
	lo      int           // index in the whole array
	keySet  []uint64      // see unique
	round   uint64
}

type step struct {
	number      uint64
	first       uint64 // first log record that the step needs; 0: none
	rows        [][]*push
	dense       [][]*push
	rate        float64 // rate after this step; below 0: unchanged
	rateSession int
	clockedBy   []bool // trainers that clocked the step, once complete
	n           int    // number of trainers that clocked it
}

// steps holds bsp's pending steps.
type steps struct {
	mu         sync.Mutex
	list       []*step // sorted by number
	completeTo uint64  // steps up to here are complete
	spare      []*step

	pushes bytesview.FreeList[push]

	tables, arrays, trainers int
}

// setRows copies a push of rows of dim values, sorted by piece for sequential reads in merger. A
// duplicate key is an error.
func (p *push) setRows(session int, seq uint64, table, dim int, keys []uint64, grads []float32) error {
	p.session, p.seq, p.table = session, seq, table
	n := len(keys)
	p.keys, p.from, p.rows = bytesview.Sized(p.keys, n), bytesview.Sized(p.from, n), bytesview.Sized(p.rows, len(grads))
	var at [pieces]int32
	for _, key := range keys {
		at[pieceHash(key)>>(64-pieceBits)]++
	}
	sum := int32(0)
	for i, count := range at {
		at[i] = sum
		sum += count
		p.end[i] = sum
	}
	for i, key := range keys {
		to := &at[pieceHash(key)>>(64-pieceBits)]
		p.keys[*to], p.from[*to] = key, int32(i)
		*to++
	}
	if err := p.unique(); err != nil {
		return err
	}
	simd.Host().Lookup(p.rows, grads, p.from, dim)
	return nil
}

func (p *push) piece(i int) (lo, hi int) {
	if i > 0 {
		lo = int(p.end[i-1])
	}
	return lo, int(p.end[i])
}

// unique returns an error for a duplicate key. The key set is emptied for each piece by a new round
// number, without clearing.
func (p *push) unique() error {
	most := 0
	for i := range pieces {
		lo, hi := p.piece(i)
		most = max(most, hi-lo)
	}
	if size := 2 << bits.Len(uint(most)); len(p.keySet) < size {
		p.keySet, p.round = make([]uint64, size), 0
	}
	mask := uint64(len(p.keySet) - 1)
	for i := range pieces {
		if p.round++; p.round>>32 != 0 {
			clear(p.keySet)
			p.round = 1
		}
		lo, hi := p.piece(i)
		for k, key := range p.keys[lo:hi] {
			at := pieceHash(key) >> 20 & mask
			for ; p.keySet[at]>>32 == p.round; at = (at + 1) & mask {
				if p.keys[uint32(p.keySet[at])] == key {
					return fmt.Errorf("key %d: %w: merge its gradients", key, rows.ErrDuplicate)
				}
			}
			p.keySet[at] = p.round<<32 | uint64(lo+k)
		}
	}
	return nil
}

func (p *push) setDense(session int, seq uint64, array, lo int, values []float32) {
	p.session, p.seq, p.table, p.lo = session, seq, array, lo
	p.rows = bytesview.Sized(p.rows, len(values))
	copy(p.rows, values)
}

// at returns the step of a number, created if necessary. s.mu is held.
func (s *steps) at(number uint64) *step {
	i, ok := slices.BinarySearchFunc(s.list, number, func(k *step, n uint64) int { return cmp.Compare(k.number, n) })
	if ok {
		return s.list[i]
	}
	var k *step
	if n := len(s.spare); n > 0 {
		k, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		k = &step{rows: make([][]*push, s.tables), dense: make([][]*push, s.arrays), clockedBy: make([]bool, s.trainers)}
	}
	k.number, k.first, k.rate, k.rateSession, k.n = number, 0, -1, MaxSessions, 0
	s.list = slices.Insert(s.list, i, k)
	return k
}

func (s *steps) add(number, record uint64, p *push, isRows bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.at(number)
	list := &k.dense
	if isRows {
		list = &k.rows
	}
	(*list)[p.table] = append((*list)[p.table], p)
	k.needs(record)
}

func (k *step) needs(record uint64) {
	if record != 0 && (k.first == 0 || record < k.first) {
		k.first = record
	}
}

// offer sets the rate after step number. If trainers differ, the lowest session's rate wins.
func (s *steps) offer(number, record uint64, session int, rate float64) {
	if rate < 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.at(number); session < k.rateSession {
		k.rate, k.rateSession = rate, session
		k.needs(record)
	}
}

// decide selects the trainers that take part in each step that the slowest has clocked.
func (s *steps) decide(c *clocks) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range s.list {
		if k.number > s.completeTo && k.number <= c.slowest {
			k.n = c.clockedBy(k.number, k.clockedBy)
		}
	}
	s.completeTo = max(s.completeTo, c.slowest)
}

// next returns the first complete pending step; or nil, with all steps up to done applied.
func (s *steps) next() (k *step, done uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 || s.list[0].number > s.completeTo {
		return nil, s.completeTo
	}
	k = s.list[0]
	s.list = slices.Delete(s.list, 0, 1)
	return k, 0
}

func (s *steps) end(k *step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, lists := range [][][]*push{k.rows, k.dense} {
		for i, list := range lists {
			s.pushes.Put(list...)
			clear(list)
			lists[i] = list[:0]
		}
	}
	s.spare = append(s.spare, k)
}

// needs returns the first log record that pending steps need, 0 for none.
func (s *steps) needs() (first uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.list {
		if k.first != 0 && (first == 0 || k.first < first) {
			first = k.first
		}
	}
	return first
}

// chosen returns the pushes of participating trainers, in the order of summation: by session and
// number. list is reordered.
func (k *step) chosen(list []*push, per int) []*push {
	slices.SortFunc(list, func(a, b *push) int {
		took := func(p *push) int { return toInt(!k.clockedBy[p.session/per]) }
		return cmp.Or(cmp.Compare(took(a), took(b)), cmp.Compare(a.session, b.session), cmp.Compare(a.seq, b.seq))
	})
	n := 0
	for n < len(list) && k.clockedBy[list[n].session/per] {
		n++
	}
	return list[:n]
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
