package store

import "sync"

// index maps the rows of a table to places: an entry of 8 bytes has a part of the key's hash and
// the place. Different keys may have equal hash parts; reading the record distinguishes them.
//
// It has 256 parts. In each, entries are in hash order, as close as possible to the hash's home: a
// search reads some neighbouring entries, also for missing keys. Parts are 0.8 to 0.9 full and grow
// individually.
type index struct {
	parts [256]indexPart
}

type indexPart struct {
	mu      sync.Mutex
	entries []uint64 // 0 is free; space beyond homes is for displaced entries
	mapped  []byte   // see newEntries
	homes   uint64
	n       int
}

// place is the start of a record, in units from the start of the file.
type place uint64

// placeBits are an entry's bits for a place plus 1 (no entry is 0); the rest are hash bits.
const (
	placeBits = 38
	hashBits  = 64 - placeBits
	maxPlace  = 1<<placeBits - 2
	spare     = 64 // entries beyond homes
)

// mix spreads a key over 64 bits: the finaliser of MurmurHash3, a bijection.
func mix(k uint64) uint64 {
	k ^= k >> 33
	k *= 0xff51afd7ed558ccd
	k ^= k >> 33
	k *= 0xc4ceb9fe1a85ec53
	return k ^ k>>33
}

// of returns the part of a hash, and the hash bits of its entries.
func (x *index) of(hash uint64) (*indexPart, uint64) {
	return &x.parts[hash>>56], hash << 8 >> placeBits
}

func entryOf(h uint64, at place) uint64 { return h<<placeBits | uint64(at) + 1 }
func placeOf(entry uint64) place        { return place(entry&(1<<placeBits-1)) - 1 }

// home returns the preferred position of a hash.
func (p *indexPart) home(h uint64) int { return int(h * p.homes >> hashBits) }

// seek returns the first position from a hash's home that is free or has no smaller hash.
func (p *indexPart) seek(h uint64) int {
	i := p.home(h)
	for p.entries[i] != 0 && p.entries[i]>>placeBits < h {
		i++
	}
	return i
}

// find appends the places of all records with keys that may have the hash.
func (x *index) find(hash uint64, out []place) []place {
	p, h := x.of(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.homes == 0 {
		return out
	}
	for i := p.seek(h); p.entries[i] != 0 && p.entries[i]>>placeBits == h; i++ {
		out = append(out, placeOf(p.entries[i]))
	}
	return out
}

func (x *index) insert(hash uint64, at place) {
	p, h := x.of(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	if uint64(p.n+1)*10 > p.homes*9 {
		p.grow()
	}
	for !p.add(entryOf(h, at)) {
		p.grow() // no free entry near the end
	}
	p.n++
}

// add inserts an entry in order and moves the following ones up to the next free one. The last
// entry stays free, because searches end there.
func (p *indexPart) add(entry uint64) bool {
	i := p.seek(entry >> placeBits)
	end := i
	for p.entries[end] != 0 {
		end++
	}
	if end == len(p.entries)-1 {
		return false
	}
	copy(p.entries[i+1:end+1], p.entries[i:end])
	p.entries[i] = entry
	return true
}

// grow rebuilds the entries with a quarter of free space.
func (p *indexPart) grow() {
	old, mapped := p.entries, p.mapped
	p.homes = max(32, uint64(p.n)*5/4, p.homes+1)
	for room := uint64(spare); ; room *= 2 {
		p.entries, p.mapped = newEntries(int(p.homes + room))
		if p.layOut(old) {
			freeEntries(mapped)
			return
		}
		freeEntries(p.mapped)
	}
}

// layOut writes sorted entries to their positions.
func (p *indexPart) layOut(entries []uint64) bool {
	next := 0
	for _, e := range entries {
		if e == 0 {
			continue
		}
		next = max(next, p.home(e>>placeBits))
		if next >= len(p.entries)-spare/2 {
			return false
		}
		p.entries[next] = e
		next++
	}
	return true
}

// at returns the position of an entry, -1 if missing.
func (p *indexPart) at(h uint64, at place) int {
	if p.homes == 0 {
		return -1
	}
	want := entryOf(h, at)
	for i := p.seek(h); p.entries[i] != 0 && p.entries[i]>>placeBits == h; i++ {
		if p.entries[i] == want {
			return i
		}
	}
	return -1
}

// replace changes an entry's place, and reports whether it existed.
func (x *index) replace(hash uint64, from, to place) bool {
	p, h := x.of(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.at(h, from)
	if i >= 0 {
		p.entries[i] = entryOf(h, to)
	}
	return i >= 0
}

// remove removes an entry and moves displaced successors back. It reports whether one existed.
func (x *index) remove(hash uint64, at place) bool {
	p, h := x.of(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.at(h, at)
	if i < 0 {
		return false
	}
	for ; p.entries[i+1] != 0 && p.home(p.entries[i+1]>>placeBits) <= i; i++ {
		p.entries[i] = p.entries[i+1]
	}
	p.entries[i] = 0
	p.n--
	return true
}

func (x *index) free() {
	for i := range x.parts {
		p := &x.parts[i]
		p.mu.Lock()
		freeEntries(p.mapped)
		p.entries, p.mapped, p.homes, p.n = nil, nil, 0, 0
		p.mu.Unlock()
	}
}
