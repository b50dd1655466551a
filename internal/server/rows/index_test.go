package rows

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/ringo-ml/ringo/internal/rowinit"
)

// check counts everything anew.
func (x *index) check() error {
	chunks := 1
	for i := range x.segments {
		s := &x.segments[i]
		if s.chunks[0] != 0 {
			chunks += len(s.chunks)
		}
		past, keys := make([]uint32, s.lines), uint32(0)
		for l := range s.lines {
			ln := x.line(s.at(l))
			for taken := ln.meta & allTaken; taken != 0; taken &= taken - 1 {
				key := ln.keys[bits.TrailingZeros32(taken)]
				h := x.hash(key)
				if x.segment(h) != s {
					return fmt.Errorf("segment %d holds key %d", i, key)
				}
				for p := x.home(s, h); p != l; p = s.next(p) {
					past[p]++
				}
				keys++
			}
		}
		if keys != s.keys || s.keys > s.room {
			return fmt.Errorf("segment %d has %d keys, room for %d, and holds %d", i, s.keys, s.room, keys)
		}
		for l := range s.lines {
			if got := x.line(s.at(l)).meta / onePast; got != past[l] {
				return fmt.Errorf("segment %d: %d keys went past line %d, which says %d", i, past[l], l, got)
			}
		}
	}
	if used, idle, _ := x.arena.chunks(); used-idle != chunks {
		return fmt.Errorf("%d chunks in use, %d in segments", used-idle, chunks)
	}
	return nil
}

func newTestIndex(t testing.TB, maxRows int, salt uint64) *index {
	t.Helper()
	x, err := newIndex(maxRows, salt, defaultShift)
	must(t, err)
	t.Cleanup(func() { must(t, x.arena.lines.release()) })
	return x
}

func (x *index) add(t testing.TB, key uint64, row uint32) {
	t.Helper()
	h := x.hash(key)
	must(t, x.insert(x.segment(h), key, h, row))
}

func (x *index) get(key uint64) (uint32, bool) {
	h := x.hash(key)
	return x.find(x.segment(h), key, h)
}

func (x *index) cut(key uint64) (uint32, bool) {
	h := x.hash(key)
	s := x.segment(h)
	row, ok := x.remove(s, key, h)
	x.shrink(s)
	return row, ok
}

// unhash is the inverse of mix.
func unhash(h uint64) uint64 {
	inverse := func(c uint64) uint64 { // by Newton's iteration
		x := c
		for range 6 {
			x *= 2 - c*x
		}
		return x
	}
	h ^= h>>31 ^ h>>62
	h *= inverse(0x94d049bb133111eb)
	h ^= h>>27 ^ h>>54
	h *= inverse(0xbf58476d1ce4e5b9)
	return h ^ h>>30 ^ h>>60
}

// Keys that fill one segment, most of them in few of its lines: the last ones, so
// that they lie round its end.
func TestIndexCrowded(t *testing.T) {
	x := newTestIndex(t, 1<<17, 12345)
	r := rand.New(rand.NewPCG(3, 4))
	twin := map[uint64]uint32{}
	draw := func() uint64 {
		h := uint64(7)<<(64-x.bits) | r.Uint64N(2000)<<20
		if r.IntN(4) > 0 {
			h |= (1<<10 - 1) << (64 - x.bits - 10)
		}
		key := unhash(h) ^ x.salt
		if x.hash(key) != h {
			t.Fatal("unhash is not the inverse")
		}
		return key
	}
	for step := range 20000 {
		key := draw()
		want, there := twin[key]
		if row, ok := x.get(key); ok != there || ok && row != want {
			t.Fatalf("step %d: key %d: row %d, %t, want %d, %t", step, key, row, ok, want, there)
		}
		// The number of keys goes up and down.
		switch grow := step/2500%2 == 0; {
		case !there && (grow || r.IntN(4) == 0):
			x.add(t, key, uint32(step))
			twin[key] = uint32(step)
		case there && (!grow || r.IntN(4) == 0):
			if row, ok := x.cut(key); !ok || row != want {
				t.Fatalf("step %d: removed row %d, %t, want %d", step, row, ok, want)
			}
			delete(twin, key)
		}
		if step%500 == 0 {
			must(t, x.check())
		}
	}
	for key := range twin {
		x.cut(key)
	}
	must(t, x.check())
	for n := range uint32(x.arena.used * chunkLines) {
		if x.line(n).meta != 0 {
			t.Fatalf("line %d is not empty", n)
		}
	}
}

// The index grows segment by segment and is never much emptier than it says.
func TestIndexFill(t *testing.T) {
	const most = 400_000
	x := newTestIndex(t, most, 99)
	idleMost := 0
	for i := range uint64(most) {
		x.add(t, i*3, uint32(i))
		n := i + 1
		if n%64 != 0 {
			continue
		}
		used, idle, rebuilds := x.arena.chunks()
		idleMost = max(idleMost, idle)
		if n < 550<<x.bits {
			continue
		}
		if bytes := float64(used * chunkBytes); bytes/float64(n) > 19 {
			t.Fatalf("%d keys take %.0f bytes, %.1f each", n, bytes, bytes/float64(n))
		}
		if n == most && rebuilds < 20<<x.bits {
			t.Errorf("%d times was a segment laid out anew: they do not grow by little", rebuilds)
		}
	}
	// At most the old and the new chunks of the largest segment are idle.
	if limit := 2 * len(x.segments[0].chunks); idleMost > limit {
		t.Errorf("%d chunks were idle, want at most %d", idleMost, limit)
	}
	must(t, x.check())
}

// Keys in a row, multiples, and those of one server of 16, chosen by other bits or
// by the same function with another salt, fill all segments and all lines alike.
func TestHashSpreads(t *testing.T) {
	const n = 1 << 16
	x := newTestIndex(t, n, 5)
	server := func(keep func(key uint64) bool) func(i uint64) uint64 {
		at := uint64(0)
		return func(uint64) uint64 {
			for at++; !keep(at); at++ {
			}
			return at
		}
	}
	for name, key := range map[string]func(i uint64) uint64{
		"sequence":  func(i uint64) uint64 { return i },
		"multiples": func(i uint64) uint64 { return i << 40 },
		"tagged":    func(i uint64) uint64 { return i%26<<56 | i/26 },
		"modulo":    server(func(key uint64) bool { return key%16 == 3 }),
		"mixed":     server(func(key uint64) bool { return rowinit.Mix(key)>>60 == 3 }),
		"lower":     server(func(key uint64) bool { return rowinit.Mix(key)&15 == 3 }),
	} {
		const parts = 256
		var segments, lines [parts]int
		for i := range uint64(n) {
			h := x.hash(key(i))
			segments[h>>56]++
			lines[h<<x.bits>>56]++
		}
		for what, counts := range map[string][parts]int{"segments": segments, "lines": lines} {
			chi := 0.0
			for _, c := range counts {
				d := float64(c) - n/parts
				chi += d * d / (n / parts)
			}
			// 255 degrees of freedom: 5 standard deviations.
			if chi > 255+5*23 {
				t.Errorf("%s: %s: chi squared %.0f", name, what, chi)
			}
		}
	}
}
