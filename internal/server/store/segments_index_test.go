package store

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
)

// unmix is the key whose hash this is.
func unmix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0x9cb4b2f8129337db
	h ^= h >> 33
	h *= 0x4f74430c22a54005
	return h ^ h>>33
}

func TestMix(t *testing.T) {
	for _, k := range []uint64{0, 1, 1 << 63, 0x9E3779B97F4A7C15} {
		if got := unmix(mix(k)); got != k {
			t.Errorf("%x is mixed from %x", k, got)
		}
	}
}

// Whatever is inserted, moved and removed, an index is a map from hashes to places. Hashes are
// crowded: at both ends of a part, and many the same.
func TestIndexAgainstMap(t *testing.T) {
	for _, spread := range []uint64{3, 1000, 1 << 26} {
		x, twin, r := &index{}, map[uint64][]place{}, rand.New(rand.NewPCG(1, spread))
		hash := func() uint64 {
			part, h := r.Uint64N(3)<<56, r.Uint64N(spread)
			if r.IntN(2) == 0 {
				h = 1<<hashBits - 1 - h
			}
			return part | h<<(placeBits-8) | r.Uint64N(1<<30)
		}
		looksAs := func(h uint64) uint64 { return h >> 30 }
		for step := range 6000 {
			h, at := hash(), place(r.Uint64N(maxPlace+1))
			has := twin[looksAs(h)]
			got := x.find(h, nil)
			slices.Sort(got)
			if !slices.Equal(got, has) {
				t.Fatalf("step %d: %x is at %v, want %v", step, h, got, has)
			}
			switch op := r.IntN(4); {
			case op < 2 || len(has) == 0:
				x.insert(h, at)
				has = append(has, at)
			case op == 2:
				i := r.IntN(len(has))
				if !x.replace(h, has[i], at) {
					t.Fatalf("step %d: %x is not at %v", step, h, has[i])
				}
				has[i] = at
			default:
				i := r.IntN(len(has))
				if !x.remove(h, has[i]) || x.remove(h, maxPlace+1) || x.replace(h, maxPlace+1, 0) {
					t.Fatalf("step %d: %x is not at %v alone", step, h, has[i])
				}
				has = slices.Delete(has, i, i+1)
			}
			slices.Sort(has)
			twin[looksAs(h)] = has
		}
		n := 0
		for h, has := range twin {
			got := x.find(h<<30, nil)
			slices.Sort(got)
			if n += len(has); !slices.Equal(got, has) {
				t.Fatalf("%x is at %v, want %v", h, got, has)
			}
		}
		for i := range x.parts {
			n -= x.parts[i].n
		}
		if n != 0 {
			t.Errorf("%d entries are not counted", n)
		}
	}
	empty := &index{}
	if empty.remove(1, 2) || empty.replace(1, 2, 3) || len(empty.find(1, nil)) != 0 {
		t.Error("an empty index has something")
	}
}

// Entries take 8 bytes, and an eighth to a quarter of room; searches are short.
func TestIndexBytes(t *testing.T) {
	x := &index{}
	for n := 1; n <= 1<<20; n++ {
		x.insert(mix(uint64(n)), place(n))
		if n < 1<<18 || n%(1<<16) != 0 {
			continue
		}
		if per := float64(x.bytes()) / float64(n); per < 8 || per > 10.5 {
			t.Errorf("%d entries: %.2f bytes each", n, per)
		}
	}
	far := 0
	for i := range x.parts {
		p := &x.parts[i]
		for at, e := range p.entries {
			if e != 0 {
				far = max(far, at-p.home(e>>placeBits))
			}
		}
	}
	if far > 2000 {
		t.Errorf("an entry is %d from home", far)
	}
}

func BenchmarkIndex(b *testing.B) {
	const n = 4 << 20
	x := &index{}
	for k := range uint64(n) {
		x.insert(mix(k), place(k))
	}
	b.Run("find", func(b *testing.B) {
		var out []place
		for i := range b.N {
			if out = x.find(mix(uint64(i)*0x9E3779B9%n), out[:0]); len(out) == 0 {
				b.Fatal(i)
			}
		}
	})
	b.Run("none", func(b *testing.B) {
		var out []place
		for i := range b.N {
			out = x.find(mix(n+uint64(i)), out[:0])
		}
	})
	b.Run("replace", func(b *testing.B) {
		at := make([]place, n)
		for k := range at {
			at[k] = place(k)
		}
		b.ResetTimer()
		for i := range b.N {
			k := uint64(i) * 0x9E3779B9 % n
			if x.replace(mix(k), at[k], place(i)); i > maxPlace {
				b.Fatal(i)
			}
			at[k] = place(i)
		}
	})
}

// A large index is not on the heap, and is gone when it is freed; a small one is.
func TestIndexMemory(t *testing.T) {
	x := &index{}
	x.insert(7<<placeBits, 3)
	if x.parts[0].mapped != nil {
		t.Error("a few entries are mapped")
	}
	x.free()
	const n = 1 << 20
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for k := range uint64(n) {
		x.insert(mix(k), place(k))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if b := x.bytes(); b < 8*n || b > 11*n {
		t.Errorf("%d bytes for %d entries", b, n)
	}
	_, mapped := mapEntries(mappedFrom)
	freeEntries(mapped)
	if more := int64(after.HeapAlloc) - int64(before.HeapAlloc); mapped != nil && more > n {
		t.Errorf("%d bytes on the heap for %d entries", more, n)
	}
	for k := range uint64(n) {
		if got := x.find(mix(k), nil); !slices.Contains(got, place(k)) {
			t.Fatalf("key %d is at %v", k, got)
		}
	}
	x.free()
	if got := x.find(mix(5), nil); len(got) != 0 || x.bytes() != 0 {
		t.Errorf("freed: %d bytes, key 5 at %v", x.bytes(), got)
	}
}

// bytes is the memory of the index.
func (x *index) bytes() (n int64) {
	for i := range x.parts {
		p := &x.parts[i]
		p.mu.Lock()
		n += int64(8 * len(p.entries))
		p.mu.Unlock()
	}
	return n
}
