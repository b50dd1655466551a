package rows

import (
	"fmt"
	"math/bits"

	"github.com/ringo-ml/ringo/internal/rowinit"
)

// line is a bucket of the index: one cache line.
type line struct {
	keys [slots]uint64
	rows [slots]uint32
	// meta has a bit for each used slot. The higher bits count the keys of this line or earlier
	// lines that are in a later line, because the line was full. At a count of 0 a search ends.
	// Removing a key decrements the counts: no tombstone remains.
	meta uint32
}

const (
	slots    = 5
	allTaken = 1<<slots - 1
	onePast  = 1 << 8 // one more key that passed the line
	maxPast  = 1<<24 - 1
)

// chunkShift is the binary logarithm of the lines in a chunk, the unit of a segment's growth.
const (
	chunkShift = 5
	chunkLines = 1 << chunkShift
	chunkMask  = chunkLines - 1
	chunkBytes = chunkLines * 64
)

// match has a bit for each slot with the key, without branches that depend on the result.
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

// segment is a part of the index that grows alone: a range of hashes. Its stripe's lock guards it.
type segment struct {
	chunks []uint32 // chunk numbers
	lines  uint32   // chunkLines per chunk, 1 while empty
	keys   uint32
	room   uint32 // keys that fit before it grows
}

// at returns the number of the segment's line l in the arena.
func (s *segment) at(l uint32) uint32 { return s.chunks[l>>chunkShift]<<chunkShift | l&chunkMask }

// next returns the line after l, cyclically.
func (s *segment) next(l uint32) uint32 {
	if l++; l == s.lines {
		return 0
	}
	return l
}

// noChunk is the permanently empty chunk of segments without keys.
var noChunk = []uint32{0} // never written

// capacityOf returns the number of keys for the given lines: 85 % of their slots.
func capacityOf(lines uint32) uint32 { return uint32(uint64(lines) * slots * 85 / 100) }

// index finds the row number of a key: open addressing in lines of 5 slots.
//
// The upper bits of a key's hash select the segment, the bits below, as a fraction, its line:
// fraction*lines (Lemire 2019). A segment may therefore have any number of lines, and its keys are
// in hash order. If a key's line is full, the key is in a later line. At 85 % of used slots a
// segment is rebuilt with an eighth more lines, in one sequential pass: about 8 moved keys, at a
// few ns each, per insertion. Segments have some ten thousand keys, so that rebuilds are short.
type index struct {
	segments []segment
	bits     uint // log2 of the number of segments
	salt     uint64
	arena    arena
}

// hash is one-to-one, and each bit depends on the whole key: a server's keys spread evenly.
func (x *index) hash(key uint64) uint64 { return rowinit.Mix(key ^ x.salt) }

func (x *index) segment(hash uint64) *segment { return &x.segments[hash>>(-x.bits&63)] }

// home returns a hash's line of the segment.
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
	// Enough lines for 3 keys per line, doubled for rebuilds, and more for rounding.
	chunks := 2*(maxRows/(3*chunkLines)) + 8*len(x.segments) + 64
	lines, err := newArray[line](1, chunks*chunkLines, max(shift, chunkShift))
	if err != nil {
		return nil, fmt.Errorf("the index: %w", err)
	}
	x.arena = arena{lines: lines, used: 1}
	return x, lines.grow(chunkLines)
}

// segmentBits returns the number of hash bits that select a segment, so that a segment has 16384
// keys; there are at least as many segments as stripes, and at most 4096.
func segmentBits(maxRows int) uint {
	return min(12, max(stripeBits, uint(bits.Len(uint(max(0, maxRows-1)>>14)))))
}

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

// insert adds a new key. An error leaves the index unchanged.
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

// place puts a key into the first free slot from its line on. A free slot must exist.
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

// shrink rebuilds a segment with fewer lines: 80 % instead of less than 60 % of slots are used.
func (x *index) shrink(s *segment) {
	if uint64(s.keys)*100 >= uint64(s.lines)*slots*60 {
		return
	}
	chunks := (s.keys/(slots*chunkLines*80/100) + 1)
	if s.keys == 0 {
		x.arena.give(s.chunks)
		s.chunks, s.lines, s.room = noChunk, 1, 0
	} else if chunks < s.lines>>chunkShift {
		_ = x.resize(s, chunks) // without memory the segment is unchanged
	}
}

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
