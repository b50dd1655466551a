package store

import "sync"

// index is where the rows of a table are: for each an entry of 8 bytes, a part of its key's hash
// and its place. Different keys may look the same; who needs to know reads the record.
//
// It has 256 parts. In each, entries lie in the order of their hashes, each as near as there is
// room to where its hash says: a search is a glance at some neighbouring entries, also for keys
// that are not there. Parts are 0.8 to 0.9 full and grow one by one.
type index struct {
	parts [256]indexPart
}

type indexPart struct {
	mu      sync.Mutex
	entries []uint64 // 0 is none; beyond homes there is room for what was displaced
	mapped  []byte   // see newEntries
	homes   uint64
	n       int
}

// place is where a record begins, in units from the beginning of the file.
type place uint64

// An entry is hashBits of a hash and a place plus 1, so that none is 0.
const (
	placeBits = 38
	hashBits  = 64 - placeBits
	maxPlace  = 1<<placeBits - 2
	spare     = 64 // entries beyond homes
)

// mix spreads a key over 64 bits: the finaliser of MurmurHash3, which is one to one.
func mix(k uint64) uint64 {
	k ^= k >> 33
	k *= 0xff51afd7ed558ccd
	k ^= k >> 33
	k *= 0xc4ceb9fe1a85ec53
	return k ^ k>>33
}

// of returns the part of a hash, and the bits of it that an entry has.
func (x *index) of(hash uint64) (*indexPart, uint64) {
	return &x.parts[hash>>56], hash << 8 >> placeBits
}

func entryOf(h uint64, at place) uint64 { return h<<placeBits | uint64(at) + 1 }
func placeOf(entry uint64) place        { return place(entry&(1<<placeBits-1)) - 1 }

// home is where a hash would like to be.
func (p *indexPart) home(h uint64) int { return int(h * p.homes >> hashBits) }

// seek is the first entry from a hash's home on that is free or of no smaller hash.
func (p *indexPart) seek(h uint64) int {
	i := p.home(h)
	for p.entries[i] != 0 && p.entries[i]>>placeBits < h {
		i++
	}
	return i
}

// find appends the places of all records whose keys may have the hash.
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

// insert adds an entry.
func (x *index) insert(hash uint64, at place) {
	p, h := x.of(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	if uint64(p.n+1)*10 > p.homes*9 {
		p.grow()
	}
	for !p.add(entryOf(h, at)) {
		p.grow() // one end is crowded
	}
	p.n++
}

// add puts an entry in its order and moves those that follow up to the next free one. The last
// entry stays free: searches end there.
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

// grow lays the entries out anew, with a quarter of room.
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

// layOut writes entries, which are in order, to where they belong.
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

// at is the number of an entry, -1 if it is not there.
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

// replace gives an entry another place, and says whether it was there.
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

// remove takes an entry out and moves back those behind it that are not at home. It says
// whether it was there.
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

// free gives the entries' memory back: there are none then.
func (x *index) free() {
	for i := range x.parts {
		p := &x.parts[i]
		p.mu.Lock()
		freeEntries(p.mapped)
		p.entries, p.mapped, p.homes, p.n = nil, nil, 0, 0
		p.mu.Unlock()
	}
}

// bytes is the memory of the entries.
func (x *index) bytes() (n int64) {
	for i := range x.parts {
		p := &x.parts[i]
		p.mu.Lock()
		n += int64(8 * len(p.entries))
		p.mu.Unlock()
	}
	return n
}
