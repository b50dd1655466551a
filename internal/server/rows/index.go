package rows

import (
	"fmt"
	"math/bits"
)

// line is a bucket of the index: one cache line.
type line struct {
	keys [slots]uint64
	rows [slots]uint32
	// meta has a bit for each slot that is taken; above them it counts the keys
	// that belong here or before and lie behind, because the line was full when
	// they came. Where that is 0 a search ends. A key that is removed is counted
	// out again: nothing of it is left.
	meta uint32
}

const (
	slots    = 5
	allTaken = 1<<slots - 1
	onePast  = 1 << 8 // one key more that went past a line
	maxPast  = 1<<24 - 1
)

// Lines come in chunks, the unit in which segments grow.
const (
	chunkShift = 5
	chunkLines = 1 << chunkShift
	chunkMask  = chunkLines - 1
	chunkBytes = chunkLines * 64
)

// match has a bit for each slot that holds the key: no branch depends on which.
func (l *line) match(key uint64) uint32 {
	k := &l.keys
	return (bit(k[0] == key) | bit(k[1] == key)<<1 | bit(k[2] == key)<<2 | bit(k[3] == key)<<3 | bit(k[4] == key)<<4) & l.meta
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// segment is a part of the index that grows alone: the keys of one range of
// hashes. It is guarded by its stripe's lock.
type segment struct {
	chunks []uint32 // numbers of its chunks
	lines  uint32   // chunkLines in each, 1 while empty
	keys   uint32
	room   uint32 // keys that it takes before it grows
}

// at is the number of the segment's line l among all lines.
func (s *segment) at(l uint32) uint32 { return s.chunks[l>>chunkShift]<<chunkShift | l&chunkMask }

// next is the line behind l, the first behind the last.
func (s *segment) next(l uint32) uint32 {
	if l++; l == s.lines {
		return 0
	}
	return l
}

// noChunk is a chunk that stays empty: that of segments without keys.
var noChunk = []uint32{0} // never written

// capacityOf is how many keys so many lines take: 85 % of their slots.
func capacityOf(lines uint32) uint32 { return uint32(uint64(lines) * slots * 85 / 100) }

// index finds the row number of a key: open addressing in lines of 5 slots.
//
// The upper bits of a key's hash choose the segment, the ones below, as a
// fraction, its line: fraction*lines (Lemire 2019), so that a segment may have any
// number of lines and its keys lie in the order of their hashes. A key whose line is
// full lies in one of the lines behind. A segment 85 % of whose slots are taken is
// laid out anew with an eighth more lines, in one pass over both from front to
// back: about 8 keys are moved, at a few ns each, for each that comes. Segments have
// some ten thousand keys, so that nobody waits long for that.
type index struct {
	segments []segment
	bits     uint // 1<<bits segments
	salt     uint64
	arena    arena
}

// hash is one-to-one: all its bits depend on all the key's. Keys are told apart by
// it whatever bits of another function chose this server for them.
func (x *index) hash(key uint64) uint64 { return mix(key ^ x.salt) }

func (x *index) segment(hash uint64) *segment { return &x.segments[hash>>(-x.bits&63)] }

// home is the line of the segment where a hash belongs.
func (x *index) home(s *segment, hash uint64) uint32 {
	l, _ := bits.Mul64(hash<<(x.bits&63), uint64(s.lines))
	return uint32(l)
}

func (x *index) line(n uint32) *line {
	a := x.arena.lines
	return &a.slabs[n>>(a.shift&31)][n&a.mask]
}

func newIndex(maxRows int, salt uint64, shift uint) (*index, error) {
	x := &index{bits: segmentBits(maxRows), salt: salt}
	x.segments = make([]segment, 1<<x.bits)
	for i := range x.segments {
		x.segments[i] = segment{chunks: noChunk, lines: 1}
	}
	// Above 3 keys to a line but for the rounding of each segment, and as many
	// lines again while they are laid out anew.
	chunks := 2*(maxRows/(3*chunkLines)) + 8*len(x.segments) + 64
	lines, err := newArray[line](1, chunks*chunkLines, max(shift, chunkShift))
	if err != nil {
		return nil, fmt.Errorf("the index: %w", err)
	}
	x.arena = arena{lines: lines, used: 1}
	return x, lines.grow(chunkLines)
}

// segmentBits chooses as many segments as have 16384 keys each, at least the number
// of stripes, at most 4096.
func segmentBits(maxRows int) uint {
	return min(12, max(stripeBits, uint(bits.Len(uint(max(0, maxRows-1)>>14)))))
}

// find returns the row of a key.
func (x *index) find(s *segment, key, hash uint64) (row uint32, ok bool) {
	l := x.home(s, hash)
	for range s.lines {
		ln := x.line(s.at(l))
		if m := ln.match(key); m != 0 {
			return ln.rows[bits.TrailingZeros32(m)], true
		}
		if ln.meta < onePast {
			break
		}
		l = s.next(l)
	}
	return 0, false
}

// insert adds a key that is not there. An error leaves all as it was.
func (x *index) insert(s *segment, key, hash uint64, row uint32) error {
	if s.keys >= s.room {
		more := max(1, s.lines/8>>chunkShift)
		if err := x.resize(s, s.lines>>chunkShift+more); err != nil {
			return err
		}
	}
	x.place(s, key, hash, row)
	s.keys++
	return nil
}

// place puts a key into the first free slot from its line on. There is one.
func (x *index) place(s *segment, key, hash uint64, row uint32) {
	l := x.home(s, hash)
	for {
		ln := x.line(s.at(l))
		if taken := ln.meta & allTaken; taken != allTaken {
			slot := bits.TrailingZeros32(^taken)
			ln.keys[slot], ln.rows[slot] = key, row
			ln.meta |= 1 << slot
			return
		}
		ln.meta += onePast
		l = s.next(l)
	}
}

// remove takes a key out and returns its row.
func (x *index) remove(s *segment, key, hash uint64) (row uint32, ok bool) {
	if row, ok = x.find(s, key, hash); !ok {
		return 0, false
	}
	l := x.home(s, hash)
	for {
		ln := x.line(s.at(l))
		if m := ln.match(key); m != 0 {
			ln.meta &^= m
			s.keys--
			return row, true
		}
		ln.meta -= onePast
		l = s.next(l)
	}
}

// shrink lays a segment out anew in fewer lines when less than 60 % of its slots
// are taken, so that 80 % are.
func (x *index) shrink(s *segment) {
	if uint64(s.keys)*100 >= uint64(s.lines)*slots*60 {
		return
	}
	chunks := (s.keys/(slots*chunkLines*80/100) + 1)
	if s.keys == 0 {
		x.arena.give(s.chunks)
		s.chunks, s.lines, s.room = noChunk, 1, 0
	} else if chunks < s.lines>>chunkShift {
		_ = x.resize(s, chunks) // without memory it stays as it is
	}
}

// resize lays a segment out anew in so many chunks.
func (x *index) resize(s *segment, chunks uint32) error {
	fresh, err := x.arena.take(int(chunks))
	if err != nil {
		return err
	}
	old := *s
	s.chunks, s.lines = fresh, chunks<<chunkShift
	s.room = min(capacityOf(s.lines), maxPast)
	for l := range old.lines {
		ln := x.line(old.at(l))
		for taken := ln.meta & allTaken; taken != 0; taken &= taken - 1 {
			slot := bits.TrailingZeros32(taken)
			x.place(s, ln.keys[slot], x.hash(ln.keys[slot]), ln.rows[slot])
		}
	}
	x.arena.give(old.chunks)
	return nil
}
